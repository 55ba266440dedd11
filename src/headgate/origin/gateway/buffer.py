"""Buffers of bodies, so that a slow client occupies neither the origin nor a permit.

A buffer keeps bytes in memory, and those beyond in a temporary file without a name, which is gone when it is closed or
the process ends. All buffers of one kind share a space, which bounds their bytes in memory and in files. A write goes
to the page cache, one read of a connection at a time.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from typing import IO, Final, cast

from headgate.errors import reason_of
from headgate.origin.gateway.record import GatewayCounters
from headgate.origin.gateway.settings import GatewaySettings

PIECE_SIZE: Final = 65_536
"""Bytes taken out of a buffer at once."""
PIECES_PER_TURN: Final = 16
"""Pieces sent per turn of the event loop."""
MAX_REQUEST_MEMORY: Final = 65_536
"""Bytes of a request body that are kept in memory."""
MAX_RESPONSE_FILE: Final = 64 << 20
"""Bytes of a response in a temporary file."""
_REPORT_INTERVAL: Final = 60.0


class BufferSpace:
    """What all buffers of one `kind`, request or response, may still use: bytes in memory, and in temporary files."""

    def __init__(
        self, kind: str, memory: int, files: int, counters: GatewayCounters, log: Callable[[str], None]
    ) -> None:
        self.memory = memory
        self.files = files
        self._kind = kind
        self._counters = counters
        self._log = log
        self._next_line = 0.0

    def open_file(self) -> IO[bytes]:
        """Open a temporary file; raises `OSError`."""
        self._counters.buffers_in_files[self._kind] += 1
        return tempfile.TemporaryFile(buffering=0)

    def refuse(self, error: OSError) -> None:
        """Count bytes that find no room; log it once a minute."""
        self._counters.buffers_full[self._kind] += 1
        now = time.monotonic()
        if now >= self._next_line:
            self._next_line = now + _REPORT_INTERVAL
            effect = "it is answered 503" if self._kind == "request" else "the origin waits for its client"
            self._log(f"warning: no room to buffer a {self._kind}, {effect}: {reason_of(error)}")


class SpooledBuffer:
    """A queue of bytes: at most `memory` bytes in memory, those after them in a file of at most `file` bytes.

    The file is used as a ring, so that a slow reader of a long response neither fills it nor stops its writer.

    After `send_to`, `run` sends the content for as long as the recipient is not slow, with turns of the event loop for
    others.
    """

    __slots__ = (
        "_allocated", "_end", "_file", "_file_limit", "_first", "_last", "_lost", "_memory_limit", "_scheduled",
        "_send", "_sent", "_space", "_start", "paused",
    )  # fmt: skip

    def __init__(self, space: BufferSpace, *, memory: int, file: int) -> None:
        self._space = space
        self._memory_limit = memory
        self._file_limit = file
        self._first = bytearray()  # before those in the file
        self._last = bytearray()  # after those in the file: bytes that found no room there
        self._file: IO[bytes] | None = None
        self._start = self._end = self._allocated = 0  # what is in the file, by its offset in the queue; its size
        self._scheduled = False
        self.paused = False
        """Whether the recipient is slow."""

    def __len__(self) -> int:
        return len(self._first) + self._end - self._start + len(self._last)

    @property
    def has_room(self) -> bool:
        """Whether a writer that was stopped may go on."""
        return not self._last and self._end - self._start <= self._file_limit // 2

    def append(self, data: bytes) -> bool:
        """Add bytes at the end; returns whether there was room. If not, they are kept, and the writer must stop."""
        space, size, part = self._space, len(data), self._first
        fits = size <= space.memory and len(part) + size <= self._memory_limit
        if not fits or self._start < self._end or self._last:
            if not self._last and self._write(data):
                return True
            fits, part = False, self._last
        space.memory -= size
        part += data
        return fits

    def take(self) -> bytes:
        """Remove and return the first bytes, at most `PIECE_SIZE`; raises `OSError` if the file cannot be read."""
        if not self._first and self._start < self._end:
            return self._read()
        part = self._first or self._last
        data = bytes(part[:PIECE_SIZE])
        del part[:PIECE_SIZE]
        self._space.memory += len(data)
        return data

    def close(self) -> None:
        """Forget the content; nothing more is sent."""
        self.paused = True
        self._space.memory += len(self._first) + len(self._last)
        self._first, self._last = bytearray(), bytearray()
        self._empty_file()
        if self._file is not None:
            self._file.close()

    def __del__(self) -> None:
        self.close()  # of a connection that is closed at once

    # Sending.

    def send_to(self, send: Callable[[bytes], None], sent: Callable[[], None], lost: Callable[[OSError], None]) -> None:
        """Call `send` with each piece from `run` on; at the end `sent`, or `lost` if the file cannot be read."""
        self._send, self._sent, self._lost = send, sent, lost

    def resume(self) -> None:
        """Go on in the next turn: asyncio does not allow closing a transport from its `resume_writing`."""
        self.paused = False
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.run)

    def run(self) -> None:
        """Send what the recipient takes, and go on in the next turn."""
        self._scheduled = False
        try:
            for _ in range(PIECES_PER_TURN):
                if self.paused:
                    return
                if not len(self):
                    self.close()
                    self._sent()
                    return
                self._send(self.take())
            self._schedule()
        except OSError as error:
            self.close()
            self._lost(error)

    # The file.

    def _write(self, data: bytes) -> bool:
        size, limit, space = len(data), self._file_limit, self._space
        end, offset = self._end + size, self._end % max(1, limit)
        grown = max(0, min(end, limit) - self._allocated)
        if end - self._start > limit:
            return False
        try:
            if grown > space.files:
                raise OSError("gate.bounds.buffer_files is reached")
            if self._file is None:
                self._file = space.open_file()
            parts = (data[: limit - offset], offset), (data[limit - offset :], 0)
            if sum(os.pwrite(self._file.fileno(), *part) for part in parts) < size:
                raise OSError("the disk is full")
        except OSError as error:
            space.refuse(error)
            return False
        space.files -= grown
        self._allocated += grown
        self._end = end
        return True

    def _read(self) -> bytes:
        file, offset = cast("IO[bytes]", self._file), self._start % self._file_limit
        size = min(PIECE_SIZE, self._end - self._start, self._file_limit - offset)
        data = os.pread(file.fileno(), size, offset)
        if len(data) < size:
            raise OSError("a temporary file is shorter than what was written to it")
        self._start += size
        if self._start == self._end:
            file.truncate(0)
            self._empty_file()
        return data

    def _empty_file(self) -> None:
        self._space.files += self._allocated
        self._allocated = self._start = self._end = 0


class Buffers:
    """The buffers of one gateway, with the settings and bounds of all."""

    def __init__(self, settings: GatewaySettings, log: Callable[[str], None]) -> None:
        self._settings = settings
        memory, self._files = settings.bounds.buffer_memory, settings.bounds.buffer_files
        try:
            tempfile.gettempdir()
        except OSError as error:
            log(f"no temporary files: {reason_of(error)}; set TMPDIR. Request bodies are not buffered")
            self._files = 0
        self._requests = BufferSpace("request", memory, self._files, settings.counters, log)
        self._responses = BufferSpace("response", memory, self._files, settings.counters, log)

    def for_request(self) -> SpooledBuffer | None:
        """Return a buffer for the body of a request; None if these are not buffered."""
        if not self._settings.buffer_requests or not self._files:
            return None
        file = self._settings.bounds.max_body or self._files
        return SpooledBuffer(self._requests, memory=MAX_REQUEST_MEMORY, file=file)

    def for_response(self) -> SpooledBuffer | None:
        """Return a buffer for a response; None if responses are not buffered."""
        memory = self._settings.buffer_response
        return SpooledBuffer(self._responses, memory=memory, file=MAX_RESPONSE_FILE) if memory else None
