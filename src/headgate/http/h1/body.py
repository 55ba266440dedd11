"""Bodies: by length, by chunks, or until the connection closes.

A reader takes bytes in any pieces and returns the pieces to forward; bytes after the end of the body are in `rest`.
With `framed`, the pieces of a chunked body are chunks again, rewritten with sizes in plain hexadecimal and without
extensions (9112 7.1.1 permits ignoring them), so that all recipients read them alike. The caller writes the last chunk
once `done` is true.
"""

import re
from collections.abc import Callable
from typing import Protocol

from headgate.errors import ProtocolError
from headgate.http.h1.syntax import FIELD_LINES, split_fields

# 9112 7.1, but without whitespace around the size, at most 15 digits, and no control bytes after ";".
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[\t\x20-\x7e]*+)?")
_TRAILERS = re.compile(rb"(" + FIELD_LINES + rb")\r\n")
_STRAY = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)|[^\t\r\n\x20-\x7e\x80-\xff]")
_MAX_SIZE_LINE = 512
MAX_TRAILERS_SIZE = 8192
"""Bytes of the trailer section of a chunked body."""


class BodyReader(Protocol):
    """A reader of any kind of body."""

    done: bool
    """Whether the last byte of the body has been read."""
    rest: bytes
    """The bytes after it."""
    size: int
    """The bytes of content read so far."""

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes; return the pieces to forward. After a `ProtocolError` the reader must not be used."""


class LengthBody:
    """A body of `length` bytes."""

    __slots__ = ("_remaining", "done", "rest", "size")

    def __init__(self, length: int) -> None:
        self._remaining = length
        self.done = length <= 0
        self.rest = b""
        self.size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """See `BodyReader`; never raises."""
        remaining = self._remaining
        if len(data) < remaining:
            self._remaining = remaining - len(data)
            self.size += len(data)
            return [data]
        self.rest = data[remaining:]
        self.size += remaining
        self._remaining, self.done = 0, True
        return [data[:remaining]] if remaining else []


class UnboundedBody:
    """A body that ends with its connection (9112 6.3, item 8); the caller sets `done`."""

    __slots__ = ("done", "framed", "rest", "size")

    def __init__(self, *, framed: bool) -> None:
        self.framed = framed
        self.done = False
        self.rest = b""
        self.size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """See `BodyReader`; never raises."""
        if not data:
            return []  # an empty chunk would be the last one
        self.size += len(data)
        return [b"%x\r\n" % len(data), data, b"\r\n"] if self.framed else [data]


class ChunkedBody:
    """A chunked body; `trailers` has the fields after the last chunk, once `done`.

    `max_trailers` is the maximum size of the trailer section, `max_size` that of the content, 0 for no limit.
    """

    __slots__ = (
        "_line", "_max_size", "_max_trailers", "_remaining", "_scanned", "_step", "done", "framed", "rest", "size",
        "trailers",
    )  # fmt: skip

    def __init__(self, *, framed: bool, max_trailers: int, max_size: int = 0) -> None:
        self.framed = framed
        self._max_trailers = max_trailers
        self._max_size = max_size
        # A function, not a bound method: that would be a reference cycle for each body.
        self._step: _Step = ChunkedBody._read_size
        self._line = b""
        self._scanned = 0
        self._remaining = 0
        self.done = False
        self.rest = b""
        self.size = 0
        self.trailers: list[tuple[bytes, bytes]] = []

    def feed(self, data: bytes) -> list[bytes]:
        """See `BodyReader`."""
        pieces: list[bytes] = []
        if self._line:
            data, self._line = self._line + data, b""
        else:
            self._scanned = 0
        position = 0
        while position >= 0 and not self.done:
            position = self._step(self, data, position, pieces)
        return pieces

    def _read_size(self, data: bytes, position: int, pieces: list[bytes]) -> int:
        end = data.find(b"\r\n", position)
        if end < 0:
            return self._keep_line(data, position, _MAX_SIZE_LINE)
        match = _SIZE_LINE.fullmatch(data, position, end)
        if match is None or end - position > _MAX_SIZE_LINE:
            raise ProtocolError(400, "a chunk's size line is malformed")
        self._remaining = size = int(match[1], 16)
        if not size:
            self._step = ChunkedBody._read_trailers
            return end + 2
        self.size += size
        if self._max_size and self.size > self._max_size:
            raise ProtocolError(413, f"the body is longer than {self._max_size} bytes")
        if self.framed:
            pieces.append(b"%x\r\n" % size)
        self._step = ChunkedBody._read_content
        return end + 2

    def _read_content(self, data: bytes, position: int, pieces: list[bytes]) -> int:
        end = position + self._remaining
        if position < len(data):
            pieces.append(data[position:end])
        if end > len(data):
            self._remaining = end - len(data)
            return -1
        self._step = ChunkedBody._read_content_end
        return end

    def _read_content_end(self, data: bytes, position: int, pieces: list[bytes]) -> int:
        end = data[position : position + 2]
        if end == b"\r\n":
            if self.framed:
                pieces.append(end)
            self._step = ChunkedBody._read_size
            return position + 2
        if end not in (b"", b"\r"):
            raise ProtocolError(400, "a chunk is longer than its size")
        self._line = end
        return -1

    def _read_trailers(self, data: bytes, position: int, _pieces: list[bytes]) -> int:
        if data.startswith(b"\r\n", position):
            end = position + 2
        else:
            end = data.find(b"\r\n\r\n", position) + 4
            if end < 4:
                return self._keep_line(data, position, self._max_trailers)
            match = _TRAILERS.fullmatch(data, position, end)
            if match is None or end - position > self._max_trailers:
                raise ProtocolError(400, "the trailer section is malformed or too long")
            self.trailers = split_fields(match[1])
        self.done, self.rest = True, data[end:]
        return -1

    def _keep_line(self, data: bytes, position: int, max_size: int) -> int:
        """Keep an incomplete line; refuse it if it can never become valid."""
        line = data[position:]
        known = 0 if position else max(0, self._scanned - 1)  # the bytes of earlier pieces are already checked
        if len(line) > max_size or _STRAY.search(line, known):
            raise ProtocolError(400, "a line of the chunked coding is malformed or too long")
        self._line, self._scanned = line, len(line)
        return -1


_Step = Callable[[ChunkedBody, bytes, int, list[bytes]], int]
