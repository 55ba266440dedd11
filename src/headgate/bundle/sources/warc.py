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
from headgate.bundle.sources.codings import DECODERS, DecodingError, decode_chunks
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
    DamagedArchive,
    WarcRecord,
    body,
    read_beginning,
    read_head,
    read_records,
    require_warcio,
)
from headgate.errors import ConfigurationError

MAX_PAYLOAD: Final = 1 << 30
"""Maximum bytes of a body: a short one may decode to one that fills the disk."""

_MAGIC: Final = b"WARC/"
_STEP: Final = 1 << 16
_MAX_CODINGS: Final = 3
_MAX_SHOWN: Final = 80
_PARTS: Final = {
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
        raise ConfigurationError(f"cannot read {path}: {error.strerror}; name a WARC file") from None
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
                archive.take(record)
        except DamagedArchive as error:
            damage = str(error)
    chosen = archive.chosen()
    yield from chosen
    left_out.tell(tell, where=str(path))
    if damage:
        tell(f"{path}: the archive is damaged, and only what came before counts: {damage}")
    if not chosen:
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
        """Each with the names that its request's record would have in common with its own."""
        self._not_get: set[str] = set()
        self._known: dict[str, _Found] = {}
        """By record and by digest: what a revisit may be found equal to."""

    def take(self, record: WarcRecord) -> None:
        """Take one record more."""
        if record.kind == "request":
            if record.stream.readline(_STEP).partition(b" ")[0] != b"GET":
                self._not_get |= record.names()
        elif record.kind in ("response", "revisit"):
            target = record.field("WARC-Target-URI")
            try:
                found = (self._response if record.kind == "response" else self._revisit)(
                    normalize_http_url(target), record
                )
            except SkipExchange as unfit:
                self._left_out.add(str(unfit), target)
                return
            self._found.append((found.exchange, record.names()))
            for name in filter(None, (record.field("WARC-Record-ID"), record.field("WARC-Payload-Digest"))):
                self._known.setdefault(name, found)

    def chosen(self) -> LatestPerUrl:
        """Give the exchanges whose request was a GET, as far as anything is known of it; it may come after them."""
        chosen = LatestPerUrl(self._left_out)
        for exchange, names in self._found:
            if names.isdisjoint(self._not_get):
                chosen.add(exchange)
            else:
                self._left_out.add("not a GET request", exchange.url)
        return chosen

    def _response(self, url: str, record: WarcRecord) -> _Found:
        for name, why in _PARTS.items():
            if record.field(name):
                raise SkipExchange(why)
        status, fields = read_head(record.stream)
        check_status(status)
        codings = _codings(fields)
        sent = _sent(record, fields, is_coded=bool(codings))
        payload = self._spool.append(_bounded(reduce(decode_chunks, reversed(codings), sent)))
        status, headers = as_complete_response(status, _headers(fields), payload.length)
        return _Found(Exchange(url, status, headers, payload), payload)

    def _revisit(self, url: str, record: WarcRecord) -> _Found:
        names = record.field("WARC-Refers-To"), record.field("WARC-Payload-Digest")
        equal = next((self._known[name] for name in names if name in self._known), None)
        if equal is None:
            raise SkipExchange("a revisit of what is not in this archive")
        status, fields = read_head(record.stream) if record.length else (304, [])
        if status == 304:
            status, headers = equal.exchange.status, equal.exchange.headers
        else:
            check_status(status)
            status, headers = as_complete_response(status, _headers(fields), equal.payload.length)
        return _Found(Exchange(url, status, headers, equal.payload), equal.payload)


def _sent(record: WarcRecord, fields: list[tuple[str, str]], *, is_coded: bool) -> Iterator[bytes]:
    """Yield the body of a response in its content coding; `SkipExchange`, at its end, where bytes are missing."""
    start = record.stream.tell()
    yield from body(record.stream, fields)
    while record.stream.read(_STEP):
        pass
    end = record.stream.tell()
    named = {name.lower(): value for name, value in fields}
    announced = _CONTENT_LENGTH.fullmatch(named.get("content-length", ""))
    # What came in chunks or a coding may have been stored without, and then it has any length.
    is_told = announced is not None and not is_coded and "transfer-encoding" not in named
    if end < record.length or (is_told and end - start < int(named["content-length"])):
        raise SkipExchange("cut short")


def _bounded(chunks: Iterator[bytes]) -> Iterator[bytes]:
    length = 0
    try:
        for chunk in chunks:
            length += len(chunk)
            if length > MAX_PAYLOAD:
                raise SkipExchange(f"a body of more than {MAX_PAYLOAD} bytes")
            yield chunk
    except DecodingError as error:
        raise SkipExchange(str(error)) from None


def _codings(fields: list[tuple[str, str]]) -> list[str]:
    """Give the content codings in the order that they were applied."""
    value = ",".join(value for name, value in fields if name.lower() == "content-encoding")
    codings = [coding.strip().lower() for coding in value.split(",") if coding.strip()]
    for coding in codings:
        if coding not in DECODERS:
            raise SkipExchange(f"in the content coding {coding[:_MAX_SHOWN]!r}, which is not supported")
    if len(codings) > _MAX_CODINGS:
        raise SkipExchange("in too many content codings")
    return codings


def _headers(fields: list[tuple[str, str]]) -> dict[str, str]:
    headers = filter_headers(fields)
    return with_content_type(with_content_encoding(headers, None) if "content-encoding" in headers else headers)
