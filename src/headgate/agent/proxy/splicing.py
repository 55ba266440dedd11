"""Pipes through which the system moves bytes from one socket to another without showing them to this process.

There are a few for all tunnels, borrowed for one move and given back at once when nothing is left inside, so that an
idle tunnel owns none and ten thousand tunnels own a few. A pipe that could not be emptied stays with its tunnel until
the socket takes the rest, or until it is read out for the sake of others.
"""

import contextlib
import errno
import fcntl
import os

__all__ = ["Pipe", "Pipes"]

_LARGEST = 1 << 20
"""Bytes a pipe is asked to hold: what an unprivileged process may have."""
_SMALLEST = 1 << 16
"""Bytes below which copying is faster: what the system leaves to one who has had too many."""
_SET_SIZE = getattr(fcntl, "F_SETPIPE_SZ", 1031)
_HOW = getattr(os, "SPLICE_F_MOVE", 1) | getattr(os, "SPLICE_F_NONBLOCK", 2)
_CANNOT = {errno.EINVAL, errno.ENOSYS, errno.EPERM}


class Pipe:
    """One pipe; `inside` are the bytes that wait in it."""

    __slots__ = ("_before", "_inlet", "_outlet", "inside", "size")

    def __init__(self) -> None:
        self._outlet, self._inlet = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.inside = self._before = 0
        try:
            self.size = fcntl.fcntl(self._inlet, _SET_SIZE, _LARGEST)
        except OSError:
            self.size = _SMALLEST  # what it is when nobody asks

    def fill(self, descriptor: int, most: int) -> int:
        """Move bytes in from a socket; returns how many, 0 at its end. Raises `BlockingIOError` and `OSError`."""
        count = os.splice(descriptor, self._inlet, min(most, self.size), flags=_HOW)
        self.inside += count
        return count

    def pour(self, descriptor: int) -> int:
        """Move bytes out to a socket; returns how many. Raises `BlockingIOError` and `OSError`."""
        count = os.splice(self._outlet, descriptor, self.inside, flags=_HOW)
        self.inside -= count
        return count

    def has_moved(self) -> bool:
        """Say whether what is inside has changed since this was last asked."""
        before, self._before = self._before, self.inside
        return before != self.inside

    def read_out(self) -> bytes:
        """Take everything that is inside."""
        taken = os.read(self._outlet, self.inside) if self.inside else b""
        self.inside -= len(taken)
        return taken

    def close(self) -> None:
        """Give both ends back to the system."""
        os.close(self._inlet)
        os.close(self._outlet)


class Pipes:
    """The pipes there are: at most `most`, made when wanted."""

    __slots__ = ("_free", "_most", "made")

    def __init__(self, most: int = 32) -> None:
        self._most = most if hasattr(os, "splice") else 0
        self._free: list[Pipe] = []
        self.made = 0
        """How many there are, lent ones included."""

    def borrow(self) -> Pipe | None:
        """Lend one; None where there is none to be had, and the bytes have to be copied."""
        if self._free:
            return self._free.pop()
        if self.made >= self._most:
            return None
        try:
            pipe = Pipe()
        except OSError:
            return None  # no descriptors left, this time
        if pipe.size < _SMALLEST:
            pipe.close()
            self._most = self.made
            return None
        self.made += 1
        return pipe

    def give_back(self, pipe: Pipe) -> None:
        """Take an empty pipe back; one that is not empty is closed, for its bytes belong to nobody."""
        if pipe.inside:
            self.discard(pipe)
        else:
            self._free.append(pipe)

    def discard(self, pipe: Pipe) -> None:
        """Close a pipe that nothing more can be done with."""
        self.made -= 1
        with contextlib.suppress(OSError):
            pipe.close()

    def cannot(self, error: OSError) -> bool:
        """Hear of an error; returns whether it says that these sockets cannot be spliced, and none is lent again."""
        if error.errno not in _CANNOT:
            return False
        self._most = 0
        while self._free:
            self.discard(self._free.pop())
        return True

    def close(self) -> None:
        """Close all that are not lent."""
        self._most = 0
        while self._free:
            self.discard(self._free.pop())
