"""Flow control (RFC 9113, section 5.2): how many bytes each side may still send.

Receive windows reserve memory: they start at 64 KiB and double up to 512 KiB per stream only while data is forwarded
immediately, so that an idle tunnel reserves little.
"""

from typing import Final

INITIAL_WINDOW: Final = 65_535
"""Bytes that both sides may send on a stream, or a connection, before any frame changes it (6.9.2)."""
MAX_STREAM_WINDOW: Final = 1 << 19
"""The largest receive window of a stream."""
MAX_CONNECTION_WINDOW: Final = 1 << 20
"""The largest receive window of a connection."""
MAX_WINDOW: Final = (1 << 31) - 1
"""The largest window that the protocol allows (6.9.1)."""


class ReceiveWindow:
    """What the client may send, on a stream or a connection; `limit` grows to `maximum`."""

    __slots__ = ("_maximum", "_used", "limit")

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self.limit = INITIAL_WINDOW
        """Bytes that the client may have sent since the last update."""
        self._used = 0

    def receive(self, count: int) -> bool:
        """Count received bytes; returns whether the window allowed them."""
        self._used += count
        return self._used <= self.limit

    def update(self, held: int, *, growth: int = 0) -> int:
        """Return the increment to send, with `held` bytes not forwarded yet; 0 while more than half is open.

        The window may become larger by up to `growth` bytes.
        """
        forwarded = self._used - held
        if forwarded * 2 < self.limit:
            return 0
        grown = max(0, min(growth, self.limit, self._maximum - self.limit))
        self.limit += grown
        self._used = held
        return forwarded + grown


def increased(window: int, increment: int) -> int | None:
    """Return a window that the client increased; None if it is larger than the protocol allows."""
    window += increment
    return window if window <= MAX_WINDOW else None
