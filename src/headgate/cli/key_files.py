"""Create files of keys: all or none of them, whole, and never in place of an existing file."""

import os
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from headgate.cli.output import print_bytes, printable
from headgate.errors import ConfigurationError, reason_of

SECRET_MODE: Final = 0o600
PUBLIC_MODE: Final = 0o644


def create_files(files: list[tuple[str, bytes, int]]) -> None:
    """Create all files, each a name, content and mode, or none of them; the name - writes standard output.

    Raises `ConfigurationError` if one exists or cannot be written.
    """
    with ExitStack() as created:
        for name, content, mode in files:
            if name == "-":
                print_bytes(content)
                continue
            try:
                _create(name, content, mode)
            except FileExistsError:
                raise ConfigurationError(
                    f"{printable(name)} exists already; key files are not overwritten, so choose another name"
                ) from None
            except OSError as error:
                raise ConfigurationError(f"{printable(name)} cannot be written: {reason_of(error)}") from None
            created.callback(_remove, name)
        created.pop_all()


def _create(name: str, content: bytes, mode: int) -> None:
    """Create a file; a program that opens it at any time finds all of its content, or no file."""
    partial = f"{name}.{os.getpid()}.partial"
    if Path(name).is_symlink() or Path(name).exists():
        raise FileExistsError
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.link(partial, name)  # unlike a rename, it fails if the name exists by now
    finally:
        _remove(partial)


def _remove(name: str) -> None:
    with suppress(OSError):
        Path(name).unlink()
