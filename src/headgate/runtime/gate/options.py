"""How a gate is started."""

from collections.abc import Callable
from dataclasses import dataclass

from headgate.config import Configuration

__all__ = ["GateOptions"]


@dataclass(frozen=True)
class GateOptions:
    """What a gate needs beside its configuration."""

    read: Callable[[], tuple[Configuration, str | None]]
    """Reads the configuration, at the start and at each reload; gives also the name of its file, if there is one."""
    demo: bool = False
    """Whether a sample origin is started, and what to try is printed."""
    require_admin: bool = False
    """Whether an admin address in use is an error although it is the default one."""
