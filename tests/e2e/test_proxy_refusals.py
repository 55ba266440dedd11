"""Refusals before and after a decision, and the connection afterwards."""

import asyncio

import pytest

from headgate.proxy.connect import RefusedConnect
from headgate.proxy.http1 import Http1Connection
from tests.e2e.gateway_setup import until
from tests.e2e.tunnels import Encryption, StubDecision, client_at, proxy_running, target_running

pytestmark = pytest.mark.usefixtures("run")


async def test_a_connection_that_is_refused_too_often_is_closed(encryption: Encryption) -> None:
    """Refused CONNECTs and other methods count alike; of what is pipelined behind them, little is kept."""
    decision, times = StubDecision(), 6000
    decision.refusals["no.example:443"] = RefusedConnect(status=403, reason="host")
    decision.gate = asyncio.Event()
    refused = b"CONNECT no.example:443 HTTP/1.1\r\n\r\n", b"G / HTTP/1.1\r\nHost: a\r\n\r\n"
    async with (
        target_running() as port,
        proxy_running(decision, tls=encryption.listener) as server,
        client_at(server, tls=encryption.client) as client,
        client_at(server, tls=encryption.client) as bystander,
    ):
        sending = asyncio.create_task(client.send(b"".join(refused) * times))
        await until(lambda: decision.requests)
        [connection] = [one for one in server.connections if one.tunnels]
        assert isinstance(connection, Http1Connection)
        await until(lambda: len(connection._buffer) >= 1 << 16)
        assert len(connection._buffer) <= 2 << 16
        decision.gate.set()
        answers = await client.rest()
        await asyncio.gather(sending, return_exceptions=True)
        assert 100 < answers.count(b"HTTP/1.1 ") < 400  # 100 at once, and 10 a second on a slow machine
        assert answers.count(b"HTTP/1.1 403 ") - answers.count(b"HTTP/1.1 405 ") in {0, 1}
        assert answers.count(b"Connection: close") == 1
        assert answers.endswith(b"Connection: close\r\nContent-Length: 0\r\n\r\n")
        assert b" 200 " in await bystander.ask(port)


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
