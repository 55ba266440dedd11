"""Collecting the response to an `AdviceRequest` piece by piece, whichever HTTP client receives it.

This file knows nothing of sockets or clients. It holds what every client has to do alike: a body has a maximum length,
and a content coding is undone within the same maximum.
"""

import zlib
from collections.abc import Callable
from typing import Final

from headgate.advice.fetching import MAX_BODY_BYTES, NETWORK_ERROR, AdviceResponse, needs_body
from headgate.http.fields import Pairs, lines_of

_GZIP: Final = 16 + zlib.MAX_WBITS  # what zlib calls the format with gzip's head and trailer


class ResponseCollector:
    """Collects one response: first `head`, then each piece with `add`, at the end `whole` or `broken`.

    `wanted` decides by status and fields whether the body is read.
    """

    def __init__(self, wanted: Callable[[int, Pairs], bool] = needs_body) -> None:
        self._wanted = wanted
        self._response = NETWORK_ERROR
        self._body = bytearray()

    @property
    def has_head(self) -> bool:
        """Whether the head was received."""
        return self._response.status != NETWORK_ERROR.status

    def head(self, status: int, fields: Pairs) -> bool:
        """Take the status and the fields, one character for a byte; return whether the body is to be read."""
        self._response = AdviceResponse(status, fields, None)
        return self._wanted(status, fields)

    def add(self, chunk: bytes) -> bool:
        """Take the next bytes of the body, with its content coding; return whether to read on."""
        self._body += chunk
        return len(self._body) <= MAX_BODY_BYTES

    def whole(self) -> AdviceResponse:
        """Return the response after its body has ended or became too long; one that is not intact has no body."""
        if len(self._body) > MAX_BODY_BYTES:
            return self.broken(_TOO_LONG)
        if not _is_complete(len(self._body), self._response.fields):
            return self.broken(f"the body ended after {len(self._body)} bytes, before its Content-Length")
        try:
            return self._response._replace(body=_decoded(bytes(self._body), self._response.fields))
        except (ValueError, zlib.error) as error:
            return self.broken(str(error))

    def broken(self, failure: str = "") -> AdviceResponse:
        """Return what was received without a body: the head alone, or `NETWORK_ERROR`."""
        return self._response._replace(failure=failure)


_TOO_LONG: Final = f"the body is longer than {MAX_BODY_BYTES} bytes"


def _is_complete(length: int, fields: Pairs) -> bool:
    """Return whether a body has its Content-Length: some clients do not say when a connection ended before."""
    lengths = lines_of(fields, "content-length")
    return bool(lines_of(fields, "transfer-encoding")) or not lengths or lengths[0].strip() == str(length)


def _decoded(body: bytes, fields: Pairs) -> bytes:
    """Undo the content coding gzip, which some servers use unasked; raises `ValueError` or `zlib.error`.

    An unknown coding is left, as the Fetch standard does.
    """
    codings = [line.strip(" \t").lower() for line in lines_of(fields, "content-encoding")]
    if codings not in (["gzip"], ["x-gzip"]):
        return body
    decompressor = zlib.decompressobj(_GZIP)
    plain = decompressor.decompress(body, MAX_BODY_BYTES + 1)
    if len(plain) > MAX_BODY_BYTES:
        raise ValueError(_TOO_LONG)
    if not decompressor.eof:
        raise ValueError("the gzip coding of the body is incomplete")
    return plain
