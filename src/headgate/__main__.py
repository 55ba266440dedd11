"""`python -m headgate` is the `headgate` program."""

from headgate.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
