"""Build exchanges for a bundle from responses to plain GETs, within limits."""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from msgspec import Struct

from headgate.bundle.files.payloads import Spool, SpooledPayload
from headgate.bundle.model import Exchange
from headgate.bundle.sources.codings import DECODERS, DecodingError, decode_chunks
from headgate.bundle.sources.selection import (
    SkipExchange,
    check_status,
    filter_headers,
    with_content_encoding,
    with_content_type,
)
from headgate.errors import FetchError

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})

_IN_MEMORY: Final = 1 << 20
"""Bytes of a body above which it is kept on disk."""


class TooMuch(FetchError):
    """The responses together exceed the limit."""


class Limits(Struct, frozen=True):
    """Limits on what is collected."""

    max_body: int = 256 << 20
    """Bytes of one body, as sent and decoded; a longer one is left out."""
    max_total: int = 4 << 30
    """Bytes of all bodies; more is an error, since the rest would be missing."""


class ExchangeBuilder:
    """Builds exchanges; large bodies are kept in one temporary file."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._spool = Spool()
        self._total = 0

    def build(self, url: str, status: int, fields: Iterable[tuple[str, str]], chunks: Iterable[bytes]) -> Exchange:
        """Build the exchange of a response to a plain GET.

        Raises `SkipExchange` for one that a bundle should not hold, and `TooMuch` where all exceed the limit.
        """
        check_status(status)
        if status == 206:
            raise SkipExchange("a part of the resource")
        if status >= 400:
            raise SkipExchange(f"answered {status}")
        headers = filter_headers(fields)
        codings = [word.strip().lower() for word in headers.get("content-encoding", "").split(",")]
        codings = [coding for coding in codings if coding]
        if codings and all(coding in DECODERS for coding in codings):
            # Readers of the bundle may not support a coding that was not requested.
            chunks = self._within_limit(chunks)  # an endless body may decode to nothing
            for coding in reversed(codings):
                chunks = decode_chunks(chunks, coding)
            headers = with_content_encoding(headers, None)
        try:
            payload = self._keep(self._bounded(chunks))
        except DecodingError as error:
            raise SkipExchange(str(error)) from None
        return Exchange(url, status, with_content_type(headers), payload)

    def _keep(self, chunks: Iterator[bytes]) -> bytes | SpooledPayload:
        parts, size = [], 0
        for chunk in chunks:
            parts.append(chunk)
            size += len(chunk)
            if size > _IN_MEMORY:
                return self._spool.append(chain(parts, chunks))
        return b"".join(parts)

    def _within_limit(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        size = 0
        for chunk in chunks:
            size += len(chunk)
            if size > self._limits.max_body:
                raise SkipExchange(f"a body of more than {self._limits.max_body} bytes")
            yield chunk

    def _bounded(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        size = 0
        for chunk in self._within_limit(chunks):
            size += len(chunk)
            if self._total + size > self._limits.max_total:
                raise TooMuch(f"all bodies together exceed the limit of {self._limits.max_total} bytes")
            yield chunk
        self._total += size
