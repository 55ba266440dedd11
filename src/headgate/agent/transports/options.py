"""What a request may be marked with for headgate, wherever its library has room for a mark.

One mark is known so far: `{"interactive": True}` is on a request that a user waits for.
"""

from collections.abc import Mapping

from headgate.errors import ConfigurationError

__all__ = ["is_interactive"]


def is_interactive(marks: object) -> bool:
    """Say whether the marks of a request, None where it has none, tell that a user waits for it.

    Raises `ConfigurationError` for what is no mark: one that does not do what it was meant to is better not sent.
    """
    if marks is None:
        return False
    if isinstance(marks, Mapping) and not marks.keys() - {"interactive"}:
        interactive = marks.get("interactive", False)
        if isinstance(interactive, bool):
            return interactive
    raise ConfigurationError(f"headgate: {marks!r} is no mark of a request; try {{'interactive': True}}")
