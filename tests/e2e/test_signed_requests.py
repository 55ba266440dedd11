"""Agents that sign their requests by Web Bot Auth, with each HTTP library, against origins that verify them."""

import asyncio
import json
import os
import ssl
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import aiohttp
import anyio
import httpx
import httpx2
import niquests
import pytest
import requests
import trustme

from headgate.agent import Courtesy
from headgate.agent import niquests as polite_niquests
from headgate.agent import requests as polite_requests
from headgate.agent.aiohttp import Middleware
from headgate.agent.httpx import AsyncTransport, Transport
from headgate.agent.urllib import Handler
from headgate.identity import (
    SignedMessage,
    SigningKey,
    accept_signature,
    agent_url,
    new_signing_key,
    parse_directory,
    read_claims,
    write_signing_key,
)
from tests.e2e import polite_laws, programs
from tests.e2e.polite_origin import ADVICE, Answer, Asked, Origin, running
from tests.servers import free_port

short_pauses = polite_laws.short_pauses
AGENT = "https://bot.example"
IDENTIFIER = f"{AGENT}/.well-known/http-message-signatures-directory"
ROOT = Path(__file__).parents[2]
ASKS = Answer(403, {"Accept-Signature": accept_signature()})


class World(NamedTuple):
    """Two origins over https, one over http, and what an agent needs to sign and to trust them."""

    origin: Origin
    other: Origin
    plain: Origin
    ca: Path
    key: SigningKey
    key_file: Path

    @property
    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca))

    def courtesy(self, **options) -> Courtesy:
        return Courtesy("ExampleBot/1.0", key=self.key_file, agent_url=AGENT, robots=True, tls=self.tls, **options)

    def signer_of(self, asked: Asked) -> str:
        """Return the identifier of the agent that signed a request; empty if it is not signed."""
        fields = tuple((name.lower(), value) for name, value in asked.fields.items())
        message = SignedMessage(asked.method, asked.fields["Host"], asked.path, fields)
        found = [each for each in read_claims(message, now=time.time()) if each.is_signed_by(self.key.public)]
        assert len(found) == asked.fields.keys().count("Signature")
        return found[0].agent.identifier if found else ""


@pytest.fixture
def world(tmp_path):
    authority, ca, key = trustme.CA(), tmp_path / "ca.pem", new_signing_key(entropy=os.urandom)
    authority.cert_pem.write_to_path(ca)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "127.0.0.2").configure_cert(serving)
    (tmp_path / "key.json").write_bytes(write_signing_key(key))
    (tmp_path / "key.json").chmod(0o600)
    with ExitStack() as stack:
        origins = [
            stack.enter_context(running(tls=tls, host=host))
            for tls, host in ((serving, "127.0.0.1"), (serving, "127.0.0.2"), (None, "127.0.0.1"))
        ]
        yield World(*origins, ca, key, tmp_path / "key.json")


def by_httpx(library):
    def get(world: World, courtesy: Courtesy, url: str) -> int:
        inner = library.HTTPTransport(verify=world.tls)
        with library.Client(transport=Transport(courtesy, inner), follow_redirects=True) as client:
            return client.get(url).status_code

    return get


def by_async_httpx(library):
    def get(world: World, courtesy: Courtesy, url: str) -> int:
        async def ask() -> int:
            transport = AsyncTransport(courtesy, library.AsyncHTTPTransport(verify=world.tls))
            async with library.AsyncClient(transport=transport, follow_redirects=True) as client:
                return (await client.get(url)).status_code

        return anyio.run(ask)

    return get


def by_aiohttp(world: World, courtesy: Courtesy, url: str) -> int:
    async def ask() -> int:
        async with (
            aiohttp.ClientSession(middlewares=[Middleware(courtesy)]) as session,
            session.get(url, ssl=world.tls) as response,
        ):
            status = response.status
        await asyncio.sleep(0.25)  # aiohttp ends TLS connections after the session is closed
        return status

    return asyncio.run(ask())


def by_session(library, adapter):
    def get(world: World, courtesy: Courtesy, url: str) -> int:
        with library.Session() as session:
            session.mount("https://", adapter(courtesy))
            session.mount("http://", adapter(courtesy))
            return session.get(url, verify=str(world.ca)).status_code

    return get


def by_async_niquests(world: World, courtesy: Courtesy, url: str) -> int:
    async def ask() -> int:
        async with niquests.AsyncSession() as session:
            session.mount("https://", polite_niquests.AsyncAdapter(courtesy))
            session.mount("http://", polite_niquests.AsyncAdapter(courtesy))
            return (await session.get(url, verify=str(world.ca))).status_code

    return asyncio.run(ask())


def by_urllib(world: World, courtesy: Courtesy, url: str) -> int:
    opener = urllib.request.build_opener(Handler(courtesy), urllib.request.HTTPSHandler(context=world.tls))
    with opener.open(url) as response:
        return response.status


def by_scrapy(world: World, courtesy: Courtesy, url: str) -> int:
    sign = "when-asked" if courtesy._state.signer.when_asked else "always"
    command = [sys.executable, "-m", "tests.e2e.signing_spider", str(world.key_file), str(world.ca), sign, url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return int(done.stdout)


CLIENTS = {
    "httpx2": by_httpx(httpx2),
    "httpx": by_httpx(httpx),
    "httpx2 in asyncio": by_async_httpx(httpx2),
    "aiohttp": by_aiohttp,
    "requests": by_session(requests, polite_requests.Adapter),
    "niquests": by_session(niquests, polite_niquests.Adapter),
    "niquests in asyncio": by_async_niquests,
    "urllib": by_urllib,
    "scrapy": by_scrapy,
}


@pytest.mark.parametrize("get", CLIENTS.values(), ids=CLIENTS)
def test_each_request_over_https_is_signed_for_its_origin(world, get):
    world.origin.say("/", 503, Answer(302, {"Location": f"{world.other.url}/there"}))
    world.other.say("/there", Answer(302, {"Location": f"{world.plain.url}/plain"}))
    assert get(world, world.courtesy(wait=5, retry=1), f"{world.origin.url}/") == 200
    signed = [*world.origin.asked, *world.other.asked]
    assert {world.signer_of(asked) for asked in signed} == {IDENTIFIER}
    assert sorted(asked.path for asked in signed) == sorted(["/", "/", "/there", *[ADVICE, "/robots.txt"] * 2])
    nonces = [asked.fields["Signature-Input"].partition(";nonce=")[2].partition(";")[0] for asked in signed]
    assert len(set(nonces)) == len(signed)
    assert [asked.path for asked in world.plain.got()] == ["/robots.txt", "/plain"]
    assert not {name for asked in world.plain.asked for name in asked.fields if name.startswith("Signature")}


@pytest.mark.parametrize("get", CLIENTS.values(), ids=CLIENTS)
def test_an_origin_that_asks_is_signed_to_from_then_on(world, get):
    world.origin.say("/", ASKS, Answer(302, {"Location": f"{world.origin.url}/next"}))
    world.origin.say("/next", Answer(302, {"Location": f"{world.other.url}/there"}))
    assert get(world, world.courtesy(sign="when-asked"), f"{world.origin.url}/") == 200
    signers = [(asked.path, world.signer_of(asked)) for asked in world.origin.got()]
    assert signers == [("/robots.txt", ""), ("/", ""), ("/", IDENTIFIER), ("/next", IDENTIFIER)]
    assert {world.signer_of(asked) for asked in world.other.asked} == {""}


def test_an_origin_may_ask_with_its_response_to_a_fetch_of_robots_txt(world):
    world.origin.say("/robots.txt", ASKS, Answer(200, {}, b"User-agent: *\nDisallow: /"))
    with pytest.raises(Exception, match=r"held by its robots\.txt"):
        by_httpx(httpx2)(world, world.courtesy(sign="when-asked"), f"{world.origin.url}/")
    assert [world.signer_of(asked) for asked in world.origin.got("/robots.txt")] == ["", IDENTIFIER]


GATE = """
[gate]
origin = "{origin}"
identify = ["web-bot-auth", "client-address"]
tls = {{ cert = "server.pem", key = "server.pem" }}
[web_bot_auth]
authorities = ["localhost:{port}"]
allow_addresses = ["127.0.0.0/8", "::1/128"]
ca = "ca.pem"
publish = ["key.json", "card.json"]
[[domain]]
name = "default"
challenge = true
rules = ["100/s"]
"""


def test_a_gate_publishes_the_keys_by_which_gates_verify_the_agent(world, tmp_path):
    port, authority = free_port(), trustme.CA()
    url = f"https://localhost:{port}"
    authority.cert_pem.write_to_path(world.ca)
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    card = programs.command("keys", "directory", "--card", "--name", "ExampleBot/1.0", "--agent-url", url).out
    (tmp_path / "card.json").write_text(card)
    (tmp_path / "gate.toml").write_text(GATE.format(origin=world.plain.url, port=port))
    courtesy = Courtesy("ExampleBot/1.0", key=world.key_file, agent_url=url, sign="when-asked")
    with (
        programs.gate(tmp_path, "--config", "gate.toml", "--listen", f"127.0.0.1:{port}"),
        httpx2.Client(transport=Transport(courtesy, httpx2.HTTPTransport(verify=world.tls)), base_url=url) as client,
    ):
        assert client.get("/.well-known/signature-agent-card").json() == json.loads(card)
        directory = client.get("/.well-known/http-message-signatures-directory")
        found = parse_directory(agent_url(url), directory.headers.items(), directory.content, now=time.time())
        assert (set(found.keys), "signature" in directory.headers) == ({world.key.key_id}, True)
        deadline = time.monotonic() + 20
        while client.get("/page").status_code != 200:  # its keys are not fetched yet
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert all("Signature" in asked.fields for asked in world.plain.asked)  # nothing else came to the origin
