"""Tunnels in HTTP/2: several in one connection, each with its own windows, its own end, and no harm to the others."""

import asyncio
import contextlib
import hashlib
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hyperframe.frame import DataFrame, GoAwayFrame, SettingsFrame, WindowUpdateFrame

from headgate.agent.proxy.asked import Limits, Opened, Refused
from headgate.agent.proxy.http2 import Http2
from headgate.agent.proxy.http2.window import MOST_OF_A_STREAM
from headgate.agent.proxy.page import Page
from headgate.agent.proxy.server import Patience, TunnelServer
from tests.e2e.http2_client import WIDEST, Http2Client, bounded, http2_at
from tests.e2e.tunnels import Deciding, Target, keys, proxy_running, target_running, trusting, until

FIRST = 65_535
"""Bytes of a window of which nothing has been said."""
CONNECT_ERROR, CANCEL, REFUSED_STREAM, STREAM_CLOSED, FLOW_CONTROL_ERROR, PROTOCOL_ERROR = 10, 8, 7, 5, 3, 1


@pytest.fixture
def run(run: Callable) -> Callable:
    """Run a test on each event loop, not for ever."""
    return lambda coroutine: run(bounded(coroutine))


@pytest.fixture
def listener(tmp_path: Path) -> ssl.SSLContext:
    return keys(tmp_path)


@pytest.fixture
def proxy(listener: ssl.SSLContext) -> Callable[..., Any]:
    """The function that runs a proxy and connects a client to it."""

    @asynccontextmanager
    async def connected(
        deciding: Deciding | None = None, *, client: dict[str, Any] | None = None, **settings: Any
    ) -> AsyncIterator[tuple[TunnelServer, Http2Client]]:
        async with (
            proxy_running(deciding, tls=listener, upgrades={"h2": Http2()}, **settings) as server,
            http2_at(server.addresses[0], trusting(), **(client or {})) as one,
        ):
            yield server, one

    return connected


def test_what_is_sent_comes_back(proxy: Callable, run: Callable) -> None:
    async def check() -> None:
        deciding = Deciding()
        async with target_running() as port, proxy(deciding) as (server, client):
            tunnel = await client.open(port, ("proxy-authorization", "Bearer x"))
            assert tunnel.fields == {}
            for word in (b"hello\n", b"x", b"y" * 1000):
                await client.put(tunnel, word)
                assert await client.arrived(tunnel, len(word)) == word
            assert server.busy == 1
            client.end(tunnel)
            await client.ended(tunnel)
            await until(lambda: deciding.closed)
            assert server.busy == 0
        assert deciding.closed == [(1007, 1007, "ended")]
        [asked] = deciding.asked
        assert asked.authority == f"a.example:{port}"
        assert list(asked.fields) == [("proxy-authorization", "Bearer x")]
        assert (asked.protocol, asked.peer[0], asked.certified, asked.draining) == ("h2", "127.0.0.1", False, False)
        assert 30 < asked.head_bytes < 80

    run(check())


def test_many_tunnels_share_a_connection(proxy: Callable, run: Callable) -> None:
    async def one(client: Http2Client, port: int, number: int) -> None:
        payload = os.urandom(20_000 + 10_000 * number)
        tunnel = await client.open(port)
        await client.put(tunnel, payload, end=True)
        assert await client.ended(tunnel) == payload

    async def check() -> None:
        deciding = Deciding()
        async with target_running() as port, proxy(deciding) as (_, client):
            assert client.settings[SettingsFrame.MAX_CONCURRENT_STREAMS] >= 100
            await asyncio.gather(*(one(client, port, number) for number in range(30)))
            await until(lambda: len(deciding.closed) == 30)
        assert {why for _, _, why in deciding.closed} == {"ended"}
        assert all(received == sent for received, sent, _ in deciding.closed)

    run(check())


@pytest.mark.parametrize("frame_size", [1, 100, 16_384, 60_000])
def test_bulk_comes_through_whole_in_frames_of_any_size(frame_size: int, proxy: Callable, run: Callable) -> None:
    async def check() -> None:
        payload = os.urandom(min(4 << 20, frame_size * 4000))
        async with target_running() as port, proxy() as (_, client):
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


def test_padding_is_not_passed_on_and_is_counted(proxy: Callable, run: Callable) -> None:
    async def check() -> None:
        async with target_running() as port, proxy() as (_, client):
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


def test_either_side_may_end_first(proxy: Callable, run: Callable) -> None:
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
            proxy(deciding) as (_, client),
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


def test_a_connect_may_be_all_that_a_client_says(proxy: Callable, run: Callable) -> None:
    async def speak(target: Target) -> None:
        assert await target.reader.read() == b""
        target.writer.write(b"news")

    async def check() -> None:
        async with target_running(speak) as port, proxy() as (_, client):
            assert await client.ended(client.ask(port, ended=True)) == b"news"

    run(check())


def test_what_is_sent_ahead_of_the_answer_belongs_to_the_tunnel(proxy: Callable, run: Callable) -> None:
    async def check() -> None:
        deciding = Deciding()
        deciding.waits = asyncio.Event()
        async with target_running() as port, proxy(deciding) as (_, client):
            tunnel = client.ask(port)
            await client.put(tunnel, b"early", end=True)
            await client.pinged()
            deciding.waits.set()
            assert await client.ended(tunnel) == b"early"

    run(check())


@pytest.mark.parametrize("is_ended", [False, True])
def test_a_refusal_leaves_the_others_alone(is_ended: bool, proxy: Callable, run: Callable) -> None:
    async def check() -> None:
        deciding = Deciding()
        fields = [("Retry-After", "0"), ("Proxy-Status", "headgate; error=http_request_denied")]
        deciding.refuses["no.example:443"] = Refused(status=403, fields=fields, reason="host")
        async with target_running() as port, proxy(deciding) as (server, client):
            tunnel = await client.open(port)
            refused = client.ask("no.example:443", ended=is_ended)
            assert await client.answered(refused) == 403
            await client.pinged()
            assert refused.fields == {name.lower(): value for name, value in fields}
            assert refused.is_ended
            assert refused.code == (None if is_ended else 0)  # nothing more is wanted of it
            assert server.busy == 1
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
def test_what_is_no_connect_is_told_so(lines: list, status: int, proxy: Callable, run: Callable) -> None:
    async def check() -> None:
        deciding = Deciding()
        async with target_running() as port, proxy(deciding) as (_, client):
            tunnel = await client.open(port)
            wrong = client.request(lines)
            assert await client.answered(wrong) == status
            assert deciding.complaints == ["method" if status == 405 else "malformed"]
            assert len(deciding.asked) == 1
            await client.put(tunnel, b"still here")
            assert await client.arrived(tunnel, 10) == b"still here"

    run(check())


def test_trailers_end_a_tunnel(proxy: Callable, run: Callable) -> None:
    async def check() -> None:
        deciding = Deciding()
        async with target_running() as port, proxy(deciding) as (_, client):
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


def test_data_behind_the_end_is_an_error_of_that_stream(proxy: Callable, run: Callable) -> None:
    async def check() -> None:
        async with target_running(swallow_and_wait) as port, proxy() as (_, client):
            tunnel = await client.open(port)
            client.end(tunnel)
            client.say(DataFrame(tunnel.number, data=b"more"))
            assert await client.was_reset(tunnel) == STREAM_CLOSED
            assert await client.open(port)

    run(check())


def test_a_reset_reaches_the_target_as_a_reset(proxy: Callable, run: Callable) -> None:
    async def check() -> None:
        deciding = Deciding()
        ends: list[BaseException | None] = []

        async def listen(target: Target) -> None:
            try:
                await target.reader.readexactly(10)
            except ConnectionResetError as error:
                ends.append(error)

        async with target_running(listen) as port, proxy(deciding) as (_, client):
            tunnel, other = await client.open(port), await client.open(port)
            await client.put(tunnel, b"hello")
            await client.pinged()
            client.reset(tunnel, CANCEL)
            await until(lambda: ends)
            assert deciding.closed == [(0, 5, "client_gone")]
            await client.put(other, b"x")
            await client.pinged()

    run(check())


def test_a_reset_of_the_target_reaches_the_client(proxy: Callable, run: Callable) -> None:
    async def check() -> None:
        deciding = Deciding()

        async def slam(target: Target) -> None:
            await target.reader.readexactly(5)
            linger = struct.pack("ii", 1, 0)
            target.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

        async with target_running(slam) as port, proxy(deciding) as (_, client):
            tunnel = await client.open(port)
            await client.put(tunnel, b"hello, and more")
            assert await client.was_reset(tunnel) == CONNECT_ERROR
            await until(lambda: deciding.closed)
            assert deciding.closed[0][2] == "target_gone"

    run(check())


def test_a_client_that_goes_takes_all_its_tunnels_along(proxy: Callable, run: Callable) -> None:
    async def check() -> None:
        deciding = Deciding()
        async with target_running() as port, proxy(deciding) as (server, client):
            for _ in range(3):
                await client.open(port)
            client.writer.transport.abort()
            await until(lambda: len(deciding.closed) == 3)
            await until(lambda: not server.connections)
        assert {why for _, _, why in deciding.closed} == {"client_gone"}

    run(check())


@pytest.mark.parametrize("goes", ["reset", "gone"])
def test_a_decision_that_nobody_waits_for_is_cancelled(goes: str, proxy: Callable, run: Callable) -> None:
    async def check() -> None:
        deciding = Deciding()
        deciding.waits = asyncio.Event()
        async with proxy(deciding) as (server, client):
            tunnel = client.ask("a.example:443")
            await until(lambda: deciding.asked)
            assert server.busy == 1
            if goes == "reset":
                client.reset(tunnel)
            else:
                client.writer.transport.abort()
            await until(lambda: deciding.cancelled)
            assert server.busy == 0
        assert deciding.closed == []

    run(check())


def test_a_decision_that_comes_too_late_leaves_nothing_open(proxy: Callable, run: Callable) -> None:
    async def check() -> None:
        here, there = socket.socketpair()
        here.setblocking(False)
        deciding = Deciding()

        async def stubborn(_: object) -> object:
            with pytest.raises(asyncio.CancelledError):
                await asyncio.Event().wait()
            return Opened(socket=here, closed=lambda *told: deciding.closed.append(told))

        deciding.open = stubborn  # type: ignore[method-assign, assignment]
        async with proxy(deciding) as (_, client):
            tunnel = client.ask("a.example:443")
            await until(lambda: deciding.asked)
            client.reset(tunnel)
            await until(lambda: deciding.closed)
        assert deciding.closed == [(0, 0, "client_gone")]
        assert here.fileno() == -1
        there.close()

    run(check())


def test_a_decision_that_fails_ends_its_stream_alone(proxy: Callable) -> None:
    async def check() -> None:
        deciding, told = Deciding(), []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: told.append(what["message"]))
        async with target_running() as port, proxy(deciding) as (_, client):
            tunnel = await client.open(port)
            assert await client.was_reset(client.ask("a.example:none")) == 2  # INTERNAL_ERROR
            await client.put(tunnel, b"x")
            assert await client.arrived(tunnel, 1) == b"x"
        assert told == ["a decision failed"]

    asyncio.run(check())


# How much and how long.


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (Limits(idle=0.3), "idle"),
        (Limits(max_seconds=0.3), "max_seconds"),
        (Limits(max_bytes=100_000), "max_bytes"),
        (Limits(byte_ratio=2.0), "byte_ratio"),
    ],
)
def test_a_tunnel_keeps_to_its_limits(limits: Limits, why: str, proxy: Callable, run: Callable) -> None:
    async def check() -> None:
        deciding = Deciding(limits)
        async with target_running() as port, proxy(deciding) as (_, client):
            tunnel = await client.open(port)
            deciding.limits = Limits()
            other = await client.open(port)
            if why in {"max_bytes", "byte_ratio"}:
                with contextlib.suppress(AssertionError):  # it is over amid that
                    await client.put(tunnel, bytes(60_000))
                    await client.put(tunnel, bytes(60_000))
            assert await client.was_reset(tunnel) == CANCEL
            await client.put(other, b"x")
            assert await client.arrived(other, 1) == b"x"
            [(received, sent, told)] = deciding.closed
            assert told == why
            assert received + sent <= 100_000 or why == "byte_ratio"

    run(check())


def test_bytes_keep_an_idle_tunnel_alive(proxy: Callable, run: Callable) -> None:
    async def check() -> None:
        async with target_running() as port, proxy(Deciding(Limits(idle=1.0))) as (_, client):
            tunnel = await client.open(port)
            for _ in range(8):
                await asyncio.sleep(0.2)
                await client.put(tunnel, b"x")
            assert await client.arrived(tunnel, 8) == b"x" * 8

    run(check())


# Flow control.


async def never_reads(target: Target) -> None:
    target.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await asyncio.Event().wait()


def test_a_tunnel_that_stands_still_holds_little_and_nobody_up(proxy: Callable, run: Callable) -> None:
    async def check() -> None:
        async with target_running(never_reads) as still, target_running() as port, proxy() as (server, client):
            stuck = [await client.open(still) for _ in range(3)]
            while any(tunnel.window for tunnel in stuck):
                for tunnel in stuck:
                    await client.put(tunnel, bytes(min(tunnel.window, 60_000)))
                await client.pinged()
            assert server.relay.waiting <= 3 * MOST_OF_A_STREAM
            tunnel = await client.open(port)
            payload = os.urandom(3 << 20)
            await client.put(tunnel, payload, end=True)
            assert await client.ended(tunnel) == payload
            for one in stuck:
                client.reset(one)
            await client.pinged()
            assert server.relay.waiting == 0

    run(check())


def test_a_tunnel_that_never_moved_holds_no_more_than_the_first_window(proxy: Callable, run: Callable) -> None:
    async def check() -> None:
        deciding = Deciding()
        deciding.waits = asyncio.Event()
        async with target_running() as port, proxy(deciding) as (server, client):
            tunnel = client.ask(port)
            await client.put(tunnel, bytes(FIRST))
            await client.pinged()
            assert (tunnel.window, server.relay.waiting) == (0, FIRST)
            deciding.waits.set()
            assert await client.arrived(tunnel, FIRST) == bytes(FIRST)
            await client.pinged()
            assert tunnel.window == 2 * FIRST
            assert server.relay.waiting == 0

    run(check())


def test_windows_widen_while_bytes_flow(proxy: Callable, run: Callable) -> None:
    async def check() -> None:
        async with target_running(Target.swallow) as port, proxy() as (_, client):
            tunnel = await client.open(port)
            widest = 0
            for _ in range(100):
                await client.put(tunnel, bytes(100_000))
                await client.pinged()
                widest = max(widest, min(tunnel.window, client.window))
            assert MOST_OF_A_STREAM / 2 < widest <= MOST_OF_A_STREAM

    run(check())


def test_a_target_is_not_read_ahead_of_its_client(proxy: Callable, run: Callable) -> None:
    async def check() -> None:
        payload = os.urandom(1 << 20)

        async def pour(target: Target) -> None:
            target.writer.write(payload)
            await target.writer.drain()
            await target.reader.read()

        async with target_running(pour) as port, proxy(client={"generous": False}) as (server, client):
            tunnel = await client.open(port)
            await client.until(lambda: len(tunnel.received) == FIRST)
            other = client.ask(port)  # the connection's window is used up, and it can be answered all the same
            assert await client.answered(other) == 200
            await client.pinged()
            assert (len(tunnel.received), len(other.received), server.relay.waiting) == (FIRST, 0, 0)
            client.say(WindowUpdateFrame(tunnel.number, window_increment=1 << 20))
            await client.pinged()
            assert len(tunnel.received) == FIRST
            client.say(WindowUpdateFrame(0, window_increment=1000))
            await client.until(lambda: len(tunnel.received) + len(other.received) == FIRST + 1000)
            client.say(WindowUpdateFrame(0, window_increment=WIDEST - 1000))
            await client.until(lambda: len(tunnel.received) == 1 << 20)
            assert bytes(tunnel.received) == payload

    run(check())


def test_settings_move_the_windows_of_streams_that_are_open(proxy: Callable, run: Callable) -> None:
    async def check() -> None:
        async def pour(target: Target) -> None:
            target.writer.write(b"x" * 200_000)
            await target.reader.read()

        size = SettingsFrame.INITIAL_WINDOW_SIZE
        ungenerous = {"generous": False, "settings": {size: 10}}
        async with target_running(pour) as port, proxy(client=ungenerous) as (_, client):
            client.say(WindowUpdateFrame(0, window_increment=1 << 20))
            tunnel = await client.open(port)
            await client.until(lambda: len(tunnel.received) == 10)
            client.say(SettingsFrame(0, settings={size: 1000}))
            await client.until(lambda: len(tunnel.received) == 1000)
            client.say(SettingsFrame(0, settings={size: 0}))  # and the stream owes 1000
            client.say(WindowUpdateFrame(tunnel.number, window_increment=1000))
            await client.pinged()
            assert len(tunnel.received) == 1000
            client.say(WindowUpdateFrame(tunnel.number, window_increment=1))
            await client.until(lambda: len(tunnel.received) == 1001)
            later = await client.open(port)
            await client.pinged()
            assert not later.received

    run(check())


def test_a_client_that_does_not_read_is_not_read_for(proxy: Callable, run: Callable) -> None:
    async def check() -> None:
        poured = 0

        async def pour(target: Target) -> None:
            nonlocal poured
            while True:
                target.writer.write(bytes(1 << 16))
                await target.writer.drain()
                poured += 1 << 16

        async with target_running(pour) as port, proxy() as (server, client):
            settings = {SettingsFrame.INITIAL_WINDOW_SIZE: WIDEST}
            async with http2_at(server.addresses[0], trusting(), settings=settings) as deaf:
                for _ in range(5):
                    await deaf.open(port)
                deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
                before = -1
                while poured > before:
                    before = poured
                    await asyncio.sleep(0.3)
                assert server.relay.waiting < 1 << 20
                tunnel = await client.open(port)
                assert await client.arrived(tunnel, 1 << 20)
            await until(lambda: server.busy <= 1)

    run(check())


# Several streams, and the end.


def test_more_streams_than_there_may_be_are_refused(proxy: Callable, run: Callable) -> None:
    async def check() -> None:
        deciding = Deciding()
        deciding.waits = asyncio.Event()
        async with target_running() as port, proxy(deciding) as (server, client):
            most = client.settings[SettingsFrame.MAX_CONCURRENT_STREAMS]
            asked = [client.ask(port) for _ in range(most)]
            assert await client.was_reset(client.ask(port)) == REFUSED_STREAM
            client.reset(asked.pop())
            await client.pinged()
            asked.append(client.ask(port))
            await client.pinged()
            assert server.busy == most
            deciding.waits.set()
            for tunnel in asked:
                assert await client.answered(tunnel) == 200

    run(check())


def test_the_end_lets_tunnels_go_on_and_refuses_new_ones(proxy: Callable, run: Callable) -> None:
    async def check() -> None:
        deciding = Deciding()
        async with target_running() as port, proxy(deciding) as (server, client):
            tunnel = await client.open(port)
            ending = asyncio.create_task(server.drain(30))
            await client.until(lambda: client.goaways)
            [first] = client.goaways
            assert (first.last_stream_id, first.error_code) == (WIDEST, 0)
            refused = client.ask(port)
            assert await client.answered(refused) == 503
            assert refused.fields["retry-after"] == "7"
            assert deciding.asked[-1].draining
            payload = os.urandom(1 << 20)
            await client.put(tunnel, payload, end=True)
            assert await client.ended(tunnel) == payload
            assert await ending == 0
            last = await client.left()
            assert (last.last_stream_id, last.error_code) == (refused.number, 0)
        assert deciding.closed == [(1 << 20, 1 << 20, "ended")]

    run(check())


def test_the_end_cuts_what_does_not_end(proxy: Callable, run: Callable) -> None:
    async def check() -> None:
        deciding = Deciding()
        async with target_running() as port, proxy(deciding) as (server, client):
            tunnels = [await client.open(port) for _ in range(3)]
            assert await server.drain(0.2) == 3
            last = await client.left()
            assert (last.last_stream_id, last.error_code) == (tunnels[-1].number, 0)
            assert {tunnel.code for tunnel in tunnels} == {CANCEL}
        assert [why for _, _, why in deciding.closed] == ["drained"] * 3

    run(check())


def test_a_connection_without_a_tunnel_does_not_keep_the_end_waiting(proxy: Callable, run: Callable) -> None:
    async def check() -> None:
        async with (
            target_running() as port,
            proxy() as (server, client),
            http2_at(server.addresses[0], trusting()) as other,
        ):
            tunnel = await client.open(port)
            ending = asyncio.create_task(server.drain(30))
            assert (await other.left()).error_code == 0
            assert [goaway.last_stream_id for goaway in other.goaways] == [WIDEST, 0]
            client.end(tunnel)
            assert await ending == 0

    run(check())


def test_a_client_that_leaves_is_let_go_when_its_tunnels_are_over(proxy: Callable, run: Callable) -> None:
    async def check() -> None:
        async with target_running() as port, proxy() as (_, client):
            tunnel = await client.open(port)
            client.say(GoAwayFrame(0))
            await client.put(tunnel, b"x")
            assert await client.arrived(tunnel, 1) == b"x"
            client.end(tunnel)
            await client.ended(tunnel)
            assert (await client.left()).error_code == 0

    run(check())


def test_a_quiet_client_is_left(proxy: Callable, run: Callable) -> None:
    async def check() -> None:
        async with target_running() as port, proxy(patience=Patience(quiet=0.5)) as (_, client):
            tunnel = await client.open(port)
            await asyncio.sleep(1)
            client.end(tunnel)
            await client.ended(tunnel)
            assert (await client.left()).error_code == 0

    run(check())


def test_a_connection_too_many_is_told_so(proxy: Callable, run: Callable) -> None:
    async def check() -> None:
        deciding = Deciding()
        async with target_running() as port, proxy(deciding, connections=1) as (server, client):
            async with http2_at(server.addresses[0], trusting()) as surplus:
                assert await surplus.answered(surplus.ask(port)) == 503
                assert (await surplus.left()).error_code == 0
            assert deciding.complaints == ["connections"]
            assert await client.open(port)

    run(check())


def test_pages_are_shown_as_the_windows_allow(proxy: Callable, run: Callable) -> None:
    async def check() -> None:
        body = os.urandom(200_000)
        pages = {"/feed": Page("text/csv", body), "/none": Page("text/plain", b"")}
        async with target_running() as port, proxy(pages=pages, client={"generous": False}) as (server, client):
            tunnel = await client.open(port)
            asked = {path: [*GET[:2], (":path", path), GET[3]] for path in ("/feed", "/feed?x", "/none", "/other")}
            shown = client.request(asked["/feed"], ended=True)
            assert await client.answered(shown) == 200
            assert shown.fields == {"content-type": "text/csv", "content-length": "200000"}
            await client.until(lambda: len(shown.received) == FIRST)
            client.say(WindowUpdateFrame(0, window_increment=WIDEST - FIRST))
            await client.pinged()
            client.say(WindowUpdateFrame(shown.number, window_increment=WIDEST - FIRST))
            assert await client.ended(shown) == body
            again = client.request([(":method", "HEAD"), *asked["/feed?x"][1:]], ended=True)
            assert await client.ended(again) == b""
            assert again.fields == shown.fields
            assert await client.ended(client.request(asked["/none"], ended=True)) == b""
            for lines, ended in ((asked["/other"], True), (asked["/feed"], False)):
                assert await client.answered(client.request(lines, ended=ended)) == 405
            await client.put(tunnel, b"x")
            assert server.busy == 1

    run(check())
