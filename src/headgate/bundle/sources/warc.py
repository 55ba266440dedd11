"""Exchanges from a WARC, the format of web archives: the responses to GET requests.

An archive contains responses as they were sent. Readers of a bundle cannot ask for a coding, so chunks and content
codings are removed; `compress` may add others.
"""

import re
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Final, NamedTuple

from headgate.bundle.files.payloads import Spool, SpooledPayload
from headgate.bundle.model import Exchange
from headgate.bundle.sources.codings import DECODERS, decode_chunks, limit_length, parse_codings
from headgate.bundle.sources.selection import (
    LatestPerUrl,
    MessageCallback,
    SkipExchange,
    SkipReport,
    as_complete_response,
    check_status,
    filter_headers,
    ignore_message,
    normalize_http_url,
    with_content_encoding,
    with_content_type,
)
from headgate.bundle.sources.warc_records import (
    READ_SIZE,
    DamagedArchive,
    WarcRecord,
    read_beginning,
    read_body,
    read_head,
    read_records,
    require_warcio,
)
from headgate.errors import ConfigurationError, reason_of

MAX_PAYLOAD: Final = 1 << 30
"""Maximum bytes of a body: a short one may decode to one that fills the disk."""

_MAGIC: Final = b"WARC/"
_MAX_CODINGS: Final = 3
_MAX_SHOWN: Final = 80
_FIELDS_OF_PARTS: Final = {
    "WARC-Truncated": "the archive has only its beginning",
    "WARC-Segment-Number": "in segments of several records",
}
"""Fields of an incomplete record, and what they mean."""
_CONTENT_LENGTH: Final = re.compile(r"[0-9]{1,18}")


def warc(path: Path, *, tell: MessageCallback = ignore_message) -> Iterator[Exchange]:
    """Yield the exchanges of a WARC, plain or gzip: for each URL the last response with a 2xx status, or else the last.

    A revisit gets the payload of the record that it refers to. Left out, with a message: requests other than GET over
    http or https, 304 and partial responses, bodies that are cut or in an unsupported coding, revisits of other
    archives. Of a damaged archive the part before the damage is used. Raises `ConfigurationError` for any other file;
    `MissingExtra` without the extra, and for a body in br or zstd without theirs.
    """
    require_warcio()
    try:
        with path.open("rb") as file:
            found = read_beginning(file, len(_MAGIC))
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {reason_of(error)}; name a WARC file") from None
    if found != _MAGIC:
        raise ConfigurationError(f"{path} is not a WARC: it begins with {found!r}; expected one, plain or gzip")
    return _exchanges(path, tell)


def _exchanges(path: Path, tell: MessageCallback) -> Iterator[Exchange]:
    left_out = SkipReport()
    archive = _Archive(left_out)
    damage = ""
    with path.open("rb") as file:
        try:
            for record in read_records(file):
                archive.add(record)
        except DamagedArchive as error:
            damage = str(error)
    selected = archive.select()
    yield from selected
    left_out.tell(tell, where=str(path))
    if damage:
        tell(f"{path}: the archive is damaged; only the part before the damage is used: {damage}")
    if not selected:
        tell(f"{path}: found no exchange to bundle")


class _Found(NamedTuple):
    exchange: Exchange
    payload: SpooledPayload


class _Archive:
    """The exchanges found so far."""

    def __init__(self, left_out: SkipReport) -> None:
        self._left_out = left_out
        self._spool = Spool()
        self._found: list[tuple[Exchange, set[str]]] = []
        """Each with the ids that its record shares with that of its request."""
        self._not_get: set[str] = set()
        """The ids of requests other than GET, and of their responses."""
        self._by_id_and_digest: dict[str, _Found] = {}
        """The responses that a revisit may refer to."""

    def add(self, record: WarcRecord) -> None:
        """Add a record; one that cannot be used is reported as left out."""
        if record.kind == "request":
            if record.stream.readline(READ_SIZE).partition(b" ")[0] != b"GET":
                self._not_get |= record.ids()
        elif record.kind in ("response", "revisit"):
            read = self._response if record.kind == "response" else self._revisit
            target = record.field("WARC-Target-URI")
            try:
                found = read(normalize_http_url(target), record)
            except SkipExchange as skipped:
                self._left_out.add(str(skipped), target)
                return
            self._found.append((found.exchange, record.ids()))
            for name in filter(None, (record.field("WARC-Record-ID"), record.field("WARC-Payload-Digest"))):
                self._by_id_and_digest.setdefault(name, found)

    def select(self) -> LatestPerUrl:
        """Return the exchanges except those whose request, anywhere in the archive, is not a GET."""
        selected = LatestPerUrl(self._left_out)
        for exchange, ids in self._found:
            if ids.isdisjoint(self._not_get):
                selected.add(exchange)
            else:
                self._left_out.add("not a GET request", exchange.url)
        return selected

    def _response(self, url: str, record: WarcRecord) -> _Found:
        for name, meaning in _FIELDS_OF_PARTS.items():
            if record.field(name):
                raise SkipExchange(meaning)
        status, fields = read_head(record.stream)
        check_status(status)
        codings = _codings(fields)
        sent = _sent_body(record, fields, is_coded=bool(codings))
        payload = self._spool.append(limit_length(reduce(decode_chunks, reversed(codings), sent), MAX_PAYLOAD))
        status, headers = as_complete_response(status, _headers(fields), payload.length)
        return _Found(Exchange(url, status, headers, payload), payload)

    def _revisit(self, url: str, record: WarcRecord) -> _Found:
        names = record.field("WARC-Refers-To"), record.field("WARC-Payload-Digest")
        equal = next((self._by_id_and_digest[name] for name in names if name in self._by_id_and_digest), None)
        if equal is None:
            raise SkipExchange("a revisit of what is not in this archive")
        status, fields = read_head(record.stream) if record.length else (304, [])
        if status == 304:
            status, headers = equal.exchange.status, equal.exchange.headers
        else:
            check_status(status)
            status, headers = as_complete_response(status, _headers(fields), equal.payload.length)
        return _Found(Exchange(url, status, headers, equal.payload), equal.payload)


def _sent_body(record: WarcRecord, fields: list[tuple[str, str]], *, is_coded: bool) -> Iterator[bytes]:
    """Yield the body of a response in its content coding; raises `SkipExchange` at its end if bytes are missing."""
    start = record.stream.tell()
    yield from read_body(record.stream, fields)
    while record.stream.read(READ_SIZE):
        pass
    end = record.stream.tell()
    named = {name.lower(): value for name, value in fields}
    announced = _CONTENT_LENGTH.fullmatch(named.get("content-length", ""))
    # Some archives store bodies without their chunks or coding; then the length may differ from Content-Length.
    has_length = announced is not None and not is_coded and "transfer-encoding" not in named
    if end < record.length or (has_length and end - start < int(named["content-length"])):
        raise SkipExchange("cut short")


def _codings(fields: list[tuple[str, str]]) -> list[str]:
    """Return the content codings in the order that they were applied."""
    codings = parse_codings(",".join(value for name, value in fields if name.lower() == "content-encoding"))
    for coding in codings:
        if coding not in DECODERS:
            raise SkipExchange(f"in the content coding {coding[:_MAX_SHOWN]!r}, which is not supported")
    if len(codings) > _MAX_CODINGS:
        raise SkipExchange("in too many content codings")
    return codings


def _headers(fields: list[tuple[str, str]]) -> dict[str, str]:
    headers = filter_headers(fields)
    return with_content_type(with_content_encoding(headers, None) if "content-encoding" in headers else headers)
