"""The state of the advice loop in a file: what agents obey when the gate starts again.

The file is JSON, and is replaced as a whole. One that is not of this format is never written over.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from headgate.bundle.files.atomic_file import open_output
from headgate.errors import HeadgateError, reason_of
from headgate.origin.gateway.arrivals import MAX_AGENTS, MAX_BRANDS

_MAX_SIZE: Final = 32 << 20
"""Bytes; more than the most agents take, with brands of the most bytes."""
_LAST: Final = 1e12


class SavedAgent(msgspec.Struct, frozen=True):
    """An agent that has fetched the advice."""

    address: str
    brand: str


class SavedAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a file."""

    format: Literal["headgate-advice-1"] = "headgate-advice-1"
    saved: Annotated[float, Meta(ge=0, le=_LAST)]
    """Seconds since 1970."""
    fractions: dict[str, Annotated[float, Meta(ge=0, le=1)]]
    """The published fraction of each entry that is computed; 0 for a class that is disallowed."""
    capacity: Annotated[float, Meta(ge=0, le=_LAST)] = 0.0
    """The learned capacity in requests per second; 0 if not known."""
    agents: Annotated[tuple[SavedAgent, ...], Meta(max_length=MAX_AGENTS * MAX_BRANDS)] = ()
    """Agents that have fetched the advice lately."""


_decoder = msgspec.json.Decoder(SavedAdvice)


class StateFile:
    """The file at `path`; none if that is empty. `log` is called with warnings."""

    def __init__(self, path: str, log: Callable[[str], None]) -> None:
        self.path = path
        self._log = log
        self._is_usable = bool(path)
        self._failure = ""

    def read(self) -> SavedAdvice | None:
        """Return the content; None without a file, and with a warning for an invalid one."""
        if not self.path:
            return None
        try:
            content = _read(Path(self.path))
            return None if content is None else _decoder.decode(content)
        except (OSError, ValueError, msgspec.DecodeError, RecursionError) as error:
            self._is_usable = False
            self._log(
                f"warning: advice.state: {self.path}: {reason_of(error) if isinstance(error, OSError) else error}; "
                "expected a state file of headgate, or none; nothing is restored or saved"
            )
            return None

    def write(self, saved: SavedAdvice) -> None:
        """Replace the file; a failure is a warning, once."""
        if not self._is_usable:
            return
        content = msgspec.json.encode(saved)
        try:
            with open_output(self.path, len(content)) as output:
                output.put(content)
        except (HeadgateError, OSError) as error:
            if str(error) != self._failure:
                self._log(f"warning: advice.state: not saved: {error}")
            self._failure = str(error)
        else:
            self._failure = ""


def _read(path: Path) -> bytes | None:
    """Return the bytes of a regular file; None if there is none."""
    try:
        # A named pipe would wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(_MAX_SIZE + 1)
    if content is None or len(content) > _MAX_SIZE:
        raise ValueError(f"longer than {_MAX_SIZE} bytes")
    return content
