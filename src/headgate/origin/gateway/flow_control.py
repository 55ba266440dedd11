"""Flow control at a client's connection: when to read from it, and whether it reads what it is sent."""

import asyncio

from headgate.origin.gateway.send_progress import send_progress


class FlowControl:
    """Pauses reading while too much is buffered or the origin is slow, and notices when the client takes bytes."""

    __slots__ = ("_buffer_full", "_last_progress", "_transport", "upstream_slow")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._buffer_full = False
        self._last_progress: int | None = None
        self.upstream_slow = False
        """Whether the origin does not take more of the request's body at present."""

    def set_buffer_full(self, full: bool) -> None:  # noqa: FBT001 - a setter
        """Pause while more is buffered than should be."""
        if full is not self._buffer_full:
            self._buffer_full = full
            self._update()

    def set_upstream_slow(self, slow: bool) -> None:  # noqa: FBT001 - a setter
        """Pause while the origin is slow."""
        self.upstream_slow = slow
        self._update()

    def release(self) -> None:
        """Read, whatever was the reason to pause."""
        self._buffer_full = self.upstream_slow = False
        self._update()

    def client_reads(self) -> bool:
        """Return whether the client took some of what it is sent since the last call."""
        progress, last = send_progress(self._transport), self._last_progress
        self._last_progress = progress
        return progress is not None and progress != last

    def _update(self) -> None:
        if self._transport.is_closing():
            return
        if self._buffer_full or self.upstream_slow:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
