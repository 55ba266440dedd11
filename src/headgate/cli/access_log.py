"""Access logs: parsed to (time, identifier), and stored by identifier.

The formats are Common, Combined and JSON lines, plain or gzip. `Malformed` is raised for a line that cannot be parsed,
with the reason; no content of a file raises another exception.
"""

import calendar
import gzip
import io
import json
import math
import re
import sys
import zlib
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from headgate.cli.output import decode_with_escapes, printable
from headgate.errors import ConfigurationError, explaining, fail_if

FORMATS = ("auto", "combined", "jsonl")
"""The formats by name; auto detects the format of each line, and combined includes Common."""
MAX_LINE_SIZE = 1 << 20
"""Maximum bytes of a line; a longer line is malformed, and its rest is skipped."""
_SHOWN = 80
"""Bytes of a malformed line that are shown."""
_CHUNK = 1 << 20
_GZIP = b"\x1f\x8b"
_MONTHS = (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec")
_MONTH_NUMBERS = {name: number for number, name in enumerate(_MONTHS, start=1)}
_TEXT = rb'[^"\\]*+(?:\\.[^"\\]*+)*+'
_PARTS = {
    b"host": rb"\S+",
    b"ident": rb"\S+",
    b"user": rb".*?",
    b"time": rb"[^\]]{20,40}",
    b"request": _TEXT,
    b"status": rb"\d{3}|-",
    b"size": rb"\d+|-",
    b"referer": _TEXT,
    b"agent": _TEXT,
}
_COMMON = rb'%(host)b %(ident)b %(user)b \[%(time)b\] "%(request)b" %(status)b %(size)b'
_COMBINED = _COMMON + rb'(?: "%(referer)b" "%(agent)b")?'
_ALIASES = {"user-agent": "agent", "user_agent": "agent", "referrer": "referer", "http_user_agent": "agent"}
_ALIASES |= {"remote_addr": "host", "remote_user": "user", "http_referer": "referer", "address": "host"}
_DATE = re.compile(rb"(\d{2})/([A-Z][a-z]{2})/(\d{4}):(\d{2}):(\d{2}):(\d{2}) ([+-])(\d{2})(\d{2})")
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?")
Request = tuple[float, bytes]
"""A request's time, in seconds since 1970, and its identifier."""


Parser = Callable[[bytes], Request | None]
"""Parses one line, without its line end; None for a request that does not count. Raises `Malformed`."""


class _Line(msgspec.Struct):
    """The keys that are used of a JSON line; `client`, `domain` and `reason` are those of a gate's access log."""

    time: int | float | str
    identifier: str | int | None = None
    client: Any = None
    domain: Any = None
    reason: Any = None


_LINE: list[Any] = [(name, kind, None) for name, kind in _Line.__annotations__.items()]
_LINE[0] = _LINE[0][:2]  # the time has no default
_NOT_DECIDED = frozenset({"advice", "local", "malformed", "limit", "client_limit", "denied", "redirect"})
"""Reasons of a gate for answers to requests that no rule sees."""


class Malformed(ValueError):
    """A line that cannot be parsed; the message has the reason."""


def parser(form: str, field: str | None = None, domain: str | None = None) -> Parser:
    """Return the parser of the format `form`: auto, combined (includes Common) or jsonl.

    `field` names the identifier: for JSON lines a key, by default `identifier`, or `client` where that is null; for the
    others a field of the line, by default `host`. With `domain`, only requests of that domain count. Raises
    `ConfigurationError` for an unknown field.
    """
    if form == "auto":  # lines that begin with a brace are JSON, all others are Common or Combined
        of = cache(lambda first: parser("jsonl" if first == b"{" else "combined", field, domain))
        return lambda line: of(line[:1])(line)
    if form == "jsonl":
        return _JsonLines(field or "identifier", domain).parse
    fail_if(domain is not None, "--domain requires JSON lines; the Combined format does not name domains")
    return _Combined(field or "host").parse


class _Combined:
    """The Common and Combined formats."""

    def __init__(self, field: str) -> None:
        name = field.lower()
        name = _ALIASES.get(name, name)
        if name.encode() not in _PARTS or name == "time":
            fields = ", ".join(part.decode() for part in _PARTS if part != b"time")
            raise ConfigurationError(f"unknown field {field!r} of an access log; expected one of {fields}")
        self._field = field
        groups = {
            part: (b"(%b)" if part in {b"time", name.encode()} else b"(?:%b)") % pattern
            for part, pattern in _PARTS.items()
        }
        form = _COMBINED if name in {"referer", "agent"} else _COMMON
        self._pattern = re.compile(form % groups)
        self._is_before_time = name in {"host", "ident", "user"}
        # Consecutive lines often have the same second.
        self._seconds = lru_cache(4_096)(_date)

    def parse(self, line: bytes) -> Request:
        found = self._pattern.match(line)
        if found is None:
            raise Malformed("not a line of the Common or Combined format")
        identifier, date = found.groups() if self._is_before_time else reversed(found.groups())
        if identifier is None:
            raise Malformed(f"the field {self._field} is missing")
        return self._seconds(date), identifier


def _date(text: bytes) -> float:
    match = _DATE.fullmatch(text)
    month = _MONTH_NUMBERS.get(match[2]) if match else None
    if match is None or month is None:
        raise Malformed(f"invalid time {_shown(text)}; expected a form such as 10/Oct/2000:13:55:36 -0700")
    day, year, hour, minute, second = (int(match[group]) for group in (1, 3, 4, 5, 6))
    # 60 is a leap second; timegm makes it the first of the next minute.
    if not (year and 1 <= day <= calendar.monthrange(year, month)[1] and hour < 24 and minute < 60 and second <= 60):
        raise Malformed(f"invalid time {_shown(text)}: a number is out of range")
    east = (int(match[8]) * 60 + int(match[9])) * 60
    seconds = calendar.timegm((year, month, day, hour, minute, second))
    return float(seconds - east if match[7] == b"+" else seconds + east)


class _JsonLines:
    """JSON lines with a time and an identifier."""

    def __init__(self, field: str, domain: str | None) -> None:
        self._field = field
        self._domain = domain
        fail_if(field == "time", "'time' cannot identify a client; name another key with --identify")
        keys = {name: f"({name})" if name == field else name for name in _Line.__struct_fields__}
        named = msgspec.defstruct("Line", _LINE, bases=(_Line,), rename=keys | {"identifier": field})
        self._type = cast("type[_Line]", named)
        self._decoder = msgspec.json.Decoder(self._type)

    def parse(self, line: bytes) -> Request | None:
        try:
            return self._request(_record(line, self._decoder, self._type))
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
            raise Malformed(f"not a JSON line of a log: {error}") from None

    def _request(self, record: _Line) -> Request | None:
        moment = _time(record.time) if isinstance(record.time, str) else float(record.time)
        if not math.isfinite(moment):
            raise Malformed("the time is not finite")
        if self._domain is not None and record.domain != self._domain:
            return None
        identifier = record.identifier
        if identifier is None:  # of a gate, for a request that matches no domain
            if isinstance(record.reason, str) and record.reason in _NOT_DECIDED:
                return None
            identifier = record.client
            if not isinstance(identifier, str):
                raise Malformed(f"the key {self._field} is missing")
        return moment, _identifier_bytes(str(identifier))


def _record(line: bytes, decoder: msgspec.json.Decoder[_Line], line_type: type[_Line]) -> _Line:
    """Decode JSON, including what msgspec rejects: invalid UTF-8, and escapes of surrogates."""
    try:
        return decoder.decode(line)
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
    """Parse seconds since 1970, or ISO 8601; a time without an offset is UTC."""
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return float(text)
    moment = datetime.fromisoformat(text.upper())
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


@contextmanager
def open_log(file: str) -> Iterator[BinaryIO]:
    """Open a file by its path, or standard input for "-"; raises `ConfigurationError` for an unreadable file."""
    if file == "-":
        yield sys.stdin.buffer
        return
    with explaining(file, "name a log, or - for standard input"):
        source = Path(file).open("rb")  # noqa: SIM115  # errors of reading it are not those of opening it
    with source:
        yield source


def decompressed(file: BinaryIO) -> io.BufferedIOBase:
    """Return the content of `file`, decompressed if it begins as gzip does, whatever its name."""
    buffered = file if isinstance(file, io.BufferedReader) else io.BufferedReader(file)  # type: ignore[type-var]  # any raw stream will do
    if buffered.peek(2)[:2] == _GZIP:
        return gzip.GzipFile(fileobj=buffered, mode="rb")
    return buffered


def lines(file: io.BufferedIOBase) -> Iterator[bytes]:
    """Yield the lines of `file` one by one, as `batches` does."""
    return chain.from_iterable(batches(file))


def batches(file: io.BufferedIOBase) -> Iterator[list[bytes]]:
    """Yield the lines of `file` in lists, without line ends; a line longer than `MAX_LINE_SIZE` is truncated.

    Raises `Malformed` when the compressed data is damaged or ends early, after yielding the lines before.
    """
    rest = b""
    first = True
    for chunk in _chunks(file):
        pieces = (rest + chunk).split(b"\n")
        if first:
            pieces[0] = pieces[0].removeprefix(b"\xef\xbb\xbf")
            first = False
        # A line that is too long is truncated to one byte more than allowed.
        rest = pieces.pop()[: MAX_LINE_SIZE + 1]
        yield pieces
    if rest:
        yield [rest]


def _chunks(file: io.BufferedIOBase) -> Iterator[bytes]:
    try:
        # `read1` returns what is available: if the data is damaged, the part before the damage is still used.
        while chunk := file.read1(_CHUNK):
            yield chunk
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise Malformed(f"the compressed data is damaged or ends early ({error})") from None


def _shown(text: bytes) -> str:
    return repr(text.decode("utf-8", "backslashreplace"))


class RequestLog:
    """The times of requests by identifier, in eight bytes each."""

    def __init__(self) -> None:
        self.malformed = 0
        """Lines that could not be parsed."""
        self.first_malformed = ""
        """The error of the first malformed line; empty if there is none."""
        self.damage = ""
        """The reason why reading stopped before the end of the log; empty if it did not."""
        self._times: defaultdict[bytes, array[float]] = defaultdict(lambda: array("d"))

    def __len__(self) -> int:
        """The number of requests."""
        return sum(map(len, self._times.values()))

    @property
    def has_whole_seconds(self) -> bool:
        """Whether there are requests, and no time has a fraction of a second."""
        return bool(self._times) and all(moment.is_integer() for moment in chain.from_iterable(self._times.values()))

    @property
    def identifiers(self) -> int:
        """The number of identifiers."""
        return len(self._times)

    def read(
        self, source: Iterable[Sequence[bytes]], parser: Parser, report: Callable[[str], None] | None = None
    ) -> None:
        """Add all requests in the lines of `source`; call `report` with the error of each malformed line.

        If the compressed data is damaged, its rest counts as one malformed line, and `damage` has the reason.
        """
        number, times = 0, self._times
        try:
            for number, line in enumerate(chain.from_iterable(source), start=1):
                text = line.strip()
                try:
                    if len(text) > MAX_LINE_SIZE:
                        raise Malformed(f"longer than {MAX_LINE_SIZE} bytes")
                    if text and (request := parser(text)) is not None:
                        times[request[1]].append(request[0])
                except Malformed as error:
                    self.malformed += 1
                    sentence = f"line {number}: {error}: {printable(decode_with_escapes(text[:_SHOWN]))}"
                    self.first_malformed = self.first_malformed or sentence
                    if report is not None:
                        report(sentence)
        except Malformed as error:
            self.malformed += 1
            self.damage = f"after line {number} {error}; the lines before it are counted"

    def __iter__(self) -> Iterator[tuple[bytes, Sequence[float]]]:
        """Yield each identifier, in the order first seen, with the times of its requests in the order of the log."""
        return iter(self._times.items())
