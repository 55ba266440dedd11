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
from contextlib import suppress
from typing import IO, Final

from headgate.config.tree import Bounds
from headgate.errors import reason_of
from headgate.origin.gateway.record import GatewayCounters

PIECE_SIZE: Final = 65_536
"""Bytes taken out of a buffer at once."""
PIECES_PER_TURN: Final = 16
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
        self.counters = counters
        self._kind = kind
        self._log = log
        self._next_line = 0.0

    def open_file(self) -> IO[bytes]:
        """Open a temporary file; raises `OSError`."""
        file: IO[bytes] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - its buffer closes it
        self.counters.buffers_in_files[self._kind] += 1
        return file

    def refuse(self, reason: str) -> None:
        """Count bytes that find no room; log it once a minute."""
        self.counters.buffers_full[self._kind] += 1
        now = time.monotonic()
        if now >= self._next_line:
            self._next_line = now + _REPORT_INTERVAL
            effect = "the request is answered 503" if self._kind == "request" else "the origin waits for the client"
            self._log(f"no room to buffer a {self._kind}: {reason}; {effect}")


class SpooledBuffer:
    """A queue of bytes: at most `memory` bytes in memory, those after them in a file of at most `file` bytes.

    The file is used as a ring, so that a slow reader of an endless response neither fills it nor stops its writer.
    """

    __slots__ = ("_allocated", "_end", "_file", "_file_limit", "_first", "_last", "_memory_limit", "_space", "_start")

    def __init__(self, space: BufferSpace, *, memory: int, file: int) -> None:
        self._space = space
        self._memory_limit = memory
        self._file_limit = file
        self._first = bytearray()  # before those in the file
        self._last = bytearray()  # after those in the file: bytes that found no room there
        self._file: IO[bytes] | None = None
        self._start = self._end = 0  # of what the file contains, in bytes of the whole queue
        self._allocated = 0

    def __len__(self) -> int:
        return len(self._first) + self._end - self._start + len(self._last)

    @property
    def has_room(self) -> bool:
        """Whether a writer that was stopped may go on."""
        return not self._last and self._end - self._start <= self._file_limit // 2

    def append(self, data: bytes) -> bool:
        """Add bytes at the end; returns whether there was room. If not, they are kept, and the writer must stop."""
        space, size = self._space, len(data)
        fits = size <= space.memory and len(self._first) + size <= self._memory_limit
        if fits and self._start == self._end and not self._last:
            space.memory -= size
            self._first += data
            return True
        if not self._last and self._write(data):
            return True
        space.memory -= size
        self._last += data
        return False

    def take(self) -> bytes:
        """Remove and return the first bytes, at most `PIECE_SIZE`; raises `OSError` if the file cannot be read."""
        if not self._first and self._start < self._end:
            return self._read()
        source = self._first or self._last
        data = bytes(source[:PIECE_SIZE])
        del source[:PIECE_SIZE]
        self._space.memory += len(data)
        return data

    def close(self) -> None:
        """Forget the content, and close the file."""
        self._space.memory += len(self._first) + len(self._last)
        self._first, self._last, self._start = bytearray(), bytearray(), self._end
        self._release_file()
        if self._file is not None:
            self._file.close()

    def __del__(self) -> None:
        self.close()  # of a connection that is closed at once

    def _write(self, data: bytes) -> bool:
        size, limit = len(data), self._file_limit
        end = self._end + size
        if end - self._start > limit:
            return False
        grown = max(0, min(end, limit) - self._allocated)
        try:
            if grown > self._space.files:
                raise OSError("gate.bounds.buffer_files is reached")
            if self._file is None:
                self._file = self._space.open_file()
            descriptor, offset = self._file.fileno(), self._end % limit
            written = os.pwrite(descriptor, data[: limit - offset], offset)
            if size > limit - offset:
                written += os.pwrite(descriptor, data[limit - offset :], 0)
            if written < size:
                raise OSError("the disk is full")
        except OSError as error:
            self._space.refuse(reason_of(error))
            return False
        self._space.files -= grown
        self._allocated += grown
        self._end = end
        return True

    def _read(self) -> bytes:
        assert self._file is not None
        offset = self._start % self._file_limit
        size = min(PIECE_SIZE, self._end - self._start, self._file_limit - offset)
        data = os.pread(self._file.fileno(), size, offset)
        if len(data) < size:
            raise OSError("a temporary file is shorter than what was written to it")
        self._start += size
        if self._start == self._end:
            os.ftruncate(self._file.fileno(), 0)
            self._release_file()
        return data

    def _release_file(self) -> None:
        self._space.files += self._allocated
        self._allocated = self._start = self._end = 0


class Buffers:
    """The buffers of one gateway, with the settings and bounds of all."""

    def __init__(
        self, bounds: Bounds, counters: GatewayCounters, log: Callable[[str], None], *, requests: bool, response: int
    ) -> None:
        files = bounds.buffer_files
        try:
            tempfile.gettempdir()
        except OSError as error:
            log(f"no temporary files: {reason_of(error)}; set TMPDIR. Request bodies are not buffered")
            files = 0
        self._has_files = files > 0
        self._max_body = bounds.max_body or files
        self._requests = BufferSpace("request", bounds.buffer_memory, files, counters, log)
        self._responses = BufferSpace("response", bounds.buffer_memory, files, counters, log)
        self.configure(requests=requests, response=response)

    def configure(self, *, requests: bool, response: int) -> None:
        """Change the settings: whether to buffer the bodies of requests, and how much of a response in memory."""
        self.requests = requests and self._has_files
        """Whether the bodies of requests are buffered."""
        self._response_memory = response

    def for_request(self) -> SpooledBuffer:
        """Return a buffer for the body of a request."""
        return SpooledBuffer(self._requests, memory=MAX_REQUEST_MEMORY, file=self._max_body)

    def for_response(self) -> SpooledBuffer | None:
        """Return a buffer for a response; None if responses are not buffered."""
        if not self._response_memory:
            return None
        return SpooledBuffer(self._responses, memory=self._response_memory, file=MAX_RESPONSE_FILE)


class Outflow:
    """Sends the content of a buffer for as long as its recipient reads, at most 1 MiB in one turn of the event loop.

    It is paused at first. `ended` is called, in a turn of its own, when all is sent; or with the error, if the file
    cannot be read. Then, or if it is closed, nothing more is called.
    """

    __slots__ = ("_ended", "_scheduled", "_send", "buffer", "paused")

    def __init__(
        self, buffer: SpooledBuffer, send: Callable[[bytes], None], ended: Callable[[OSError | None], None]
    ) -> None:
        self.buffer: SpooledBuffer | None = buffer
        self.paused = True
        """Whether the recipient reads slowly."""
        self._send = send
        self._ended = ended
        self._scheduled = False

    def __len__(self) -> int:
        return 0 if self.buffer is None else len(self.buffer)

    @property
    def has_room(self) -> bool:
        """See `SpooledBuffer`."""
        return self.buffer is None or self.buffer.has_room

    def append(self, data: bytes) -> bool:
        """See `SpooledBuffer`."""
        return self.buffer is None or self.buffer.append(data)

    def take(self) -> bytes:
        """Take out the first bytes; none if the file cannot be read, which the next turn reports."""
        with suppress(OSError):
            return b"" if self.buffer is None else self.buffer.take()
        return b""

    def resume(self) -> None:
        """Go on in the next turn: asyncio does not allow closing a transport from its `resume_writing`."""
        self.paused = False
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._take_turn)

    def close(self) -> None:
        """Stop, and forget the rest."""
        if self.buffer is not None:
            self.buffer.close()
            self.buffer = None

    def _take_turn(self) -> None:
        self._scheduled = False
        try:
            for _ in range(PIECES_PER_TURN):
                if self.paused or self.buffer is None:
                    return
                if not len(self.buffer):
                    self.close()
                    self._ended(None)
                    return
                self._send(self.buffer.take())
        except OSError as error:
            self.close()
            self._ended(error)
            return
        self._schedule()
