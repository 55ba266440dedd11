"""Requests and responses of all forms, through the gateway and back."""

import asyncio
from collections.abc import Callable

import h11
import pytest

from tests.e2e.scripted import agent_at, read_request, says, served, until

GET = b"GET /x?q=1 HTTP/1.1\r\nHost: site.example:8080\r\n"


def lines(head: bytes) -> set[bytes]:
    return set(head.split(b"\r\n\r\n")[0].split(b"\r\n"))


@pytest.mark.parametrize("step", [0, 1, 7])
def test_a_request_and_its_response_go_through(step: int, run: Callable) -> None:
    async def check() -> None:
        async with served() as (_, gateway), agent_at(gateway) as agent:
            for number in range(3):
                reply = await agent.ask(GET + b"X-Number: %d\r\n\r\n" % number, step=step)
                assert reply.status == 200
                assert reply.body.startswith(b"GET /x?q=1 HTTP/1.1\r\nHost: site.example:8080\r\n")
                assert b"X-Number: %d" % number in lines(reply.body)

    run(check())


def test_connections_to_the_origin_are_kept_and_shared(run: Callable) -> None:
    async def check() -> None:
        async with served() as (origin, gateway):
            for _ in range(3):
                async with agent_at(gateway) as agent:
                    for _ in range(3):
                        assert (await agent.ask(GET + b"\r\n")).status == 200
            assert len(origin.connections) == 1

    run(check())


SAID = (
    b"Forwarded: for=9.9.9.9\r\nX-Forwarded-For: 9.9.9.9\r\nX-Forwarded-Host: other\r\nX-Forwarded-Proto: https\r\n"
    b"Via: 1.1 before\r\nX_Forwarded_For: 8.8.8.8\r\nX-Real-IP: 7.7.7.7\r\nX-Forwarded-Port: 444\r\n\r\n"
)


@pytest.mark.parametrize("step", [0, 1])
def test_bodies_go_through_in_the_framing_they_came_in(step: int, run: Callable) -> None:
    async def check() -> None:
        async with served() as (_, gateway), agent_at(gateway) as agent:
            reply = await agent.ask(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", step=step)
            assert reply.body.endswith(b"\r\n\r\nhello")
            assert b"Content-Length: 5" in lines(reply.body)
            chunks = b"5;ext=1\r\nhello\r\n006\r\n world\r\n0\r\nX-After: 1\r\n\r\n"
            reply = await agent.ask(
                b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n" + chunks, step=step
            )
            assert reply.body.endswith(b"\r\n\r\nhello world")
            assert b"Transfer-Encoding: chunked" in lines(reply.body)
            assert (await agent.ask(GET + b"\r\n", step=step)).status == 200

    run(check())


def test_pipelined_requests_are_answered_in_order(run: Callable) -> None:
    async def check() -> None:
        async with served() as (_, gateway), agent_at(gateway) as agent:
            post = b"POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
            sent = [GET.replace(b"/x", b"/%d" % n) + b"\r\n" if n % 2 else post % n for n in range(20)]
            await agent.send(b"".join(sent))
            for number in range(20):
                reply = await agent.response()
                assert reply.body.split(b" ")[1].startswith(b"/%d" % number)

    run(check())


def test_http_1_0_clients_get_http_1_0_framing(run: Callable) -> None:
    async def check() -> None:
        async with served() as (origin, gateway):
            async with agent_at(gateway) as agent:
                reply = await agent.ask(b"GET / HTTP/1.0\r\n\r\n")
                assert reply.field(b"connection") == b"close"
                assert f"Host: 127.0.0.1:{origin.port}".encode() in lines(reply.body)
                assert b"Via: 1.0 headgate" in lines(reply.body)
                assert await agent.rest() == b""
            async with agent_at(gateway) as agent:
                for _ in range(2):
                    reply = await agent.ask(b"GET / HTTP/1.0\r\nHost: a\r\nConnection: Keep-Alive\r\n\r\n")
                    assert reply.field(b"connection") == b"keep-alive"

    run(check())


def test_head_is_answered_with_the_length_and_no_body(run: Callable) -> None:
    async def check() -> None:
        async with served() as (_, gateway), agent_at(gateway) as agent:
            for _ in range(2):
                reply = await agent.ask(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
                assert int(reply.field(b"content-length") or 0) > 0
                assert reply.body == b""
            assert (await agent.ask(GET + b"\r\n")).status == 200

    run(check())


@pytest.mark.parametrize(
    ("response", "status", "length"),
    [
        (b"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n", 204, None),
        (b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", 204, None),
        (b"HTTP/1.1 304 Not Modified\r\nETag: x\r\nContent-Length: 999\r\n\r\n", 304, b"999"),
        (b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", 304, None),
        (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", 200, b"0"),
    ],
)
def test_responses_without_a_body_end_with_their_head(
    response: bytes, status: int, length: bytes | None, run: Callable
) -> None:
    async def check() -> None:
        async with served(says(response)) as (origin, gateway), agent_at(gateway) as agent:
            for _ in range(3):
                reply = await agent.ask(GET + b"\r\n")
                assert (reply.status, reply.body, reply.field(b"content-length")) == (status, b"", length)
            assert len(origin.connections) == 1

    run(check())


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
def test_chunked_responses_keep_their_trailers(version: bytes, run: Callable) -> None:
    response = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-After, Content-Length\r\n\r\n"
        b"5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nX-After: 1\r\nContent-Length: 3\r\n\r\n"
    )

    async def check() -> None:
        async with served(says(response)) as (_, gateway), agent_at(gateway) as agent:
            for _ in range(2 if version == b"1.1" else 1):
                reply = await agent.ask(b"GET / HTTP/%b\r\nHost: a\r\nTE: trailers\r\n\r\n" % version)
                assert reply.body == b"hello world"
                if version == b"1.1":
                    assert reply.trailers == [(b"x-after", b"1")]
                    assert reply.field(b"transfer-encoding") == b"chunked"
                else:
                    assert reply.trailers == []
                    assert reply.field(b"transfer-encoding") is None

    run(check())


EXPECTING = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-Continue\r\n\r\n"


def test_100_continue_comes_from_the_origin(run: Callable) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Expect: 100-continue" in lines(head)
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await reader.readexactly(5)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n" + body)
        await reader.read()

    async def check() -> None:
        async with served(script) as (_, gateway), agent_at(gateway) as agent:
            await agent.send(EXPECTING)
            assert await agent.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            reply = await agent.ask(b"hello")
            assert (reply.status, reply.body) == (200, b"hello")

    run(check())


def test_an_early_final_response_to_an_expectation_ends_the_connection(run: Callable) -> None:
    """The client may send the body or not: only the connection's end makes clear what comes next."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Much\r\nContent-Length: 2\r\n\r\nno")
        await reader.read()

    async def check() -> None:
        async with served(script) as (origin, gateway), agent_at(gateway) as agent:
            reply = await agent.ask(EXPECTING)
            assert (reply.status, reply.body) == (413, b"no")
            assert await agent.rest() == b""
            await until(origin.connections[0].ended.is_set)

    run(check())


def test_an_early_response_is_passed_on_while_the_body_still_comes(run: Callable) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbe")
        await reader.readexactly(5)
        writer.write(b"fn")
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async def check() -> None:
        async with served(script) as (_, gateway), agent_at(gateway) as agent:
            await agent.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe")
            assert (await agent.reader.readuntil(b"be")).endswith(b"\r\n\r\nbe")
            await agent.send(b"llo")
            assert await agent.reader.readexactly(2) == b"fn"
            assert (await agent.ask(GET + b"\r\n")).status == 200

    run(check())


def test_a_client_that_closes_its_half_still_gets_its_responses(run: Callable) -> None:
    async def check() -> None:
        async with served() as (_, gateway), agent_at(gateway) as agent:
            await agent.send((GET + b"\r\n") * 3)
            agent.writer.write_eof()
            for _ in range(3):
                assert (await agent.response()).status == 200
            assert await agent.rest() == b""

    run(check())


@pytest.mark.parametrize(
    "framing", [b"Content-Length: 9\r\n\r\nhello", b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"]
)
def test_a_body_that_breaks_off_is_never_completed(framing: bytes, run: Callable) -> None:
    async def check() -> None:
        async with served() as (origin, gateway), agent_at(gateway) as agent:
            await agent.send(b"POST / HTTP/1.1\r\nHost: a\r\n" + framing)
            await until(lambda: b"hello" in origin.received)
            agent.writer.write_eof()
            assert await agent.rest() == b""
            await until(origin.connections[0].ended.is_set)
            assert not origin.received.endswith(b"0\r\n\r\n")

    run(check())


def test_connection_close_ends_the_connection(run: Callable) -> None:
    async def check() -> None:
        async with served() as (_, gateway), agent_at(gateway) as agent:
            reply = await agent.ask(GET + b"Connection: Close\r\n\r\n" + GET + b"\r\n")
            assert reply.field(b"connection") == b"close"
            assert await agent.rest() == b""
            with pytest.raises(h11.RemoteProtocolError):
                await agent.response()

    run(check())
