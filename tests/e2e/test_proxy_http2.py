"""Tunnels over HTTP/2: several in one connection, each of which ends without affecting the others."""

import asyncio
import hashlib
import os
import socket
import struct
from collections.abc import Callable

import pytest
from hyperframe.frame import DataFrame, SettingsFrame

from headgate.proxy.connect import AcceptedConnect, RefusedConnect
from tests.e2e.http2_client import Http2Client
from tests.e2e.tunnels import Deciding, Target, target_running, until

CONNECT_ERROR, CANCEL, STREAM_CLOSED, PROTOCOL_ERROR = 10, 8, 5, 1


def test_data_is_relayed_in_both_directions(http2: Callable, run: Callable) -> None:
    async def check() -> None:
        deciding = Deciding()
        async with target_running() as port, http2(deciding) as (server, client):
            tunnel = await client.open(port, ("proxy-authorization", "Bearer x"))
            assert tunnel.fields == {}
            for word in (b"hello\n", b"x", b"y" * 1000):
                await client.put(tunnel, word)
                assert await client.arrived(tunnel, len(word)) == word
            assert server.tunnel_count == 1
            assert server.bytes_passed == (1007, 1007)
            client.end(tunnel)
            await client.ended(tunnel)
            await until(lambda: deciding.closed)
            assert server.tunnel_count == 0
        assert deciding.closed == [(1007, 1007, "ended")]
        [asked] = deciding.asked
        assert asked.authority == f"a.example:{port}"
        assert list(asked.fields) == [("proxy-authorization", "Bearer x")]
        assert (asked.protocol, asked.peer[0], asked.draining) == ("h2", "127.0.0.1", False)
        assert 30 < asked.head_bytes < 80

    run(check())


def test_many_tunnels_share_a_connection(http2: Callable, run: Callable) -> None:
    async def one(client: Http2Client, port: int, number: int) -> None:
        payload = os.urandom(20_000 + 10_000 * number)
        tunnel = await client.open(port)
        await client.put(tunnel, payload, end=True)
        assert await client.ended(tunnel) == payload

    async def check() -> None:
        deciding = Deciding()
        async with target_running() as port, http2(deciding) as (_, client):
            assert client.settings[SettingsFrame.MAX_CONCURRENT_STREAMS] >= 100
            await asyncio.gather(*(one(client, port, number) for number in range(30)))
            await until(lambda: len(deciding.closed) == 30)
        assert {why for _, _, why in deciding.closed} == {"ended"}
        assert all(received == sent for received, sent, _ in deciding.closed)

    run(check())


@pytest.mark.parametrize("frame_size", [1, 100, 16_384, 60_000])
def test_bulk_data_arrives_whole_in_frames_of_any_size(frame_size: int, http2: Callable, run: Callable) -> None:
    async def check() -> None:
        payload = os.urandom(min(4 << 20, frame_size * 4000))
        async with target_running() as port, http2() as (_, client):
            tunnel = await client.open(port)
            sent = 0
            while sent < len(payload):
                await client.until(lambda: min(tunnel.window, client.window) >= frame_size)
                piece = payload[sent : sent + frame_size]
                sent += len(piece)
                tunnel.window -= len(piece)
                client.window -= len(piece)
                client.say(DataFrame(tunnel.number, data=piece))
                await client.writer.drain()
            client.end(tunnel)
            assert hashlib.sha256(await client.ended(tunnel)).digest() == hashlib.sha256(payload).digest()

    run(check())


def test_padding_is_not_passed_on_and_is_counted(http2: Callable, run: Callable) -> None:
    async def check() -> None:
        async with target_running() as port, http2() as (_, client):
            tunnel = await client.open(port)
            for number in range(1000):
                frame = DataFrame(tunnel.number, data=b"%04d" % number, pad_length=255, flags=["PADDED"])
                await client.until(lambda: min(tunnel.window, client.window) >= 260)
                tunnel.window -= 260
                client.window -= 260
                client.say(frame)
            client.end(tunnel)
            assert await client.ended(tunnel) == b"".join(b"%04d" % number for number in range(1000))

    run(check())


def test_either_side_may_end_first(http2: Callable, run: Callable) -> None:
    async def last_word(target: Target) -> None:
        target.writer.write(await target.reader.read() + b"!")

    async def first_word(target: Target) -> None:
        target.writer.write(b"bye")
        target.writer.write_eof()
        assert await target.reader.read() == b"not yet"

    async def check() -> None:
        deciding = Deciding()
        async with (
            target_running(last_word) as late,
            target_running(first_word) as early,
            http2(deciding) as (_, client),
        ):
            tunnel = await client.open(late)
            await client.put(tunnel, b"hello", end=True)
            assert await client.ended(tunnel) == b"hello!"
            other = await client.open(early)
            assert await client.ended(other) == b"bye"
            await client.put(other, b"not yet", end=True)
            await until(lambda: len(deciding.closed) == 2)
        assert deciding.closed == [(6, 5, "ended"), (3, 7, "ended")]

    run(check())


def test_a_connect_may_end_the_stream(http2: Callable, run: Callable) -> None:
    async def speak(target: Target) -> None:
        assert await target.reader.read() == b""
        target.writer.write(b"news")

    async def check() -> None:
        async with target_running(speak) as port, http2() as (_, client):
            assert await client.ended(client.ask(port, ended=True)) == b"news"

    run(check())


def test_data_sent_before_the_answer_belongs_to_the_tunnel(http2: Callable, run: Callable) -> None:
    async def check() -> None:
        deciding = Deciding()
        deciding.waits = asyncio.Event()
        async with target_running() as port, http2(deciding) as (_, client):
            tunnel = client.ask(port)
            await client.put(tunnel, b"early", end=True)
            await client.pinged()
            deciding.waits.set()
            assert await client.ended(tunnel) == b"early"

    run(check())


@pytest.mark.parametrize("is_ended", [False, True])
def test_a_refusal_does_not_affect_other_streams(is_ended: bool, http2: Callable, run: Callable) -> None:
    async def check() -> None:
        deciding = Deciding()
        fields = [("Retry-After", "0"), ("Proxy-Status", "headgate; error=http_request_denied")]
        deciding.refuses["no.example:443"] = RefusedConnect(status=403, fields=fields, reason="host")
        async with target_running() as port, http2(deciding) as (server, client):
            tunnel = await client.open(port)
            refused = client.ask("no.example:443", ended=is_ended)
            assert await client.answered(refused) == 403
            await client.pinged()
            assert refused.fields == {name.lower(): value for name, value in fields}
            assert refused.is_ended
            assert refused.code == (None if is_ended else 0)  # nothing more is wanted of it
            assert server.tunnel_count == 1
            await client.put(tunnel, b"still here")
            assert await client.arrived(tunnel, 10) == b"still here"

    run(check())


GET = [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "a")]
CONNECT = [(":method", "CONNECT"), (":authority", "a:443")]


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (GET, 405),
        ([(":method", "POST"), *GET[1:], ("content-length", "5")], 405),
        (CONNECT[:1], 400),
        ([*CONNECT, (":path", "/")], 400),
        ([*CONNECT, (":scheme", "https"), (":path", "/"), (":protocol", "websocket")], 400),
        ([*CONNECT, ("content-length", "5")], 400),
        ([*CONNECT, ("connection", "close")], 400),
        ([*CONNECT, ("x", "a\nb")], 400),
        ([*CONNECT, ("x", "y" * 20_000)], 400),
    ],
)
def test_other_methods_are_refused(lines: list, status: int, http2: Callable, run: Callable) -> None:
    async def check() -> None:
        deciding = Deciding()
        async with target_running() as port, http2(deciding) as (_, client):
            tunnel = await client.open(port)
            wrong = client.request(lines)
            assert await client.answered(wrong) == status
            assert deciding.complaints == ["method" if status == 405 else "malformed"]
            assert len(deciding.asked) == 1
            await client.put(tunnel, b"still here")
            assert await client.arrived(tunnel, 10) == b"still here"

    run(check())


def test_trailers_end_a_tunnel(http2: Callable, run: Callable) -> None:
    async def check() -> None:
        deciding = Deciding()
        async with target_running() as port, http2(deciding) as (_, client):
            tunnel = await client.open(port)
            client.say(client.head(tunnel.number, [("x", "y")], "END_STREAM"))
            assert await client.was_reset(tunnel) == PROTOCOL_ERROR
            await until(lambda: deciding.closed)
            assert await client.open(port)
        assert deciding.closed[0] == (0, 0, "client_gone")

    run(check())


async def swallow_and_wait(target: Target) -> None:
    await target.swallow()
    await asyncio.Event().wait()


def test_data_after_the_end_is_a_stream_error(http2: Callable, run: Callable) -> None:
    async def check() -> None:
        async with target_running(swallow_and_wait) as port, http2() as (_, client):
            tunnel = await client.open(port)
            client.end(tunnel)
            client.say(DataFrame(tunnel.number, data=b"more"))
            assert await client.was_reset(tunnel) == STREAM_CLOSED
            assert await client.open(port)

    run(check())


def test_a_reset_reaches_the_target_as_a_reset(http2: Callable, run: Callable) -> None:
    async def check() -> None:
        deciding = Deciding()
        ends: list[BaseException | None] = []

        async def listen(target: Target) -> None:
            try:
                await target.reader.readexactly(10)
            except ConnectionResetError as error:
                ends.append(error)

        async with target_running(listen) as port, http2(deciding) as (_, client):
            tunnel, other = await client.open(port), await client.open(port)
            await client.put(tunnel, b"hello")
            await client.pinged()
            client.reset(tunnel, CANCEL)
            await until(lambda: ends)
            assert deciding.closed == [(0, 5, "client_gone")]
            await client.put(other, b"x")
            await client.pinged()

    run(check())


def test_a_reset_of_the_target_reaches_the_client(http2: Callable, run: Callable) -> None:
    async def check() -> None:
        deciding = Deciding()

        async def slam(target: Target) -> None:
            await target.reader.readexactly(5)
            linger = struct.pack("ii", 1, 0)
            target.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

        async with target_running(slam) as port, http2(deciding) as (_, client):
            tunnel = await client.open(port)
            await client.put(tunnel, b"hello, and more")
            assert await client.was_reset(tunnel) == CONNECT_ERROR
            await until(lambda: deciding.closed)
            assert deciding.closed[0][2] == "target_gone"

    run(check())


def test_a_disconnect_closes_all_tunnels_of_the_client(http2: Callable, run: Callable) -> None:
    async def check() -> None:
        deciding = Deciding()
        async with target_running() as port, http2(deciding) as (server, client):
            for _ in range(3):
                await client.open(port)
            client.writer.transport.abort()
            await until(lambda: len(deciding.closed) == 3)
            await until(lambda: not server.connections)
        assert {why for _, _, why in deciding.closed} == {"client_gone"}

    run(check())


@pytest.mark.parametrize("goes", ["reset", "gone"])
def test_a_decision_is_cancelled_when_its_stream_ends(goes: str, http2: Callable, run: Callable) -> None:
    async def check() -> None:
        deciding = Deciding()
        deciding.waits = asyncio.Event()
        async with http2(deciding) as (server, client):
            tunnel = client.ask("a.example:443")
            await until(lambda: deciding.asked)
            assert server.tunnel_count == 1
            if goes == "reset":
                client.reset(tunnel)
            else:
                client.writer.transport.abort()
            await until(lambda: deciding.cancelled)
            assert server.tunnel_count == 0
        assert deciding.closed == []

    run(check())


def test_a_late_decision_leaves_no_connection_open(http2: Callable, run: Callable) -> None:
    async def check() -> None:
        here, there = socket.socketpair()
        here.setblocking(False)
        deciding = Deciding()

        async def stubborn(_: object) -> object:
            with pytest.raises(asyncio.CancelledError):
                await asyncio.Event().wait()
            return AcceptedConnect(socket=here, on_closed=lambda *told: deciding.closed.append(told))

        deciding.open = stubborn  # type: ignore[method-assign, assignment]
        async with http2(deciding) as (_, client):
            tunnel = client.ask("a.example:443")
            await until(lambda: deciding.asked)
            client.reset(tunnel)
            await until(lambda: deciding.closed)
        assert deciding.closed == [(0, 0, "client_gone")]
        assert here.fileno() == -1
        there.close()

    run(check())


def test_a_failed_decision_ends_only_its_stream(http2: Callable) -> None:
    async def check() -> None:
        deciding, told = Deciding(), []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: told.append(what["message"]))
        async with target_running() as port, http2(deciding) as (_, client):
            tunnel = await client.open(port)
            assert await client.was_reset(client.ask("a.example:none")) == 2  # INTERNAL_ERROR
            await client.put(tunnel, b"x")
            assert await client.arrived(tunnel, 1) == b"x"
        assert told == ["a decision failed"]

    asyncio.run(check())
