"""The advice fetcher against scripted servers."""

import asyncio
import errno
import queue
import socket
import ssl
import threading
from contextlib import suppress
from ipaddress import ip_network

import pytest
import trustme

from headgate.advice import AgentIdentity
from headgate.advice.fetching import (
    NETWORK_ERROR,
    AdviceRequest,
    AdviceResponse,
    advice_request,
    interpret,
)
from headgate.advice.parser import UNREACHABLE
from headgate.errors import FetchError
from headgate.fetch import fetcher
from headgate.fetch.destinations import AddressRules
from headgate.fetch.fetcher import fetch_advice
from tests.quotes import quotes

IDENTITY = AgentIdentity(["ExampleProxy", "prefetch-proxy", "*"])
HALF = b'[{"user_agent":"*","fraction":0.5}]'
URL = "http://127.0.0.1:PORT/"
TYPE = b"Content-Type: application/trafficadvice+json\r\n"


def answer(body: bytes = HALF, *, status: bytes = b"200 OK", fields: bytes = TYPE, length: int | None = None) -> bytes:
    length = len(body) if length is None else length
    return b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s" % (status, fields, length, body)


class Server:
    """Sends `said` to each client; `stays` open, `resets` the connection or `hears_out` what else is said."""

    port = 0

    def __init__(self, said: bytes, *, stays: bool = False, resets: bool = False, hears_out: bool = False) -> None:
        self.said = said
        self.hears_out = hears_out
        self.stays = stays
        self.resets = resets
        self.heard: list[bytes] = []
        self._serving: set[asyncio.Task[None]] = set()

    async def speak(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self.said)
        await writer.drain()
        if self.stays:
            await reader.read()
        if self.resets:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            self.heard.append(await reader.readuntil(b"\r\n\r\n"))
            await self.speak(reader, writer)
            if self.hears_out:
                self.heard.append(await reader.read())
        writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()

    async def over(self) -> None:
        """Wait until everybody who came was served."""
        while self._serving:
            await self._serving.pop()


def fetched(
    server: Server,
    *,
    host: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
    trust: ssl.SSLContext | None = None,
    url: str | None = None,
    fields: tuple[tuple[str, str], ...] = (),
    **options: object,
) -> AdviceResponse:
    async def fetch() -> AdviceResponse:
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
        async with listening:
            server.port = listening.sockets[0].getsockname()[1]
            request = advice_request(f"{'https' if tls else 'http'}://{host}:{server.port}", IDENTITY)
            if url is not None:
                request = AdviceRequest(url.replace("PORT", str(server.port)), fields)
            response = await asyncio.to_thread(fetch_advice, request, tls=trust, **options)
            await server.over()
            return response

    return asyncio.run(fetch())


SOON = 0.3
"""Seconds, for an agent that is to give up."""


def test_the_request_is_a_plain_get(monkeypatch, tmp_path):
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login user password secret\ndefault login user password secret\n")
    for name, value in {
        "NETRC": str(netrc),
        "HOME": str(tmp_path),
        "HTTP_PROXY": "http://127.0.0.1:9",
        "ALL_PROXY": "http://127.0.0.1:9",
    }.items():
        monkeypatch.setenv(name, value)
    server = Server(answer(), hears_out=True)
    response = fetched(server)
    assert (response.status, response.body, response.failure) == (200, HALF, "")
    assert ("content-type", "application/trafficadvice+json") in response.fields
    assert b"".join(server.heard).decode() == (
        "GET /.well-known/traffic-advice HTTP/1.1\r\n"
        f"Host: 127.0.0.1:{server.port}\r\n"
        "Accept: application/trafficadvice+json\r\n"
        "Accept-Encoding: identity\r\n"
        "User-Agent: ExampleProxy\r\n"
        "Connection: close\r\n"
        "\r\n"
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "a.example"])
def test_a_forbidden_address_is_not_connected_to(monkeypatch, host):
    """Also one that a name has beside others."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 1)) for each in ("93.184.216.34", "10.0.0.1")]
    if host == "a.example":
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_given, **_options: found)
    response = fetched(Server(answer()), url=f"http://{host}:PORT/", rules=AddressRules())
    assert response.status == 0
    assert "which is loopback" in response.failure or "10.0.0.1, which is private" in response.failure
    if host == "127.0.0.1":
        assert fetched(Server(answer()), rules=AddressRules([ip_network("127.0.0.1/32")])).status == 200


def test_the_request_has_the_given_fields():
    server = Server(answer(status=b"304 Not Modified"), hears_out=True)
    fields = (("If-None-Match", '"a"'), ("If-Modified-Since", "Sat, 01 Jan 2000 00:00:00 GMT"), ("User-Agent", "é"))
    fetched(server, url="http://127.0.0.1:PORT/.well-known/traffic-advice?a=b", fields=fields)
    assert (
        b"".join(server.heard)
        == (
            b"GET /.well-known/traffic-advice?a=b HTTP/1.1\r\n"
            b"Host: 127.0.0.1:%d\r\n"
            b'If-None-Match: "a"\r\n'
            b"If-Modified-Since: Sat, 01 Jan 2000 00:00:00 GMT\r\n"
            b"User-Agent: \xe9\r\n"
            b"Connection: close\r\n"
            b"\r\n"
        )
        % server.port
    )


@pytest.mark.parametrize(
    ("url", "fields"),
    [
        (URL, (("User-Agent", "a\r\nCookie: b"),)),
        (URL, (("User-Agent", "a\nb"),)),
        (URL, (("User-Agent", "a\0"),)),
        (URL, (("User-Agent", "\u20ac"),)),
        (URL, (("A\r\nB", "c"),)),
        ("http://127.0.0.1:PORT/\x00", ()),
        ("http://127.0.0.1:PORT/\u20ac", ()),
        ("http://127.0.0.1:PORT/\xe9", ()),
        ("http://127.0.0.1:99999/", ()),
        ("http://[::1/", ()),
        ("https://" + "a" * 300, ()),
    ],
)
def test_an_invalid_request_is_not_sent(url, fields):
    with socket.create_server(("127.0.0.1", 0)) as server:
        response = fetch_advice(AdviceRequest(url.replace("PORT", str(server.getsockname()[1])), fields))
        assert response[:3] == NETWORK_ERROR[:3]
        assert response.failure
        server.setblocking(False)
        with suppress(OSError):  # unless it connects
            connection, _ = server.accept()
            with connection:
                assert connection.recv(1 << 16) == b""


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://a.example/b", ("a.example", 443, "a.example")),
        ("https://a.example.:8443/b", ("a.example.", 8443, "a.example")),
        ("https://[::1]/b", ("::1", 443, "::1")),
        ("http://[::1]/b", ("::1", 80, None)),
        ("http://localhost:8080/b", ("localhost", 8080, None)),
        ("HTTPS://user:password@A.example/b", ("a.example", 443, "a.example")),
    ],
)
def test_the_host_of_the_url_is_connected_to(monkeypatch, url, expected):
    async def refuse(host, port, *, ssl, server_hostname, happy_eyeballs_delay):
        assert (ssl is None) == url.startswith("http:")
        assert (host, port, server_hostname) == expected
        raise ConnectionRefusedError(errno.ECONNREFUSED, "no")

    monkeypatch.setattr(asyncio, "open_connection", refuse)
    assert fetch_advice(AdviceRequest(url, ())).failure == "Connection refused"


def test_credentials_in_the_url_are_not_sent():
    server = Server(answer())
    fetched(server, url="http://user:password@127.0.0.1:PORT/a")
    assert server.heard == [b"GET /a HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n\r\n" % server.port]


@quotes(
    "traffic-advice 5",
    'redirect mode "manual" This means that a redirect status will not lead to another origin being contacted.',
)
@pytest.mark.parametrize("status", [b"301 Moved", b"302 Found", b"307 Temporary Redirect"])
def test_redirects_are_not_followed(status):
    trap = Server(answer())

    async def fetch() -> AdviceResponse:
        listening = await asyncio.start_server(trap.serve, "127.0.0.1", 0)
        async with listening:
            port = listening.sockets[0].getsockname()[1]
            location = b"Location: http://127.0.0.1:%d/.well-known/traffic-advice\r\n" % port
            server = Server(answer(status=status, fields=TYPE + location))
            return await asyncio.to_thread(fetched, server)

    response = asyncio.run(fetch())
    assert response.status == int(status[:3])
    assert interpret(response, IDENTITY) is None
    assert trap.heard == []


@pytest.mark.parametrize(
    "hints", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 3]
)
def test_interim_responses_are_skipped(hints):
    assert fetched(Server(hints + answer())).body == HALF


@pytest.mark.parametrize("said", [b"", b"SSH-2.0\r\n", b"HTTP/1.1 200 OK\r\nContent-", b"HTTP/1.1 101 No\r\n\r\n"])
def test_an_invalid_head_is_a_network_error(said):
    response = fetched(Server(said))
    assert response[:3] == NETWORK_ERROR[:3]
    assert response.failure
    assert interpret(response, IDENTITY) is UNREACHABLE


def test_a_refused_connection_is_a_network_error():
    response = fetch_advice(advice_request("http://127.0.0.1:1", IDENTITY))
    assert response[:3] == NETWORK_ERROR[:3]
    assert response.failure == "Connection refused"
    response = fetch_advice(advice_request("http://localhost:1", IDENTITY))
    assert response.failure.startswith("Multiple exceptions: ")


def test_a_head_without_an_end_is_a_network_error():
    for endless in (b"X: y\r\n", b"X", b" \r\n", b"X: y\r\n\r\nHTTP/1.1 103 Early Hints\r\n"):
        response = fetched(Server(b"HTTP/1.1 103 Early Hints\r\nX: y\r\n" + endless * 200_000, stays=True))
        assert response[:3] == NETWORK_ERROR[:3]
        assert "exceed the limit" in response.failure or "interim" in response.failure


@pytest.mark.parametrize(("drip", "status"), [(b"HTTP/1.1 200 OK\r\n", 0), (answer(length=100), 200)])
def test_a_slow_response_times_out(drip, status):
    class Dripping(Server):
        async def speak(self, reader, writer):
            writer.write(drip)
            for _ in range(20):
                await asyncio.sleep(0.05)
                writer.write(b"X: y\r\n")
                await writer.drain()
            writer.write(answer().partition(b"\r\n")[2])

    response = fetched(Dripping(b""), timeout=SOON)
    assert (response.status, response.body) == (status, None)
    assert response.failure


@pytest.mark.parametrize(
    "said",
    [
        answer(HALF[:10], length=len(HALF)),
        b"HTTP/1.1 200 OK\r\n" + TYPE + b"Transfer-Encoding: chunked\r\n\r\n23\r\n" + HALF + b"\r\n",
        b"HTTP/1.1 200 OK\r\n" + TYPE + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + HALF,
    ],
    ids=["length", "chunked", "garbage"],
)
@pytest.mark.parametrize("resets", [False, True], ids=["closed", "reset"])
def test_a_truncated_body_is_incomplete(said, resets):
    response = fetched(Server(said, resets=resets))
    assert (response.status, response.body) == (200, None)
    assert response.failure


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\n" + TYPE + b"Transfer-Encoding: chunked\r\n\r\n23\r\n" + HALF + b"\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + TYPE + b"Connection: close\r\n\r\n" + HALF,
        b"HTTP/1.0 200 OK\r\n" + TYPE + b"\r\n" + HALF,
    ],
    ids=["chunked", "close", "1.0"],
)
def test_every_framing_of_a_body_is_read(said):
    assert fetched(Server(said)).body == HALF


def test_only_wanted_bodies_are_read():
    endless = answer(b"x" * 100, length=1 << 40, status=b"404 Not Found")
    assert fetched(Server(endless, stays=True))[:1] == (404,)
    other = answer(HALF, fields=b"Content-Type: text/html\r\n")
    assert fetched(Server(other)).body is None
    assert fetched(Server(other), wanted=lambda status, fields: True).body == HALF


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


def contexts(authority: trustme.CA, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    serving, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert(name).configure_cert(serving)
    authority.configure_trust(trusting)
    return serving, trusting


@pytest.mark.parametrize("host", ["localhost", "a.localhost", "a.b.localhost.", "localhost."])
def test_tls_verifies_the_requested_host(authority, host):
    serving, trusting = contexts(authority, host.removesuffix("."))
    server = Server(answer())
    assert fetched(server, host=host, tls=serving, trust=trusting).body == HALF
    assert f"Host: {host}:".encode() in server.heard[0]


def test_an_untrusted_certificate_is_a_network_error(authority):
    serving, trusting = contexts(authority, "localhost")
    response = fetched(Server(answer()), host="localhost", tls=serving)
    assert response[:3] == NETWORK_ERROR[:3]
    assert response.failure.startswith("its certificate is not trusted: ")
    assert fetched(Server(answer()), host="a.localhost", tls=serving, trust=trusting).status == 0
    assert fetched(Server(answer()), host="127.0.0.1", tls=serving, trust=trusting).status == 0


def test_only_http_1_1_is_offered(authority, monkeypatch):
    serving, trusting = contexts(authority, "localhost")
    serving.set_alpn_protocols(["h2", "http/1.1"])
    ours = fetcher.default_context.__wrapped__()
    authority.configure_trust(ours)
    monkeypatch.setattr(fetcher, "default_context", lambda: ours)
    chosen = []

    class Watching(Server):
        async def speak(self, reader, writer):
            chosen.append(writer.get_extra_info("ssl_object").selected_alpn_protocol())
            await super().speak(reader, writer)

    assert fetched(Watching(answer()), host="localhost", tls=serving).body == HALF
    assert fetched(Watching(answer()), host="localhost", tls=serving, trust=trusting).body == HALF
    assert chosen == ["http/1.1", None]


def test_a_body_over_tls_may_end_without_close_notify(authority):
    serving, trusting = contexts(authority, "localhost")
    server = Server(b"HTTP/1.1 200 OK\r\n" + TYPE + b"\r\n" + HALF, resets=False)
    assert fetched(server, host="localhost", tls=serving, trust=trusting).body == HALF


def test_a_hanging_name_server_is_a_network_error(monkeypatch):
    over, asked = threading.Event(), queue.SimpleQueue()

    def hang(host, port, **options):
        asked.put((host, threading.current_thread()))
        over.wait()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    monkeypatch.setattr(fetcher, "_MARGIN", 0.0)
    request = advice_request("https://slow.example", IDENTITY)
    assert fetch_advice(request, timeout=0.05) == NETWORK_ERROR._replace(failure="not within 0.05 s")
    name, thread = asked.get(timeout=30)
    over.set()
    assert name == "slow.example"
    assert thread.daemon
    thread.join()


def test_an_unknown_name_is_a_network_error(monkeypatch):
    def refuse(host, port, **options):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    response = fetch_advice(advice_request("https://none.example", IDENTITY))
    assert response == NETWORK_ERROR._replace(failure="Name or service not known")


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EMFILE, "Too many open files"),
        OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address"),
        socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
    ],
)
def test_a_failure_of_this_machine_is_not_the_origin_s(monkeypatch, error):
    def fail(*given, **options):
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(FetchError, match="cannot be fetched") as caught:
        fetch_advice(AdviceRequest("https://example.com/", ()))
    assert error.strerror in str(caught.value)


def test_wanted_is_asked_once_and_its_errors_are_raised():
    asked = []

    def wanted(status, fields):
        asked.append((status, fields))
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fetched(Server(answer()), wanted=wanted)
    assert [status for status, _ in asked] == [200]
