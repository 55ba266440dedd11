"""Fetching an origin's traffic advice: the one request that the core asks for, with nothing in it of anybody's.

No cookie, no credentials, no proxy or `.netrc` of the environment, no redirect followed; at most five seconds and half
a megabyte, whatever answers.
"""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from headgate.advice.fetching import MOST_BYTES, NETWORK_ERROR, TIMEOUT, AdviceRequest, AdviceResponse, needs_body
from headgate.agent.library import default_library
from headgate.errors import MissingExtra
from headgate.http.lists import Pairs, lines_of, split

__all__ = ["fetch_advice"]


async def fetch_advice(
    request: AdviceRequest,
    *,
    tls: ssl.SSLContext | None = None,
    wanted: Callable[[int, Pairs], bool] = needs_body,
) -> AdviceResponse:
    """Make a request, once, and give what came of it; `NETWORK_ERROR` where that was no whole head of a response.

    The body is read where its head is `wanted`. `tls` is whom to trust instead of the usual authorities. Raises
    `MissingExtra` where there is no library to fetch with.
    """
    import anyio

    library = default_library("fetching traffic advice")
    came = NETWORK_ERROR
    # A URL that the WHATWG's parser takes may be none to the library; then there is no request to make.
    failures = (library.RequestError, library.InvalidURL, OSError, UnicodeError, _NotWhole)
    try:
        with anyio.fail_after(TIMEOUT):
            async with library.AsyncHTTPTransport(verify=tls or True, trust_env=False) as transport:
                response = await transport.handle_async_request(_sent(library, request))
                fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers.raw]
                came = AdviceResponse(response.status_code, fields, None)
                if wanted(came.status, fields):
                    came = came._replace(body=await _body(response.stream, fields))
                await response.aclose()
    except TimeoutError:
        return came._replace(failure=f"not within {TIMEOUT:g} s")
    except failures as error:
        return came._replace(failure=f"{type(error).__name__}{f': {error}' if str(error) else ''}".lstrip("_"))
    return came


class _NotWhole(Exception):
    """A body that is damaged, cut or too long."""


def _sent(library: Any, request: AdviceRequest) -> Any:
    """Make the library's request, of the core's fields and Host."""
    host = urlsplit(request.url).hostname or ""
    name = host.removesuffix(".")
    fields = [(field.encode(), value.encode("latin-1")) for field, value in request.fields]
    extensions = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), TIMEOUT)}
    if not f".{name}".endswith(".localhost"):
        return library.Request("GET", request.url, headers=fields, extensions=extensions)
    # Such names are trusted because they are this machine's; no name server is asked whether they are.
    sent = library.Request("GET", request.url, headers=fields, extensions={**extensions, "sni_hostname": name})
    sent.url = sent.url.copy_with(host="localhost")
    return sent


async def _body(chunks: AsyncIterator[bytes], fields: Pairs) -> bytes:
    """Read a body without its content codings; one that is unknown here is left, as Fetch has it."""
    body = bytearray()
    async for chunk in chunks:
        _take(body, chunk)
    codings = [coding.lower() for coding in split(lines_of(fields, "content-encoding"))]
    for coding in reversed(codings):
        body = _decoded(body, coding)
    return bytes(body)


def _decoded(body: bytearray, coding: str) -> bytearray:
    from headgate.bundle.sources.codings import READABLE, Undecodable

    # However the body begins: what is not in its coding, in one of the coding's forms, is damaged.
    for _, form in READABLE.get(coding, ()):
        try:
            decompressor = form()
        except MissingExtra:
            return body
        plain = bytearray()
        with suppress(Undecodable):
            for step in decompressor.decompress(bytes(body)):
                _take(plain, step)
            if decompressor.is_whole():
                return plain
    if READABLE.get(coding):
        raise _NotWhole(f"it is not {coding}, or not all of it")
    return body


def _take(body: bytearray, chunk: bytes) -> None:
    body += chunk
    if len(body) > MOST_BYTES:
        raise _NotWhole(f"longer than {MOST_BYTES} bytes")
