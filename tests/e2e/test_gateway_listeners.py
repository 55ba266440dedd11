"""What precedes HTTP on a connection, on each event loop: the PROXY protocol, alone and before TLS."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from msgspec.structs import replace

from headgate.config.tree import Timeouts
from headgate.origin import client_address
from headgate.origin.gateway import Gateway, ListenerSettings
from tests.e2e.gateway_setup import PATIENCE, agent_at, served, tls_keys, until
from tests.unit.http.test_proxy_protocol import FOUR, binary

pytestmark = pytest.mark.usefixtures("run")

GET = b"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 198.51.100.9\r\n\r\n"
LINE = b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"
HEADERS = {"v1": LINE, "v2": binary(0x21, 0x11, FOUR * 2 + bytes(4) + b"\4\0\1x")}


@asynccontextmanager
async def behind_proxy(tls: Any = None, trusted: str = "127.0.0.1", **settings: Any) -> AsyncIterator[Gateway]:
    """Run a gateway that requires the PROXY protocol of this address."""
    listener = ListenerSettings(tls, proxy_protocol=True)
    async with served(listener=listener, trusted=client_address([trusted]), **settings) as (_, gateway):
        yield gateway


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
@pytest.mark.parametrize("step", [0, 1, 7])
async def test_header_names_the_client_at_any_split(header: bytes, step: int) -> None:
    async with behind_proxy() as gateway, agent_at(gateway) as agent:
        await agent.send(header + GET * 2, step=step)
        for _ in range(2):  # the fields are the client's own, and so replaced
            assert b"X-Forwarded-For: 192.0.2.1\r\n" in (await agent.response()).body
        gateway.context.policy = replace(gateway.context.policy)  # a reload keeps the client
        assert b"X-Forwarded-For: 192.0.2.1\r\n" in (await agent.ask(GET)).body


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
@pytest.mark.parametrize("whole", [True, False])
async def test_handshake_begins_in_the_segment_of_the_header(header: bytes, whole: bool, tmp_path: Path) -> None:
    tls, context = tls_keys(tmp_path, authority := trustme.CA(), "a.example"), ssl.create_default_context()
    authority.configure_trust(context)

    def ask(port: int) -> bytes:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(incoming, outgoing, server_hostname="a.example")
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as plain:
            unsent, steps = (
                header,
                list[Callable[[], Any]]([client.do_handshake, lambda: client.write(GET), client.read]),
            )
            while True:
                try:
                    found = steps[0]()
                except ssl.SSLWantReadError:
                    data = unsent + outgoing.read()
                    for part in [data] if whole else [data[:20], data[20:]]:
                        plain.sendall(part)
                    unsent = b""
                    incoming.write(plain.recv(65_536))
                else:
                    steps.pop(0)
                    if not steps:
                        return bytes(found)

    async with behind_proxy(tls) as gateway:
        body = await asyncio.to_thread(ask, gateway.addresses[0][1])
        assert b"X-Forwarded-Proto: https\r\n" in body
        assert b"X-Forwarded-For: 192.0.2.1\r\n" in body


REFUSED = {
    "malformed": (b"GET / HTTP/1.1\r\n\r\n", "127.0.0.1"),
    "untrusted": (LINE + GET, "192.0.2.1"),
    "timeout": (LINE[:-1], "127.0.0.1"),
}


@pytest.mark.parametrize("reason", REFUSED)
async def test_other_connections_are_closed_and_counted(reason: str) -> None:
    data, trusted = REFUSED[reason]
    async with behind_proxy(trusted=trusted, timeouts=Timeouts(header=0.5)) as gateway, agent_at(gateway) as agent:
        await agent.send(data)
        assert await agent.rest() == b""
        await until(lambda: not gateway.connections)
        assert {name: count for name, count in gateway.context.counters.proxy_headers_refused.items() if count} == {
            reason: 1
        }


async def test_cut_header_is_malformed_and_a_check_of_the_port_is_not() -> None:
    async with behind_proxy() as gateway:
        for data, count in ((b"", 0), (LINE[:9], 1)):
            async with agent_at(gateway) as agent:
                await agent.send(data)
                await until(lambda: len(gateway.connections) == 1)
            await until(lambda: not gateway.connections)
            assert gateway.context.counters.proxy_headers_refused["malformed"] == count
