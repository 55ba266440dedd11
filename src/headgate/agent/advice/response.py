"""A response of HTTP/1, read from whatever gives its bytes (RFC 9112). Nothing here knows of sockets or of time.

What comes is taken as strictly as HTTP allows, since nobody goes on behind a mistake: there is one response, and then
the connection is closed. Everything is bounded, and whatever is wrong is one exception.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

__all__ = ["MOST_HEAD", "MOST_INTERIM", "Broken", "ResponseReader"]

MOST_HEAD: Final = 100 * 1024
"""Bytes of a head, or of trailers."""

MOST_INTERIM: Final = 100
"""Responses of 1xx before the one that counts."""

_CHUNKED: Final = -1
_UNTIL_CLOSED: Final = -2
"""Instead of a number of bytes, how the end of a body is known."""

_NO_BODY: Final = frozenset({204, 304})

# Each line is without what ends it. Of control characters only those are refused that could be taken for the end of a
# line or of a text: others are seen in practice, and harm nobody.
_status_line = re.compile(rb"HTTP/[0-9]\.[0-9] ([1-9][0-9]{2})(?: [^\0\r\v\f]*)?").fullmatch
_name = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+").fullmatch
_value = re.compile(rb"[^\0\r\v\f]*").fullmatch
_chunk_line = re.compile(rb"([0-9A-Fa-f]{1,20})[ \t]*(?:;.*)?\r", re.DOTALL).fullmatch
_length = re.compile(r"[0-9]{1,20}", re.ASCII).fullmatch


class Broken(Exception):
    """What came is no response of HTTP/1, or not all of one."""


class ResponseReader:
    """Reads one response to a GET, first its head, then its body.

    `receive` gives the next bytes, and none when there are no more; what it raises is not touched.
    """

    def __init__(self, receive: Callable[[], bytes]) -> None:
        self._receive = receive
        self._held = bytearray()
        self._length = 0

    def head(self) -> tuple[int, list[tuple[str, str]]]:
        """Give the status and the fields, one character for a byte, of the first response that is not interim.

        Raises `Broken`, also where the fields do not say where the body ends.
        """
        for _ in range(MOST_INTERIM + 1):
            self._expect(b"HTTP/")
            lines = self._lines()
            match = _status_line(next(lines, b""))
            if match is None:
                raise Broken("what came is no response of HTTP")
            status, fields = int(match[1]), _fields(lines)
            if status == 101:
                raise Broken("it switches to a protocol that nobody asked for")
            if status >= 200:
                self._length = _framing(status, fields)
                return status, fields
        raise Broken(f"more than {MOST_INTERIM} interim responses")

    def body(self, *, most: int) -> bytes:
        """Give the body, of `most` bytes at most, without its transfer coding; raises `Broken`."""
        body = bytearray()
        for piece in self._pieces(most):
            body += piece
            if len(body) > most:
                raise _too_long(most)
        return bytes(body)

    def _pieces(self, most: int) -> Iterator[bytes]:
        if self._length == _CHUNKED:
            yield from self._chunks()
        elif self._length == _UNTIL_CLOSED:
            yield self._some(most + 1)
            while self._more():
                yield self._some(most + 1)
        elif self._length > most:
            raise _too_long(most)
        else:
            yield from self._exactly(self._length)

    def _chunks(self) -> Iterator[bytes]:
        while True:
            match = _chunk_line(self._line(MOST_HEAD))
            if match is None:
                raise Broken("its chunks are broken")
            size = int(match[1], 16)
            if size == 0:
                _fields(self._lines())
                return
            yield from self._exactly(size)
            if self._line(2) != b"\r":
                raise Broken("its chunks are broken")

    def _exactly(self, count: int) -> Iterator[bytes]:
        while count:
            if not self._held and not self._more():
                raise Broken("it was cut")
            piece = self._some(count)
            count -= len(piece)
            yield piece

    def _expect(self, beginning: bytes) -> None:
        """Tell what is something else at once, for it may never end its line."""
        while len(self._held) < len(beginning) and self._more():
            pass
        if not self._held:
            raise Broken("the connection was closed before a response came")
        if not self._held.startswith(beginning):
            raise Broken("what came is no response of HTTP")

    def _lines(self) -> Iterator[bytes]:
        """Yield lines up to the empty one."""
        left = MOST_HEAD
        # 2.2: "a recipient MAY recognize a single LF as a line terminator and ignore any preceding CR".
        while line := (whole := self._line(left)).removesuffix(b"\r"):
            yield line
            left -= len(whole) + 1

    def _line(self, most: int) -> bytes:
        """Take a line without the LF that ends it, with which it has `most` bytes at most."""
        searched = 0
        while (end := self._held.find(b"\n", searched, most)) < 0:
            searched = len(self._held)
            if searched >= most:
                raise Broken("a line of it is too long, or all of them are")
            if not self._more():
                raise Broken("it was cut")
        return self._some(end + 1)[:-1]

    def _some(self, most: int) -> bytes:
        """Take what is held, and at most so much."""
        piece = bytes(self._held[:most])
        del self._held[:most]
        return piece

    def _more(self) -> bool:
        """Hold more; say whether there was any."""
        chunk = self._receive()
        self._held += chunk
        return bool(chunk)


def _fields(lines: Iterator[bytes]) -> list[tuple[str, str]]:
    """Read the lines of fields."""
    unfolded: list[bytearray] = []
    for line in lines:
        if not line.startswith((b" ", b"\t")):
            unfolded.append(bytearray(line))
        elif unfolded:
            # 5.2: "replace each received obs-fold with one or more SP octets".
            unfolded[-1] += b" " + line.lstrip(b" \t")
        else:
            raise Broken("its first field is none")
    return [_field(line) for line in unfolded]


def _field(line: bytearray) -> tuple[str, str]:
    name, colon, value = line.partition(b":")
    value = value.strip(b" \t")
    if not (colon and _name(name) and _value(value)):
        raise Broken("one of its fields is none")
    return name.decode("latin-1"), value.decode("latin-1")


def _framing(status: int, fields: list[tuple[str, str]]) -> int:
    """Give the length of the body, or how else its end is known (6.3)."""
    codings = [value.lower() for name, value in fields if name.lower() == "transfer-encoding"]
    if codings not in ([], ["chunked"]):
        raise Broken("its Transfer-Encoding is not chunked")
    lengths = {
        length.strip() for name, value in fields if name.lower() == "content-length" for length in value.split(",")
    }
    # 6.3, 5: what has two lengths, or one that is none, is to be discarded as a whole.
    if len(lengths) > 1 or not all(map(_length, lengths)):
        raise Broken("its Content-Length is none")
    if status in _NO_BODY:
        return 0
    if codings:
        return _CHUNKED
    return int(lengths.pop()) if lengths else _UNTIL_CLOSED


def _too_long(most: int) -> Broken:
    return Broken(f"longer than {most} bytes")
