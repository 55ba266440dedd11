"""Flow control (RFC 9113, section 5.2): how many bytes a client may still send, and how many it may still be sent.

What a client may send is a promise of memory, so it begins small and grows only while the bytes go on at once: a tunnel
that never moves holds back 64 KiB at most, one in full flow half a mebibyte. Nothing here knows of frames.
"""

from typing import Final

__all__ = ["FIRST_WINDOW", "LARGEST_WINDOW", "MOST_OF_ALL", "MOST_OF_A_STREAM", "Receiving", "widened"]

FIRST_WINDOW: Final = 65_535
"""Bytes that both sides may send on a stream, or a connection, before anything is said of it (6.9.2)."""
MOST_OF_A_STREAM: Final = 1 << 19
"""Bytes that a client may be ahead, in one stream, of what was told it."""
MOST_OF_ALL: Final = 1 << 20
"""The same, in all streams of a connection together."""
LARGEST_WINDOW: Final = (1 << 31) - 1


class Receiving:
    """What the other side may send, on a stream or on a connection, at most `most` ahead."""

    __slots__ = ("_most", "_taken", "limit")

    def __init__(self, most: int) -> None:
        self._most = most
        self.limit = FIRST_WINDOW
        """Bytes that it may be ahead of what it was told."""
        self._taken = 0  # bytes that came since it was told

    def take(self, count: int) -> bool:
        """Hear that so many bytes came; returns whether they were allowed."""
        self._taken += count
        return self._taken <= self.limit

    def increment(self, kept: int, *, growth: int = 0) -> int:
        """Say by how much to open the window anew, with `kept` bytes that have not gone on; 0 as long as it is wide.

        `growth` is by how many bytes it may become wider than it has ever been.
        """
        spare = self._taken - kept
        if spare * 2 < self.limit:
            return 0
        grown = max(0, min(growth, self.limit, self._most - self.limit))
        self.limit += grown
        self._taken = kept
        return spare + grown


def widened(window: int, increment: int) -> int | None:
    """Give a window that the other side opened; None where that is wider than any may be (6.9.1)."""
    window += increment
    return window if window <= LARGEST_WINDOW else None
