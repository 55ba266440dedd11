"""Refusals before and after a decision, and the connection afterwards."""

import asyncio

import pytest

from headgate.proxy.connect import RefusedConnect
from headgate.proxy.http1 import Http1Connection
from tests.e2e.gateway_setup import until
from tests.e2e.tunnels import Encryption, StubDecision, client_at, proxy_running, target_running

pytestmark = pytest.mark.usefixtures("run")

"""Bytes: far more than what all buffers between two programs hold, so that both kinds of relaying are seen."""


async def test_a_refusal_keeps_the_connection(encryption: Encryption) -> None:
    decision = StubDecision()
    decision.refusals["no.example:443"] = RefusedConnect(status=403, fields=[("Retry-After", "0")], reason="host")
    async with (
        target_running() as port,
        proxy_running(decision, tls=encryption.listener) as server,
        client_at(server, tls=encryption.client) as client,
    ):
        for _ in range(3):
            answer = await client.ask("no.example:443")
            assert answer == b"HTTP/1.1 403 Forbidden\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n"
        assert b" 200 " in await client.ask(port, b"hello")
        assert await client.read(5) == b"hello"


async def test_few_pipelined_requests_are_buffered(encryption: Encryption) -> None:
    decision = StubDecision()
    decision.refusals["no.example:443"] = RefusedConnect(status=403, reason="host")
    refused, times = b"CONNECT no.example:443 HTTP/1.1\r\n\r\n", 6000
    async with (
        target_running() as port,
        proxy_running(decision, tls=encryption.listener) as server,
        client_at(server, tls=encryption.client) as client,
    ):
        more = b"CONNECT a:%d HTTP/1.1\r\n\r\nhello" % port
        sending = asyncio.create_task(client.send(refused * times + more))
        assert (await client.head()).startswith(b"HTTP/1.1 403 ")
        [connection] = server.connections
        assert isinstance(connection, Http1Connection)
        most = 0
        for _ in range(times - 1):
            assert (await client.head()).startswith(b"HTTP/1.1 403 ")
            most = max(most, len(connection._buffer))
        assert b" 200 " in await client.head()
        assert await client.read(5) == b"hello"
        await sending
        assert 0 < most <= 2 << 16


REFUSED = {
    "another method, the last request": (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 405),
    "another request with a body": (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", 405),
    "a body": (b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", 400),
    "a chunked body": (b"CONNECT a:443 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "nonsense": (b"nonsense\r\n\r\n", 400),
    "nonsense without end": (b"\x16\x03\x01\x02\x00\x01\x00", 400),
    "bare LF": (b"CONNECT a:443 HTTP/1.1\nHost: a\n\n", 400),
    "no target": (b"CONNECT  HTTP/1.1\r\n\r\n", 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "a long line": (b"CONNECT " + b"a" * 20_000, 400),
    "a large head": (b"CONNECT a:443 HTTP/1.1\r\n" + b"X: y\r\n" * 170_000, 400),
}


async def test_other_methods_are_refused_and_close_the_connection(encryption: Encryption) -> None:
    decision = StubDecision()
    async with proxy_running(decision, tls=encryption.listener) as server:
        for name, (raw, status) in REFUSED.items():
            async with client_at(server, tls=encryption.client) as client:
                sending = asyncio.create_task(client.send(raw + b"CONNECT b:443 HTTP/1.1\r\n\r\n"))
                answer = await client.rest()
                await asyncio.gather(sending, return_exceptions=True)
            assert answer.startswith(b"HTTP/1.1 %d " % status), name
            assert answer.count(b"HTTP/1.1") == 1, name
            assert b"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n" in answer, name
            assert b"Proxy-Status: headgate; " in answer, name
    assert not decision.requests


async def test_thousands_of_pipelined_requests_do_not_delay_other_clients() -> None:
    many = 2_600  # as many as are read at once

    decision = StubDecision()
    async with (
        target_running() as port,
        proxy_running(decision) as server,
        client_at(server) as flood,
        client_at(server) as bystander,
    ):
        pouring = asyncio.create_task(flood.send(b"G / HTTP/1.1\r\nHost:a\r\n\r\n" * many))
        await until(lambda: decision.early_refusals)
        assert b" 200 " in await bystander.ask(port)
        assert len(decision.early_refusals) < many, "the bystander did not wait for them all"
        for _ in range(many):
            assert (await flood.head()).startswith(b"HTTP/1.1 405 ")
        await pouring
        assert b" 200 " in await flood.ask(port)
