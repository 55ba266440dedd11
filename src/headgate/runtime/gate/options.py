"""How a gate is started."""

from collections.abc import Callable
from dataclasses import dataclass

from headgate.config import Configuration

__all__ = ["GateOptions"]


@dataclass(frozen=True)
class GateOptions:
    """What a gate needs beside its configuration."""

    read: Callable[[], tuple[Configuration, str | None]]
    """Reads the configuration, at the start and at each reload; also returns the name of its file, if there is one."""
    demo: bool = False
    """Whether to start a sample origin, and to print what to try."""
    require_admin: bool = False
    """Whether an admin address that is in use is an error although it is the default one."""
