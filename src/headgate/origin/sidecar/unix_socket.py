"""A listening unix socket: a stale file of it is replaced, and the file is removed at the end.

A server that was killed leaves its file behind, and a bind then fails. Only a socket that refuses connections is
removed: no process listens on it.
"""

import asyncio
import errno
import os
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from headgate.config.section import check_socket_path
from headgate.errors import ConfigurationError, explaining, fail_if, naming

_BACKLOG: Final = 1_024
_NO_ACCESS: Final = 0o777


class UnixSocket:
    """A unix socket that listens at `path` from its creation until `close`.

    Its file has the permissions `mode` from the moment at which it can be reached. `flag` names the option of the path
    in errors. Raises `ConfigurationError` for a path that is too long or not available, and for one at which another
    process listens or which has a file that is not a socket.
    """

    def __init__(self, path: str, *, mode: int, flag: str) -> None:
        self.path = path
        """The path as it was given."""
        advice = "name a path in a directory that exists and that this user may write"
        with naming(flag), explaining(f"cannot listen at {path!r}", advice):
            check_socket_path(path)
            self.socket = _listen(path, mode)
            """The listening socket, which does not block."""
            self._file = _identify(os.lstat(path))

    async def serve(self, new_protocol: Callable[[], asyncio.BaseProtocol]) -> asyncio.Server:
        """Accept connections in the running event loop."""
        loop = asyncio.get_running_loop()
        # It listens again, with another backlog if none is given; a connection beyond that fails at once.
        return await loop.create_unix_server(new_protocol, sock=self.socket, backlog=_BACKLOG)

    def close(self) -> None:
        """Close the socket, and remove its file unless another program has replaced it. Can be called twice."""
        self.socket.close()
        with suppress(OSError):
            if _identify(os.lstat(self.path)) == self._file:
                Path(self.path).unlink()


def _listen(path: str, mode: int) -> socket.socket:
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.settimeout(0.0)
        # The umask, not a later chmod, decides who can connect at first. It is the process's, for the time of one call.
        before = os.umask(_NO_ACCESS)
        try:
            listener.bind(path)
        finally:
            os.umask(before)
        listener.listen(_BACKLOG)
        Path(path).chmod(mode)
    except BaseException:
        listener.close()
        raise
    return listener


def _remove_stale(path: str) -> None:
    """Remove the socket at `path` if no process listens on it; raises `ConfigurationError` for any other file."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    fail_if(not stat.S_ISSOCK(found.st_mode), f"{path!r} exists and is not a socket; remove it, or name another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.0)
        number = probe.connect_ex(path)
    if number == errno.ENOENT:  # its process has just removed it
        return
    if number != errno.ECONNREFUSED:
        reason = "another process listens" if number in {0, errno.EAGAIN} else os.strerror(number)
        raise ConfigurationError(f"{path!r} is in use ({reason}); stop that process, or name another path")
    with suppress(FileNotFoundError):
        if _identify(os.lstat(path)) == _identify(found):
            Path(path).unlink()


def _identify(found: os.stat_result) -> tuple[int, int, int]:
    """Return what identifies a file, whatever its name.

    The number of an inode is not enough: when a file is removed, a new one may get its number. A socket is not modified
    after its creation.
    """
    return found.st_dev, found.st_ino, found.st_mtime_ns
