"""The records of a WARC, one after another, read by warcio within bounds.

warcio knows how the records of all the archives out there are framed. Its other services are not asked for: it would
hold whole chunks of any size, take what is cut short for all there is, and write to stderr.
"""

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any, BinaryIO, Final, NamedTuple, Protocol

from headgate.bundle.sources.codings import DecodingError, decode_chunks
from headgate.bundle.sources.http_message import Block
from headgate.errors import MissingExtra

_STEP: Final = 1 << 16
_MOST_HEAD: Final = 1 << 20
"""Bytes of a record's own head, and of the empty lines before it."""


class DamagedArchive(Exception):
    """The archive cannot be read on; the text says why."""


class Stream(Block, Protocol):
    """The block of a record: of all that it holds, as much as there is."""

    def tell(self) -> int:
        """Say how many bytes were read."""


class WarcRecord(NamedTuple):
    """A record, whose block can be read until the next record is asked for."""

    kind: str
    """Its WARC-Type: response, request, revisit …"""
    fields: list[tuple[str, str]]
    stream: Stream
    length: int
    """Bytes the block should have."""

    def field(self, name: str) -> str:
        """Give the first value of a field, empty without one."""
        return next((value for found, value in self.fields if found.lower() == name.lower()), "")

    def names(self) -> set[str]:
        """Give its name and those of the records that were made at once with it: a request and its response."""
        ours = ("warc-record-id", "warc-concurrent-to")
        return {value for name, value in self.fields if name.lower() in ours}


def require_warcio() -> None:
    """Raise `MissingExtra` where warcio is missing."""
    _warcio()


def read_beginning(file: BinaryIO, length: int) -> bytes:
    """Give the first bytes of an archive, unpacked if they are packed."""
    return _Plain(file).read(length)


def read_records(file: BinaryIO) -> Iterator[WarcRecord]:
    """Yield the records of an archive, plain or gzip; raises `DamagedArchive`."""
    open_archive, load_failed = _warcio()
    source = _Plain(file)
    records = open_archive(source, no_record_parse=True)
    records.INC_RECORD = ""  # of what it writes to stderr
    while True:
        source.budget = _MOST_HEAD
        try:
            found = next(records, None)
        except load_failed:
            raise DamagedArchive("no record begins where one should") from None
        if records.err_count:
            raise DamagedArchive("a record goes on where it should have ended")
        if found is None:
            break
        if found.length is None:
            raise DamagedArchive("a record without a length")
        source.budget = sys.maxsize
        yield WarcRecord(found.rec_type or "", found.rec_headers.headers, found.raw_stream, found.length)
        while found.raw_stream.read(_STEP):
            pass
    if source.damage:
        raise DamagedArchive(source.damage)


class _Plain:
    """The archive's bytes as warcio wants them: unpacked, and never more for a record's head than one may have."""

    def __init__(self, file: BinaryIO) -> None:
        self._chunks = decode_chunks(iter(partial(file.read, _STEP), b""), "gzip")
        self._rest = memoryview(b"")
        self.budget = _MOST_HEAD
        """Bytes that may be read until it is set again."""
        self.damage = ""
        """Why the bytes ended before their end; empty if they did not."""

    def read(self, length: int) -> bytes:
        """Give at most so many bytes, none at the end."""
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
        self.budget -= len(found)
        if self.budget < 0:
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
