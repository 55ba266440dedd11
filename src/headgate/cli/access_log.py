"""Access logs: bytes to (time, identifier), line by line, whatever a line holds.

Reads the Common and Combined formats and JSON lines, plain or gzip. A line that cannot be read raises `Malformed`
with the reason; nothing else a file holds raises.
"""

import calendar
import gzip
import io
import json
import math
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Protocol, cast

import msgspec

from headgate.errors import ConfigurationError

__all__ = ["FORMATS", "LONGEST_LINE", "Malformed", "Parse", "Readable", "decompressed", "lines", "opened", "parser"]

FORMATS = ("auto", "combined", "jsonl")
"""The formats by name; auto looks at each line, and combined is Common too."""

LONGEST_LINE = 1 << 20
"""Bytes; a longer line is malformed, and no more of it is kept."""

_CHUNK = 1 << 20
_GZIP = b"\x1f\x8b"
_MONTHS = (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec")
_MONTH_NUMBERS = {name: number for number, name in enumerate(_MONTHS, start=1)}
_QUOTED = rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
_COMMON = re.compile(
    rb"(\S+) (\S+) (.*?) \[([^\]]{20,40})\] "
    + _QUOTED
    + rb" (\d{3}|-) (\d+|-)(?: "
    + _QUOTED
    + rb" "
    + _QUOTED
    + rb")?"
)
_FIELDS = {"host": 1, "ident": 2, "user": 3, "request": 5, "status": 6, "size": 7, "referer": 8, "agent": 9}
_ALIASES = {"user-agent": "agent", "user_agent": "agent", "referrer": "referer", "http_user_agent": "agent"}
_ALIASES |= {"remote_addr": "host", "remote_user": "user", "http_referer": "referer", "address": "host"}
_DATE = re.compile(rb"(\d{2})/([A-Z][a-z]{2})/(\d{4}):(\d{2}):(\d{2}):(\d{2}) ([+-])(\d{2})(\d{2})")
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?")

Parse = Callable[[bytes], tuple[float, bytes]]
"""Gives a line's time, seconds since 1970, and identifier; raises `Malformed`."""


class _Line(msgspec.Struct):
    """One JSON line, as far as it is read."""

    time: int | float | str
    identifier: str | int


_LINE = list(_Line.__annotations__.items())


class Malformed(ValueError):
    """A line that cannot be read; the message says why."""


def parser(form: str, field: str | None = None) -> Parse:
    """Give what reads lines of the format `form`: auto, combined (Common too) or jsonl.

    `field` names what identifies: for JSON lines a key, by default `identifier`; for the others a part of the line,
    by default `host`. Raises `ConfigurationError` for a part that a line does not have.
    """
    if form == "jsonl":
        return _json_lines(field or "identifier")
    if form == "combined":
        return _combined(field or "host")
    readers: dict[bool, Parse] = {}

    def parse(line: bytes) -> tuple[float, bytes]:
        is_json = line.startswith(b"{")
        reader = readers.get(is_json)
        if reader is None:
            reader = readers[is_json] = parser("jsonl" if is_json else "combined", field)
        return reader(line)

    return parse


def _combined(field: str) -> Parse:
    name = field.lower()
    group = _FIELDS.get(_ALIASES.get(name, name))
    if group is None:
        raise ConfigurationError(f"{field!r} is no part of an access log's line; use one of {', '.join(_FIELDS)}")
    match = _COMMON.match
    # Lines of one second stand together.
    moment = lru_cache(4_096)(_date)

    def parse(line: bytes) -> tuple[float, bytes]:
        found = match(line)
        if found is None:
            raise Malformed("not a line of the Common or Combined format")
        identifier: bytes | None = found[group]
        if identifier is None:
            raise Malformed(f"has no {field}")
        return moment(found[4]), identifier

    return parse


def _date(text: bytes) -> float:
    match = _DATE.fullmatch(text)
    month = _MONTH_NUMBERS.get(match[2]) if match else None
    if match is None or month is None:
        raise Malformed(f"{_shown(text)} is no time; it looks like 10/Oct/2000:13:55:36 -0700")
    day, year, hour, minute, second = (int(match[group]) for group in (1, 3, 4, 5, 6))
    # 60 is a leap second; timegm makes it the first of the next minute.
    if not (year and 1 <= day <= calendar.monthrange(year, month)[1] and hour < 24 and minute < 60 and second <= 60):
        raise Malformed(f"{_shown(text)} is no time of any day")
    east = (int(match[8]) * 60 + int(match[9])) * 60
    seconds = calendar.timegm((year, month, day, hour, minute, second))
    return float(seconds - east if match[7] == b"+" else seconds + east)


def _json_lines(field: str) -> Parse:
    if field == "time":
        raise ConfigurationError("'time' says when, not who; name another key with --identify")
    named = msgspec.defstruct("Line", _LINE, bases=(_Line,), rename={"identifier": field})
    line_type = cast("type[_Line]", named)
    decode = msgspec.json.Decoder(line_type).decode

    def parse(line: bytes) -> tuple[float, bytes]:
        try:
            record = _record(line, decode, line_type)
            moment = _time(record.time) if isinstance(record.time, str) else float(record.time)
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
            raise Malformed(f"no line of a log: {error}") from None
        if not math.isfinite(moment):
            raise Malformed("its time is not finite")
        return moment, _identifier_bytes(str(record.identifier))

    return parse


def _record(line: bytes, decode: Callable[[bytes], _Line], line_type: type[_Line]) -> _Line:
    """Read JSON; also what msgspec will not: bytes that are no UTF-8, and escapes that stand for such bytes."""
    try:
        return decode(line)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.convert(json.loads(line.decode("utf-8", "surrogateescape")), line_type)


def _identifier_bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _time(text: str) -> float:
    """Read seconds since 1970, or ISO 8601; a time without an offset is UTC."""
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return float(text)
    moment = datetime.fromisoformat(text.upper())
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


@contextmanager
def opened(file: str) -> Iterator[BinaryIO]:
    """Open a file by its path, or standard input for "-"; raises `ConfigurationError` where there is none."""
    if file == "-":
        yield sys.stdin.buffer
        return
    with ExitStack() as opened:
        try:
            source = opened.enter_context(Path(file).open("rb"))
        except OSError as error:
            said = error.strerror or str(error)
            raise ConfigurationError(f"{file}: {said}; name a log, or - for standard input") from None
        yield source


class Readable(Protocol):
    """What lines are read from."""

    def read1(self, size: int, /) -> bytes:
        """Give up to `size` bytes, those that are there at once; none at the end."""
        ...


def decompressed(file: BinaryIO) -> Readable:
    """Give the bytes inside `file`: it is gzip if it begins as gzip does, whatever it is called."""
    buffered = file if isinstance(file, io.BufferedReader) else io.BufferedReader(file)  # type: ignore[type-var]  # any raw stream will do
    if buffered.peek(2)[:2] == _GZIP:
        return gzip.GzipFile(fileobj=buffered, mode="rb")
    return buffered


def lines(file: Readable) -> Iterator[bytes]:
    """Yield the lines of `file` without their ends; of one longer than `LONGEST_LINE`, a piece longer than that.

    Raises `Malformed` when the compressed data is damaged or ends early: what came before was yielded.
    """
    rest = b""
    first = True
    for chunk in _chunks(file):
        pieces = (rest + chunk).split(b"\n")
        if first:
            pieces[0] = pieces[0].removeprefix(b"\xef\xbb\xbf")
            first = False
        # A line too long is cut to one byte more than allowed, again and again until it ends.
        rest = pieces.pop()[: LONGEST_LINE + 1]
        yield from pieces
    if rest:
        yield rest


def _chunks(file: Readable) -> Iterator[bytes]:
    try:
        # What there is at once, not all that was asked for: of damaged data the part before the damage counts.
        while chunk := file.read1(_CHUNK):
            yield chunk
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise Malformed(f"the compressed data is damaged or ends early ({error})") from None


def _shown(text: bytes) -> str:
    return repr(text.decode("utf-8", "backslashreplace"))
