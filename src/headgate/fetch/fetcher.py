"""Fetches traffic advice without an HTTP client of the caller: one GET on one connection, with asyncio's streams.

`exchange` uses a connection that the caller opens, such as the prefetch proxy. `fetch_advice` also connects, in a
thread of its own, and never blocks for longer than its timeout.
"""

import asyncio
import os
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from functools import cache, partial
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from headgate.advice.fetching import (
    ADVICE_TIMEOUT,
    NETWORK_ERROR,
    AdviceRequest,
    AdviceResponse,
    ResponseCollector,
    too_late,
)
from headgate.errors import FetchError, ProtocolError, explaining, reason_of
from headgate.fetch.destinations import AddressRules
from headgate.fetch.local_errors import is_local
from headgate.fetch.pace import call_in_thread
from headgate.http.fields import Pairs
from headgate.http.h1.body import BodyReader, ChunkedBody, LengthBody, UnboundedBody
from headgate.http.h1.response import ResponseHead, parse_response_head
from headgate.http.h1.syntax import split_fields
from headgate.http.url import is_localhost

PROTOCOL: Final = "http/1.1"
"""The protocol that is spoken, by its name in TLS (ALPN)."""

MAX_INTERIM_RESPONSES: Final = 100
"""Responses with a status of 1xx before the final one."""

CONNECT_DELAY: Final = 0.25
"""Seconds until the next address is tried as well (RFC 8305, section 8)."""

_READ_SIZE: Final = 1 << 16
"""Bytes read at once; the streams limit a head to as much. Trailers are limited to it too."""
_REQUEST_LINE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]+")
_MARGIN: Final = 1.0
"""Seconds that a thread has to report that its time is over."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@cache
def default_context() -> ssl.SSLContext:
    """Return the TLS context with the certificate authorities of this machine, for HTTP/1.1; it is loaded once."""
    context = ssl.create_default_context()
    context.set_alpn_protocols([PROTOCOL])
    return context


def tls_context(key: str, ca: str) -> ssl.SSLContext:
    """Return the context that trusts only the authorities in the PEM file `ca`, or else those of this machine.

    Raises `ConfigurationError`, which names the `key` of the file.
    """
    if not ca:
        return default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols([PROTOCOL])
    with explaining(f"{key}: {ca!r} cannot be used", "give a PEM file of certificates"):
        context.load_verify_locations(ca)
    return context


def fetch_advice(
    request: AdviceRequest,
    *,
    tls: ssl.SSLContext | None = None,
    wanted: Callable[[int, Pairs], bool] | None = None,
    timeout: float = ADVICE_TIMEOUT,
    rules: AddressRules | None = None,
) -> AdviceResponse:
    """Send a request and return the response; `NETWORK_ERROR` without a complete head.

    Blocks for `timeout` seconds at most, whatever servers and name servers do. The body is read if its head is
    `wanted`. `tls` replaces this machine's certificate authorities, and is not changed. With `rules`, a host with a
    forbidden address is not connected to. Raises `FetchError` for a local failure.
    """

    def run() -> AdviceResponse:
        with asyncio.Runner(loop_factory=partial(_FetchLoop, rules)) as runner:
            return runner.run(exchange(partial(_connect, request.url, tls), request, wanted=wanted, seconds=timeout))

    try:
        return call_in_thread(run, timeout + _MARGIN)
    except TimeoutError:
        return NETWORK_ERROR._replace(failure=too_late(timeout))


async def _connect(address: str, tls: ssl.SSLContext | None) -> Streams:
    url = urlsplit(address)
    is_secure = url.scheme == "https"
    host = url.hostname or ""
    loop = asyncio.get_running_loop()
    if isinstance(loop, _FetchLoop):
        loop.check(host, [host] if ":" in host or host.rpartition(".")[2].isdigit() else ())
    return await asyncio.open_connection(
        host,
        url.port or (443 if is_secure else 80),
        ssl=(tls or default_context()) if is_secure else None,
        server_hostname=host.removesuffix(".") if is_secure else None,
        happy_eyeballs_delay=CONNECT_DELAY,
    )


async def exchange(
    connect: Callable[[], Awaitable[Streams]],
    request: AdviceRequest,
    *,
    wanted: Callable[[int, Pairs], bool] | None = None,
    seconds: float = ADVICE_TIMEOUT,
    closing: Callable[[asyncio.StreamWriter], None] = lambda _: None,
) -> AdviceResponse:
    """Send a request over the connection that `connect` opens, and return the response after `seconds` at most.

    `closing` is called with the connection right before it is closed. Failures of the origin result in a response, in
    `NETWORK_ERROR` without a complete head. Raises `FetchError` for a local failure.
    """
    collector = ResponseCollector(wanted or request.needs_body, cuts=request.any_type)
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await connect()
            try:
                _check_protocol(writer)
                writer.write(_message(request))
                return await _receive(reader, collector)
            finally:
                closing(writer)
                # The response is complete or useless, so there is no need to wait for the other end.
                writer.transport.abort()
    except TimeoutError as error:
        return collector.broken(error.strerror or too_late(seconds))
    except (ProtocolError, EOFError, asyncio.LimitOverrunError) as error:
        return collector.broken(f"invalid HTTP/1.1 response: {error}")
    except ssl.SSLCertVerificationError as error:
        return collector.broken(f"its certificate is not trusted: {error.verify_message}")
    except (OSError, ValueError) as error:
        if is_local(error):
            raise FetchError(f"{request.url} cannot be fetched: {error}") from error
        return collector.broken(_described(error))


async def _receive(reader: asyncio.StreamReader, collector: ResponseCollector) -> AdviceResponse:
    head = await _final_head(reader)
    fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in split_fields(head.lines)]
    if not collector.head(head.status, fields):
        return collector.broken()
    body = _body_of(head)
    while not body.done:
        data = await reader.read(_READ_SIZE)
        if not data and isinstance(body, UnboundedBody):
            break
        if not data:
            return collector.broken("the connection ended in the body")
        for piece in body.feed(data):
            if not collector.add(piece):
                return collector.whole()
    return collector.whole()


async def _final_head(reader: asyncio.StreamReader) -> ResponseHead:
    for _ in range(MAX_INTERIM_RESPONSES + 1):
        head = parse_response_head(await reader.readuntil(b"\r\n\r\n"))
        if head.status >= 200:
            return head
        if head.status == 101:
            raise ProtocolError(502, "it switches protocols without being asked to")
    raise ProtocolError(502, f"more than {MAX_INTERIM_RESPONSES} interim responses")


def _body_of(head: ResponseHead) -> BodyReader:
    if not head.has_body(b"GET"):
        return LengthBody(0)
    if head.chunked:
        return ChunkedBody(framed=False, max_trailers=_READ_SIZE)
    return UnboundedBody(framed=False) if head.length < 0 else LengthBody(head.length)


def _message(request: AdviceRequest) -> bytes:
    url = urlsplit(request.url)
    # RFC 9112, 9.6: "A client that does not support persistent connections MUST send the "close" connection option".
    fields = [("Host", url.netloc.rpartition("@")[2]), *request.fields, ("Connection", "close")]
    target = f"{url.path}?{url.query}" if url.query else url.path
    lines = [f"GET {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields)]
    if not (lines[0].isascii() and all(map(_REQUEST_LINE.fullmatch, lines))):
        raise ValueError("invalid request")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _check_protocol(writer: asyncio.StreamWriter) -> None:
    tls = writer.get_extra_info("ssl_object")
    chosen = tls and tls.selected_alpn_protocol()
    if chosen not in {None, PROTOCOL}:
        # Only a caller's context can offer another; it is not changed, since other threads may use it.
        raise FetchError(f"the TLS context offers {chosen}, and advice is fetched over {PROTOCOL}; offer that alone")


def _described(error: Exception) -> str:
    """Return the system's text of an error, without what asyncio adds."""
    number = getattr(error, "errno", None)
    if isinstance(number, int) and number > 0 and not isinstance(error, ssl.SSLError):
        return os.strerror(number)
    return reason_of(error) or type(error).__name__


class _FetchLoop(asyncio.SelectorEventLoop):
    """An event loop for one fetch in its own thread, which may block while a name is resolved.

    A program waits at exit for the threads in which event loops usually resolve names. All addresses of a host are
    checked by `rules`, and no other is connected to.
    """

    def __init__(self, rules: AddressRules | None) -> None:
        super().__init__()
        self._rules = rules

    def check(self, host: str, addresses: Iterable[str]) -> None:
        """Raise `OSError` if an address of a host is forbidden; the port does not matter."""
        for address in addresses:
            rules, plain = self._rules, ip_address(address.partition("%")[0])
            if rules is not None and (why := rules.forbids(plain, 0)) is not None:
                raise OSError(f"{host} is at {address}, which is {why}")

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        """Resolve a name; localhost (RFC 6761, section 6.3) without a name server."""
        if isinstance(host, str) and is_localhost(host):
            stream = socket.SOCK_STREAM, socket.IPPROTO_TCP, ""
            found: list[Any] = [
                (socket.AF_INET6, *stream, ("::1", port, 0, 0)),
                (socket.AF_INET, *stream, ("127.0.0.1", port)),
            ]
        else:
            found = socket.getaddrinfo(host, port, **options)
        self.check(str(host), [sockaddr[0] for *_, sockaddr in found])
        return found
