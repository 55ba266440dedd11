"""A response of HTTP/1, read from whatever gives its bytes (RFC 9112). Nothing here knows of sockets or of time.

The parser is a generator that yields when it needs bytes and is sent them, so that threads and event loops read alike.

What comes is taken as strictly as HTTP allows, since nobody goes on behind a mistake: there is one response, and then
the connection is closed. Everything is bounded, and whatever is wrong is one exception.
"""

import re
from collections.abc import Callable, Generator, Iterator
from typing import Final, TypeAlias, TypeVar

__all__ = ["MOST_HEAD", "MOST_INTERIM", "Broken", "Reading", "ResponseParser", "ResponseReader"]

_Result = TypeVar("_Result")
Reading: TypeAlias = Generator[None, bytes, _Result]
"""Yields when it needs the next bytes, and is sent them; none when there are no more."""

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
_length = re.compile(r"[0-9]{1,20}").fullmatch


class Broken(Exception):
    """What came is no response of HTTP/1, or not all of one."""


class ResponseReader:
    """Reads one response to a GET, first its head, then its body; see `ResponseParser`.

    `receive` gives the next bytes, and none when there are no more; what it raises is not touched.
    """

    def __init__(self, receive: Callable[[], bytes]) -> None:
        self._receive = receive
        self._parser = ResponseParser()

    def head(self) -> tuple[int, list[tuple[str, str]]]:
        """Give the status and the fields."""
        return self._read(self._parser.head())

    def body(self, *, most: int) -> bytes:
        """Give the body."""
        return self._read(self._parser.body(most=most))

    def _read(self, reading: Reading[_Result]) -> _Result:
        try:
            next(reading)
            while True:
                reading.send(self._receive())
        except StopIteration as end:
            result: _Result = end.value
            return result


class ResponseParser:
    """Parses one response to a GET, first its head, then its body."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._length = 0

    def head(self) -> Reading[tuple[int, list[tuple[str, str]]]]:
        """Give the status and the fields, one character for a byte, of the first response that is not interim.

        Raises `Broken`, also where the fields do not say where the body ends.
        """
        for _ in range(MOST_INTERIM + 1):
            yield from self._expect(b"HTTP/")
            lines = iter((yield from self._lines()))
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

    def body(self, *, most: int) -> Reading[bytes]:
        """Give the body, of `most` bytes at most, without its transfer coding; raises `Broken`."""
        if self._length == _CHUNKED:
            return (yield from self._chunks(most))
        if self._length == _UNTIL_CLOSED:
            while len(self._held) <= most and (yield from self._more()):
                pass
            if len(self._held) > most:
                raise _too_long(most)
            return bytes(self._held)
        if self._length > most:
            raise _too_long(most)
        return (yield from self._exactly(self._length))

    def _chunks(self, most: int) -> Reading[bytes]:
        body = bytearray()
        while True:
            match = _chunk_line((yield from self._line(MOST_HEAD)))
            if match is None:
                raise Broken("its chunks are broken")
            size = int(match[1], 16)
            if size == 0:
                _fields(iter((yield from self._lines())))
                return bytes(body)
            if len(body) + size > most:
                raise _too_long(most)
            body += yield from self._exactly(size)
            if (yield from self._line(2)) != b"\r":
                raise Broken("its chunks are broken")

    def _exactly(self, count: int) -> Reading[bytes]:
        while len(self._held) < count:
            if not (yield from self._more()):
                raise Broken("it was cut")
        return self._some(count)

    def _expect(self, beginning: bytes) -> Reading[None]:
        """Tell what is something else at once, for it may never end its line."""
        while len(self._held) < len(beginning) and (yield from self._more()):
            pass
        if not self._held:
            raise Broken("the connection was closed before a response came")
        if not self._held.startswith(beginning):
            raise Broken("what came is no response of HTTP")

    def _lines(self) -> Reading[list[bytes]]:
        """Take lines up to the empty one."""
        lines = []
        left = MOST_HEAD
        # 2.2: "a recipient MAY recognize a single LF as a line terminator and ignore any preceding CR".
        while line := (whole := (yield from self._line(left))).removesuffix(b"\r"):
            lines.append(line)
            left -= len(whole) + 1
        return lines

    def _line(self, most: int) -> Reading[bytes]:
        """Take a line without the LF that ends it, with which it has `most` bytes at most."""
        searched = 0
        while (end := self._held.find(b"\n", searched, most)) < 0:
            searched = len(self._held)
            if searched >= most:
                raise Broken("a line of it is too long, or all of them are")
            if not (yield from self._more()):
                raise Broken("it was cut")
        return self._some(end + 1)[:-1]

    def _some(self, most: int) -> bytes:
        """Take what is held, and at most so much."""
        piece = bytes(self._held[:most])
        del self._held[:most]
        return piece

    def _more(self) -> Reading[bool]:
        """Hold more; say whether there was any."""
        chunk = yield
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
