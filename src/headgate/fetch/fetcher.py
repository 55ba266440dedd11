"""Fetches traffic advice without an HTTP client of the caller: one GET on one connection, with asyncio and h11.

`exchange` uses a connection that the caller opens, such as the prefetch proxy. `fetch_advice` also connects, in a
thread of its own, and never blocks for longer than its timeout.
"""

import asyncio
import os
import re
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import cache
from typing import Any, Final
from urllib.parse import urlsplit

import h11

from headgate.advice.fetching import (
    ADVICE_TIMEOUT,
    NETWORK_ERROR,
    AdviceRequest,
    AdviceResponse,
    ResponseCollector,
    needs_body,
    too_late,
)
from headgate.errors import FetchError
from headgate.fetch.local_errors import is_local
from headgate.http.fields import Pairs
from headgate.http.url import is_localhost

PROTOCOL: Final = "http/1.1"
"""The protocol that is spoken, by its name in TLS (ALPN)."""

MAX_RESPONSE_HEAD_SIZE: Final = 100 * 1024
"""Bytes of the head of a response, or of its trailers."""

MAX_INTERIM_RESPONSES: Final = 100
"""Responses with a status of 1xx before the final one."""

CONNECT_DELAY: Final = 0.25
"""Seconds until the next address is tried as well (RFC 8305, section 8)."""

_READ_SIZE: Final = 1 << 16
_MAX_SPACES: Final = 1024
_LONG_SPACE: Final = re.compile(rb"[ \t]{%d}" % _MAX_SPACES)
_HEAD_END: Final = re.compile(rb"\n\r?\n")
_MARGIN: Final = 1.0
"""Seconds that a thread has to report that its time is over."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@cache
def default_context() -> ssl.SSLContext:
    """Return the TLS context with the certificate authorities of this machine, for HTTP/1.1; it is loaded once."""
    context = ssl.create_default_context()
    context.set_alpn_protocols([PROTOCOL])
    return context


def fetch_advice(
    request: AdviceRequest,
    *,
    tls: ssl.SSLContext | None = None,
    wanted: Callable[[int, Pairs], bool] = needs_body,
    timeout: float = ADVICE_TIMEOUT,
) -> AdviceResponse:
    """Send a request and return the response; `NETWORK_ERROR` without a complete head.

    Blocks for `timeout` seconds at most, whatever servers and name servers do. The body is read if its head is
    `wanted`. `tls` replaces this machine's certificate authorities, and is not changed. Raises `FetchError` for a local
    failure.
    """
    received: Future[AdviceResponse] = Future()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=_FetchLoop) as runner:
                received.set_result(runner.run(fetch(request, tls=tls, wanted=wanted, seconds=timeout)))
        except BaseException as error:
            received.set_exception(error)

    # A daemon, so that a name server that does not answer does not keep the program running.
    threading.Thread(target=run, name="headgate-advice", daemon=True).start()
    try:
        return received.result(timeout + _MARGIN)
    except TimeoutError:
        return NETWORK_ERROR._replace(failure=too_late(timeout))


async def fetch(
    request: AdviceRequest,
    *,
    tls: ssl.SSLContext | None = None,
    wanted: Callable[[int, Pairs], bool] = needs_body,
    seconds: float = ADVICE_TIMEOUT,
) -> AdviceResponse:
    """Do the same in the running event loop, with its name resolution."""

    async def connect() -> Streams:
        url = urlsplit(request.url)
        is_secure = url.scheme == "https"
        host = url.hostname or ""
        return await asyncio.open_connection(
            host,
            url.port or (443 if is_secure else 80),
            ssl=(tls or default_context()) if is_secure else None,
            server_hostname=host.removesuffix(".") if is_secure else None,
            happy_eyeballs_delay=CONNECT_DELAY,
        )

    return await exchange(connect, request, wanted=wanted, seconds=seconds)


async def exchange(
    connect: Callable[[], Awaitable[Streams]],
    request: AdviceRequest,
    *,
    wanted: Callable[[int, Pairs], bool] = needs_body,
    seconds: float = ADVICE_TIMEOUT,
    closing: Callable[[asyncio.StreamWriter], None] = lambda _: None,
) -> AdviceResponse:
    """Send a request over the connection that `connect` opens, and return the response after `seconds` at most.

    `closing` is called with the connection right before it is closed. Failures of the origin result in a response, in
    `NETWORK_ERROR` without a complete head. Raises `FetchError` for a local failure.
    """
    collector = ResponseCollector(wanted)
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await connect()
            try:
                _check_protocol(writer)
                return await _ask(reader, writer, request, collector)
            finally:
                closing(writer)
                # The response is complete or useless, so there is no need to wait for the other end.
                writer.transport.abort()
    except TimeoutError as error:
        return collector.broken(error.strerror or too_late(seconds))
    except h11.RemoteProtocolError as error:
        return collector.broken(f"invalid HTTP/1.1 response: {error}")
    except h11.LocalProtocolError as error:
        return collector.broken(f"invalid request: {error}")
    except ssl.SSLCertVerificationError as error:
        return collector.broken(f"its certificate is not trusted: {error.verify_message}")
    except (OSError, ValueError) as error:
        if is_local(error):
            raise FetchError(f"{request.url} cannot be fetched: {error}") from error
        return collector.broken(_described(error))


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: AdviceRequest, collector: ResponseCollector
) -> AdviceResponse:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_RESPONSE_HEAD_SIZE)
    for sent in (_message(request), h11.EndOfMessage()):
        writer.write(connection.send(sent) or b"")
    source = _Source(reader, connection)
    interim = 0
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            await source.feed()
        elif isinstance(event, h11.InformationalResponse):
            interim += 1
            if interim > MAX_INTERIM_RESPONSES:
                return collector.broken(f"more than {MAX_INTERIM_RESPONSES} interim responses")
        elif isinstance(event, h11.Response):
            source.has_trailers = any(name == b"transfer-encoding" for name, _ in event.headers)
            if not collector.head(event.status_code, _text(event.headers.raw_items())):
                return collector.broken()
        elif not (isinstance(event, h11.Data) and collector.add(bytes(event.data))):
            return collector.whole()


class _Source:
    """Feeds h11 with what the origin sends, except long runs of spaces where header fields are expected.

    For a field that it refuses, h11's expression takes time quadratic in a run of spaces before the value: nine seconds
    for 60,000. So heads are fed one at a time, and bodies that may be followed by trailers are examined too.
    """

    def __init__(self, reader: asyncio.StreamReader, connection: h11.Connection) -> None:
        self.has_trailers = False
        """Whether trailers may follow the body."""
        self._reader = reader
        self._connection = connection
        self._data = b""
        self._fed = b""

    async def feed(self) -> None:
        """Read if necessary, and feed. Raises `h11.RemoteProtocolError` for a long run of spaces."""
        if not self._data:
            self._data = await self._reader.read(_READ_SIZE)
        in_head = self._connection.their_state is h11.SEND_RESPONSE
        recent, size = self._fed + self._data, len(self._data)
        if in_head and (end := _HEAD_END.search(recent)):
            size = max(1, end.end() - len(self._fed))
        piece, self._data = self._data[:size], self._data[size:]
        recent = self._fed + piece
        if (in_head or self.has_trailers) and _LONG_SPACE.search(recent):
            raise h11.RemoteProtocolError(f"a run of {_MAX_SPACES} spaces")
        # The end of one head is not part of the next; a run of spaces may go on in the next piece.
        self._fed = b"" if in_head and end else recent[1 - _MAX_SPACES :]
        self._connection.receive_data(piece)


def _message(request: AdviceRequest) -> h11.Request:
    url = urlsplit(request.url)
    # RFC 9112, 9.6: "A client that does not support persistent connections MUST send the "close" connection option".
    fields = [("Host", url.netloc.rpartition("@")[2]), *request.fields, ("Connection", "close")]
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields]
    return h11.Request(method="GET", target=url.path, headers=headers)


def _text(headers: list[tuple[bytes, bytes]]) -> Pairs:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


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
    if isinstance(error, OSError) and str(error).startswith("Multiple exceptions: "):
        return "the connections to all of its addresses failed"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


class _FetchLoop(asyncio.SelectorEventLoop):
    """An event loop for one fetch in its own thread, which may block while a name is resolved.

    A program waits at exit for the threads in which event loops usually resolve names.
    """

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        """Resolve a name; localhost (RFC 6761, section 6.3) without a name server."""
        if isinstance(host, str) and is_localhost(host):
            stream = socket.SOCK_STREAM, socket.IPPROTO_TCP, ""
            return [
                (socket.AF_INET6, *stream, ("::1", port, 0, 0)),
                (socket.AF_INET, *stream, ("127.0.0.1", port)),
            ]
        return socket.getaddrinfo(host, port, **options)
