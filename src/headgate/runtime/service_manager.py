"""What a service manager such as systemd gives a server, and how it is notified: sd_listen_fds(3), sd_notify(3).

Its variables are removed from the environment that is given, so that workers and their children do not inherit them.
"""

import os
import socket
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Final

_FIRST_DESCRIPTOR: Final = 3


class ServiceManager:
    """The service manager that started this process, if there is one."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        path = environ.pop("NOTIFY_SOCKET", "")
        self._address = f"\0{path[1:]}" if path.startswith("@") else path
        microseconds = environ.pop("WATCHDOG_USEC", "")
        is_meant = environ.pop("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.watchdog = int(microseconds) / 1e6 if self._address and is_meant and microseconds.isdecimal() else 0.0
        """Seconds within which it expects WATCHDOG=1; 0 if it does not."""

    def notify(self, *assignments: str) -> None:
        """Send assignments such as READY=1. Never waits, and ignores a manager that is gone."""
        if not self._address:
            return
        lines = "\n".join(" ".join(one.split()) for one in assignments)
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(0)
            sender.sendto(lines.encode(errors="replace"), self._address)


def take_sockets(environ: MutableMapping[str, str]) -> list[tuple[str, socket.socket]]:
    """Return the listening sockets that the service manager has opened for this process, each with its name."""
    pid, count, names = (environ.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"))
    if pid != str(os.getpid()) or not count.isdecimal():
        return []
    found = []
    for index, name in zip(range(int(count)), [*names.split(":"), *[""] * int(count)], strict=False):
        sock = socket.socket(fileno=_FIRST_DESCRIPTOR + index)
        sock.set_inheritable(False)
        found.append((name, sock))
    return found
