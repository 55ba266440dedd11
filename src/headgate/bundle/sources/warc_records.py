"""Read the records of a WARC, and the HTTP/1 responses in them.

warcio frames the records: it accepts the variations that archives in use have. It is not used for more, because it
keeps whole chunks of any size in memory, accepts records that are cut, and writes to stderr. Responses are parsed as
leniently as browsers do, but a body that is not complete is refused.
"""

import re
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any, BinaryIO, Final, NamedTuple, Protocol

from headgate.bundle.sources.codings import DecodingError, decode_chunks
from headgate.bundle.sources.selection import SkipExchange
from headgate.errors import MissingExtra

_STATUS_LINE: Final = re.compile(rb"HTTP/[0-9](?:\.[0-9])?[ \t]+([0-9]{3})(?:[ \t].*)?\r?\n", re.DOTALL)
_CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?\r?\n", re.DOTALL)
_MAX_LINE: Final = 1 << 16
_MAX_RESPONSE_HEAD: Final = 1 << 18
READ_SIZE: Final = 1 << 16
"""Bytes read at a time."""

_MAX_RECORD_HEAD: Final = 1 << 20
"""Bytes of a record's own head, and of the empty lines before it."""


class DamagedArchive(Exception):
    """The rest of the archive cannot be read; the text is the reason."""


class RecordStream(Protocol):
    """The block of a record, as far as the archive has it."""

    def read(self, length: int, /) -> bytes:
        """Return at most so many bytes, none at the end."""

    def readline(self, length: int, /) -> bytes:
        """Return the bytes to the end of the line, at most so many."""

    def tell(self) -> int:
        """Return how many bytes were read."""


class WarcRecord(NamedTuple):
    """A record, whose block can be read until the next record is read."""

    kind: str
    """Its WARC-Type: response, request, revisit …"""
    fields: list[tuple[str, str]]
    stream: RecordStream
    length: int
    """Bytes the block should have."""

    def field(self, name: str) -> str:
        """Return the first value of a field, empty without one."""
        return next((value for found, value in self.fields if found.lower() == name.lower()), "")

    def ids(self) -> set[str]:
        """Return the ids of this record and of those captured with it: a request and its response."""
        names = ("warc-record-id", "warc-concurrent-to")
        return {value for name, value in self.fields if name.lower() in names}


def read_head(block: RecordStream) -> tuple[int, list[tuple[str, str]]]:
    """Read the status and the fields, as Latin-1; raises `SkipExchange` for anything but a response."""
    found = _STATUS_LINE.fullmatch(block.readline(_MAX_LINE))
    if found is None:
        raise SkipExchange("not an HTTP response")
    fields: list[tuple[str, str]] = []
    length = 0
    while line := block.readline(_MAX_LINE).rstrip(b"\r\n"):
        length += len(line)
        if length > _MAX_RESPONSE_HEAD:
            raise SkipExchange("a head that is too long")
        name, colon, value = line.decode("latin-1").partition(":")
        if line[:1] in b" \t" and fields:
            # A folded line continues the value before it (RFC 9112, 5.2).
            fields[-1] = (fields[-1][0], f"{fields[-1][1]} {line.decode('latin-1').strip()}")
        elif colon:
            fields.append((name.strip(), value.strip()))
    return int(found[1]), fields


def read_body(block: RecordStream, fields: list[tuple[str, str]]) -> Iterator[bytes]:
    """Yield the body after the head, without chunks; raises `SkipExchange` for a damaged one."""
    codings = [
        part.strip().lower()
        for name, value in fields
        if name.lower() == "transfer-encoding"
        for part in value.split(",")
        if part.strip()
    ]
    if not codings or codings == ["identity"]:
        return _rest(block)
    if codings != ["chunked"]:
        raise SkipExchange("a transfer coding other than chunked")
    return _dechunked(block)


def _rest(block: RecordStream) -> Iterator[bytes]:
    while data := block.read(READ_SIZE):
        yield data


def _dechunked(block: RecordStream) -> Iterator[bytes]:
    line = block.readline(_MAX_LINE)
    if _CHUNK_SIZE.fullmatch(line) is None:
        # Archives remove the chunks and leave the field.
        yield line
        yield from _rest(block)
        return
    while found := _CHUNK_SIZE.fullmatch(line):
        left = int(found[1], 16)
        if not left:
            return
        while left:
            data = block.read(min(left, READ_SIZE))
            if not data:
                raise SkipExchange("cut short")
            left -= len(data)
            yield data
        if block.readline(_MAX_LINE) not in (b"\r\n", b"\n", b""):
            raise SkipExchange("damaged within its chunks")
        line = block.readline(_MAX_LINE)
    raise SkipExchange("damaged within its chunks" if line else "cut short")


def require_warcio() -> None:
    """Raise `MissingExtra` where warcio is missing."""
    _warcio()


def read_beginning(file: BinaryIO, length: int) -> bytes:
    """Return the first bytes of an archive, decompressed if it is compressed."""
    return _Decompressed(file).read(length)


def read_records(file: BinaryIO) -> Iterator[WarcRecord]:
    """Yield the records of an archive, plain or gzip; raises `DamagedArchive`."""
    open_archive, load_failed = _warcio()
    source = _Decompressed(file)
    records = open_archive(source, no_record_parse=True)
    records.INC_RECORD = ""  # a message that it writes to stderr
    while True:
        source.allowance = _MAX_RECORD_HEAD
        try:
            found = next(records, None)
        except load_failed:
            raise DamagedArchive("the next record is invalid") from None
        if records.err_count:
            raise DamagedArchive("a record is longer than its Content-Length")
        if found is None:
            break
        if found.length is None:
            raise DamagedArchive("a record has no Content-Length")
        source.allowance = sys.maxsize
        yield WarcRecord(found.rec_type or "", found.rec_headers.headers, found.raw_stream, found.length)
        while found.raw_stream.read(READ_SIZE):
            pass
    if source.damage:
        raise DamagedArchive(source.damage)


class _Decompressed:
    """The decompressed archive as a file for warcio, with a limit on the bytes of a record's head."""

    def __init__(self, file: BinaryIO) -> None:
        self._chunks = decode_chunks(iter(partial(file.read, READ_SIZE), b""), "gzip")
        self._rest = memoryview(b"")
        self.allowance = _MAX_RECORD_HEAD
        """Bytes that may be read until it is set again."""
        self.damage = ""
        """Why the compressed bytes cannot be read on; empty if they can."""

    def read(self, length: int) -> bytes:
        """Return at most so many bytes, none at the end."""
        while not self._rest:
            try:
                chunk = next(self._chunks, None)
            except DecodingError as error:
                self.damage = str(error)
                return b""
            if chunk is None:
                return b""
            self._rest = memoryview(chunk)
        found, self._rest = bytes(self._rest[:length]), self._rest[length:]
        self.allowance -= len(found)
        if self.allowance < 0:
            raise DamagedArchive("the head of a record is too long")
        return found

    def tell(self) -> int:
        """Return a position, for messages that are not shown."""
        return 0


def _warcio() -> tuple[Any, type[Exception]]:
    try:
        from warcio.archiveiterator import WARCIterator
        from warcio.exceptions import ArchiveLoadFailed
    except ImportError:
        raise MissingExtra("warc", "reading a WARC") from None
    return WARCIterator, ArchiveLoadFailed
