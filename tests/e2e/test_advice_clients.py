"""Advice is fetched with the client that sends the request: through its proxy, with its authorities and certificates.

The host exists only behind the proxy, and its certificate is of an authority that nothing else trusts.
"""

import asyncio
import ssl
import time
import urllib.request
from collections.abc import Iterator
from http.cookiejar import Cookie, CookieJar
from pathlib import Path
from typing import NamedTuple

import aiohttp
import anyio
import httpx
import httpx2
import pytest
import requests
import trustme
import yarl

from headgate.agent import Courtesy, RetryLater, advice_client, httpx_library, transport
from headgate.agent import aiohttp as client_aiohttp
from headgate.agent import requests_adapter as client_requests
from headgate.agent import urllib as client_urllib
from headgate.agent.aiohttp import Middleware
from headgate.agent.httpx import AsyncTransport, Transport
from headgate.agent.requests import Adapter
from headgate.agent.urllib import Handler
from tests.e2e.connect_proxy import Proxy, proxying
from tests.e2e.polite_origin import ADVICE, Answer, Origin, running

HOST = "only-behind-the-proxy.example"
URL = f"https://{HOST}/"
TIMED = (transport, httpx_library, client_aiohttp, client_requests, client_urllib)
"""The modules that have the time limit of a fetch."""
DISALLOWED = '[{"user_agent":"ExampleBot","disallow":true}]'


class World(NamedTuple):
    """An origin behind a proxy."""

    origin: Origin
    proxy: Proxy
    ca: Path
    """The file of the origin's authority, and of nothing else."""
    certificate: Path
    """A certificate and its key for clients, which the origin demands."""

    @property
    def tls(self) -> ssl.SSLContext:
        """What a client is given to trust the authority, and to show the certificate."""
        context = ssl.create_default_context(cafile=self.ca)
        context.load_cert_chain(self.certificate)
        return context


@pytest.fixture
def world(tmp_path) -> Iterator[World]:
    authority = trustme.CA()
    ca, certificate = tmp_path / "ca.pem", tmp_path / "client.pem"
    authority.cert_pem.write_to_path(ca)
    authority.issue_cert("client@example.org").private_key_and_cert_chain_pem.write_to_path(certificate)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(HOST).configure_cert(serving)
    authority.configure_trust(serving)
    serving.verify_mode = ssl.CERT_REQUIRED
    with running(tls=serving) as origin, proxying(origin.server.server_address[1]) as proxy:
        yield World(origin, proxy, ca, certificate)


def by_httpx(library):
    def send(courtesy: Courtesy, world: World) -> int:
        inner = library.HTTPTransport(verify=world.tls, proxy=world.proxy.url)
        with library.Client(
            transport=Transport(courtesy, inner),
            auth=("user", "password"),
            cookies={"session": "secret"},
            headers={"X-Key": "secret", "Authorization": "secret"},
        ) as session:
            return session.get(URL).status_code

    return send


def by_async_httpx(library, backend):
    def send(courtesy: Courtesy, world: World) -> int:
        async def ask() -> int:
            inner = library.AsyncHTTPTransport(verify=world.tls, proxy=world.proxy.url)
            async with library.AsyncClient(
                transport=AsyncTransport(courtesy, inner),
                auth=("user", "password"),
                cookies={"session": "secret"},
                headers={"X-Key": "secret"},
            ) as session:
                return (await session.get(URL)).status_code

        return anyio.run(ask, backend=backend)

    return send


def by_aiohttp(courtesy: Courtesy, world: World) -> int:
    async def ask() -> int:
        jar = aiohttp.CookieJar()
        jar.update_cookies({"session": "secret"}, yarl.URL(URL))
        async with (
            aiohttp.ClientSession(  # with `trust_env`, it also reads .netrc
                middlewares=[Middleware(courtesy)], cookie_jar=jar, headers={"X-Key": "secret"}, trust_env=True
            ) as session,
            session.get(URL, proxy=world.proxy.url, ssl=world.tls) as response,
        ):
            status = response.status
        await asyncio.sleep(0.25)  # aiohttp ends TLS connections after the session is closed
        return status

    return asyncio.run(ask())


def by_requests(courtesy: Courtesy, world: World) -> int:
    with requests.Session() as session:
        session.mount("https://", Adapter(courtesy))
        session.auth = ("user", "password")
        session.cookies.set("session", "secret", domain=HOST)
        session.headers["X-Key"] = "secret"
        proxies = {"https": world.proxy.url}
        return session.get(URL, proxies=proxies, verify=str(world.ca), cert=str(world.certificate)).status_code


def by_urllib(courtesy: Courtesy, world: World) -> int:
    jar = CookieJar()
    jar.set_cookie(
        Cookie(0, "session", "secret", None, False, HOST, True, False, "/", True, True, None, True, None, None, {})
    )
    opener = urllib.request.build_opener(
        Handler(courtesy),
        urllib.request.ProxyHandler({"https": world.proxy.url}),
        urllib.request.HTTPSHandler(context=world.tls),
        urllib.request.HTTPCookieProcessor(jar),
    )
    opener.addheaders = [("X-Key", "secret"), ("Authorization", "Basic secret")]
    with opener.open(URL) as response:
        return response.status


CLIENTS = {
    "httpx2": by_httpx(httpx2),
    "httpx": by_httpx(httpx),
    "httpx2 in asyncio": by_async_httpx(httpx2, "asyncio"),
    "httpx2 in trio": by_async_httpx(httpx2, "trio"),
    "httpx in asyncio": by_async_httpx(httpx, "asyncio"),
    "aiohttp": by_aiohttp,
    "requests": by_requests,
    "urllib": by_urllib,
}


@pytest.fixture(params=CLIENTS)
def send(request, monkeypatch, tmp_path):
    """Return what sends one request with some client; `.netrc` has a password for every host."""
    netrc = tmp_path / "netrc"
    netrc.write_text("default login user password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setattr(advice_client, "RETRY_PAUSE", 0.01)
    return CLIENTS[request.param]


def test_advice_comes_through_the_client_s_proxy_and_tls_without_data_of_the_user(world, send):
    world.origin.advise(DISALLOWED)
    with pytest.raises(RetryLater) as caught:
        send(Courtesy("ExampleBot"), world)
    assert (caught.value.reason, caught.value.target) == ("advice_disallowed", f"https://{HOST}")
    assert world.proxy.heads
    assert all(head.startswith(f"CONNECT {HOST}:443 ".encode()) for head in world.proxy.heads)
    ((method, path, fields, body, *_),) = world.origin.asked
    names = {name.lower(): value for name, value in fields.items()}
    assert (method, path, body) == ("GET", ADVICE, b"")
    assert {name: names[name] for name in ("host", "accept", "accept-encoding", "user-agent")} == {
        "host": HOST,
        "accept": "application/trafficadvice+json",
        "accept-encoding": "identity",
        "user-agent": "ExampleBot",
    }
    # And nothing else but what HTTP/1.1 itself needs.
    assert names.keys() - {"host", "accept", "accept-encoding", "user-agent", "connection"} == set()


@pytest.mark.parametrize("status", [403, 407])
def test_a_refusal_by_the_client_s_proxy_is_a_local_failure(world, send, status):
    """The fetch is made again, and what the origin disallows is not sent."""
    world.proxy.statuses = [status]
    world.origin.advise(DISALLOWED)
    with pytest.raises(RetryLater) as caught:
        send(Courtesy("ExampleBot", wait=30), world)
    assert caught.value.reason == "advice_disallowed"
    assert [asked.path for asked in world.origin.asked] == [ADVICE]


def test_a_proxy_that_cannot_reach_the_origin_makes_it_unreachable(world, send):
    world.proxy.statuses = [500]
    world.origin.advise(DISALLOWED)
    assert send(Courtesy("ExampleBot"), world) == 200
    assert [asked.path for asked in world.origin.asked] == ["/"]


DRIPS = 100


def test_a_fetch_of_advice_sent_byte_by_byte_times_out(world, send, monkeypatch):
    for module in TIMED:
        monkeypatch.setattr(module, "ADVICE_TIMEOUT", 0.5)
    dripped = []

    def dripping() -> Iterator[bytes]:
        for _ in range(DRIPS):
            time.sleep(0.05)
            dripped.append(b"x")
            yield b"x"

    world.origin.say(ADVICE, Answer(200, {"Content-Type": "application/trafficadvice+json"}, dripping()))
    assert send(Courtesy("ExampleBot"), world) == 200
    assert len(dripped) < DRIPS


def ask_by_a_full_httpx(origin: Origin, courtesy: Courtesy) -> None:
    limits = httpx2.Limits(max_connections=1)
    full = httpx2.HTTPTransport(limits=limits)
    with full, httpx2.Client(transport=full) as other, other.stream("GET", f"{origin.url}/kept"):
        httpx2.Client(transport=Transport(courtesy, full)).get(f"{origin.url}/")


def ask_by_a_full_aiohttp(origin: Origin, courtesy: Courtesy) -> None:
    async def asking() -> None:
        connector = aiohttp.TCPConnector(limit=1)
        middlewares, timeout = [Middleware(courtesy)], aiohttp.ClientTimeout(total=5)
        async with (
            aiohttp.ClientSession(connector=connector) as other,
            other.get(f"{origin.url}/kept"),
            aiohttp.ClientSession(
                connector=connector, connector_owner=False, middlewares=middlewares, timeout=timeout
            ) as polite,
        ):
            await polite.get(f"{origin.url}/")

    asyncio.run(asking())


@pytest.mark.parametrize("ask", [ask_by_a_full_httpx, ask_by_a_full_aiohttp])
def test_a_full_connection_pool_does_not_make_the_origin_unreachable(ask, monkeypatch):
    monkeypatch.setattr(client_aiohttp, "ADVICE_TIMEOUT", 0.2)
    monkeypatch.setattr(httpx_library, "_POOL_TIMEOUT", 0.2)
    with running() as origin:
        origin.advise(DISALLOWED)
        origin.say("/kept", Answer(200, {}, iter([bytes(1 << 20)] * 64)))
        with pytest.raises(RetryLater) as caught:
            ask(origin, Courtesy("ExampleBot", wait=0.5))
        assert caught.value.reason == "advice_pending"
        assert [asked.path for asked in origin.asked] == ["/kept"]
