"""Common programs and libraries fetch through `headgate proxy` and check every certificate."""

import asyncio
import http.client
import re
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.http2_client import http2_at
from tests.e2e.programs import PATIENCE
from tests.e2e.proxy_setup import Proxy, proxy
from tests.servers import is_present

HOST, PAGE = "www.example.org", "a page that is fetched\n"
BOTH = pytest.mark.parametrize("running", [True, False], ids=["tls", "plaintext"], indirect=True)
TLS = pytest.mark.parametrize("running", [True], ids=["tls"], indirect=True)


@pytest.fixture
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Proxy]:
    with proxy(tmp_path, tls=request.param) as one:
        one.origin.answer(HOST, body=PAGE, content_type="text/plain")
        yield one


def was_fetched(running: Proxy) -> bool:
    """Return whether advice and then the page was requested, through a tunnel that has ended."""
    advice, page = running.origin.asked
    assert advice.startswith("GET /.well-known/traffic-advice HTTP/1.1\r\n")
    assert page.startswith("GET /page HTTP/1.1\r\n")
    running.wait_for(tunnels=0)
    return True


# curl.


class Curl:
    """What curl did: its exit code, what it wrote, and the statuses of the CONNECT and of the response."""

    def __init__(self, running: Proxy, *words: str, ca: str = "ca.pem") -> None:
        folder = running.program.log.parent
        address = running.program.ready["address"].replace("127.0.0.1", "localhost")
        command = ["curl", "--disable", "--silent", "--show-error", "--write-out", "\n%{http_connect} %{http_code}"]
        command += ["--proxy", address, "--proxy-cacert", folder / ca, "--cacert", folder / "ca.pem", *words]
        command += [f"https://{HOST}:{running.origin.port}/page"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, env={})
        self.code, self.errors = done.returncode, done.stderr
        self.content, _, statuses = done.stdout.rpartition("\n")
        self.connect, self.status = map(int, statuses.split())


def curl_knows(flag: str) -> bool:
    """Return whether the installed curl has a flag."""
    if not is_present("curl"):
        return False
    told = subprocess.run(["curl", "--help", "all"], capture_output=True, text=True, timeout=PATIENCE, check=True)
    return flag in told.stdout


@BOTH
@pytest.mark.needs("curl")
def test_curl_fetches_a_page(running: Proxy) -> None:
    curl = Curl(running)
    assert (curl.code, curl.connect, curl.status, curl.content) == (0, 200, 200, PAGE), curl.errors
    assert was_fetched(running)


@TLS
@pytest.mark.skipif(not curl_knows("--proxy-http2"), reason="this curl speaks no HTTP/2 with proxies; 8.1 does")
def test_curl_fetches_a_page_in_http_2(running: Proxy) -> None:
    curl = Curl(running, "--proxy-http2", "--verbose")
    assert (curl.code, curl.connect, curl.status, curl.content) == (0, 200, 200, PAGE), curl.errors
    assert re.search(r"CONNECT tunnel: HTTP/2 negotiated|h2", curl.errors)
    assert was_fetched(running)


@BOTH
@pytest.mark.needs("curl")
def test_curl_shows_the_reason_of_a_refusal(running: Proxy) -> None:
    running.origin.advise(HOST, {"user_agent": "*", "disallow": True})
    curl = Curl(running, "--include")
    assert (curl.code, curl.connect, curl.status) == (56, 403, 0), "the tunnel was not opened"
    assert 'proxy-status: headgate; error=http_request_denied; details="advice_disallowed"' in curl.content
    assert "retry-after: 0" in curl.content
    assert len(running.origin.asked) == 1


@TLS
@pytest.mark.needs("curl")
def test_curl_opens_several_tunnels_at_once(running: Proxy) -> None:
    names = [f"{name}.example.org" for name in "abcdef"]
    for name in names:
        running.origin.answer(name, body=f"the page of {name}", content_type="text/plain")
    addresses = [f"https://{name}:{running.origin.port}/" for name in names]
    curl = Curl(running, "--parallel", "--parallel-immediate", *addresses)
    assert curl.code == 0, curl.errors
    assert all(f"the page of {name}" in curl.content for name in names)
    assert curl.content.count("200 200") == len(names)  # and the last one's
    assert len(running.origin.asked) == 2 * 7


# Python.


class Inside:
    """TLS inside a tunnel, in memory."""

    def __init__(self, running: Proxy) -> None:
        self.coming, self.going = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=str(running.program.log.parent / "ca.pem"))
        self.tls = context.wrap_bio(self.coming, self.going, server_hostname=HOST)
        self.content = b""

    def steps(self, running: Proxy) -> Iterator[None]:
        """Fetch the page; whenever this yields, `going` is to be sent and something to be received."""
        yield from self._do(self.tls.do_handshake)
        asked = f"GET /page HTTP/1.1\r\nHost: {HOST}:{running.origin.port}\r\n\r\n"
        yield from self._do(lambda: self.tls.write(asked.encode()))
        while not self.content.endswith(PAGE.encode()):
            yield from self._do(self._read)

    def _read(self) -> None:
        piece = self.tls.read(65536)
        assert piece, "the end comes before the page"
        self.content += piece

    def _do(self, what: Callable[[], object]) -> Iterator[None]:
        while True:
            with suppress(ssl.SSLWantReadError):
                what()
                return
            yield


@BOTH
def test_python_fetches_a_page(running: Proxy) -> None:
    inside = Inside(running)
    with running.client() as client:
        assert client.ask(f"{HOST}:{running.origin.port}").status == 200
        for _ in inside.steps(running):
            client.send(inside.going.read())
            inside.coming.write(client.sock.recv(65536))
    assert inside.content.startswith(b"HTTP/1.1 200 ")
    assert was_fetched(running)


@TLS
def test_python_fetches_a_page_in_http_2(running: Proxy) -> None:
    inside = Inside(running)

    async def fetch() -> None:
        async with http2_at(("127.0.0.1", running.port), running.tls) as client:
            tunnel = await client.open(f"{HOST}:{running.origin.port}")
            for _ in inside.steps(running):
                await client.send_data(tunnel, inside.going.read())
                await client.until(lambda: tunnel.received)
                inside.coming.write(await client.receive(tunnel, len(tunnel.received)))

    asyncio.run(fetch())
    assert inside.content.startswith(b"HTTP/1.1 200 ")
    assert was_fetched(running)


@pytest.mark.parametrize("running", [False], ids=["plaintext"], indirect=True)
def test_the_standard_library_fetches_a_page(running: Proxy) -> None:
    context = ssl.create_default_context(cafile=str(running.program.log.parent / "ca.pem"))
    connection = http.client.HTTPSConnection("127.0.0.1", running.port, context=context, timeout=PATIENCE)
    connection.set_tunnel(HOST, running.origin.port)
    connection.request("GET", "/page")
    response = connection.getresponse()
    assert (response.status, response.read().decode()) == (200, PAGE)
    connection.close()
    assert was_fetched(running)
