"""Large and endless messages: passed on as they come, with bounded memory when a side is slow."""

import asyncio

import pytest

from tests.e2e.gateway_setup import agent_at, served

pytestmark = pytest.mark.usefixtures("run")

PIECE = b"x" * 65536
MOST_IN_FLIGHT = 16 * 2**20
"""More than all buffers of the systems and the gateway together, by far less than what is sent."""


@pytest.mark.parametrize("buffer_response", [0, 65_536])
async def test_a_slow_client_pauses_the_origin(buffer_response: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.origin.gateway.buffer.MAX_RESPONSE_FILE", 300_000)
    sent = 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(1024):
            writer.write(b"10000\r\n" + PIECE + b"\r\n")
            await writer.drain()
            sent += len(PIECE)
        writer.write(b"0\r\n\r\n")
        await reader.read()

    async with served(pour, buffer_response=buffer_response) as (_, gateway), agent_at(gateway, limit=4096) as agent:
        await agent.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        before = 0
        while not sent or before != sent:  # until nothing moves any more
            before = sent
            await asyncio.sleep(0.1)
        assert 0 < sent < MOST_IN_FLIGHT
        [connection] = gateway.connections
        assert connection._transport.get_write_buffer_size() < 2**20
        received, piece = 0, b""
        while not piece.endswith(b"\r\n0\r\n\r\n"):
            piece = piece[-7:] + await agent.reader.read(2**20)
            received += len(piece) - 7
        assert received > 1024 * len(PIECE)
