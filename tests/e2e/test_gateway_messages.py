"""Requests and responses of all forms, through the gateway and back."""

import pytest

from tests.e2e.gateway_setup import agent_at, respond_with, served

pytestmark = pytest.mark.usefixtures("run")

GET = b"GET /x?q=1 HTTP/1.1\r\nHost: site.example:8080\r\n"


def lines(head: bytes) -> set[bytes]:
    return set(head.split(b"\r\n\r\n")[0].split(b"\r\n"))


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("buffered", [True, False])
async def test_bodies_go_through_with_their_length_if_it_is_known(step: int, buffered: bool) -> None:
    async with served(buffer_requests=buffered) as (_, gateway), agent_at(gateway) as agent:
        reply = await agent.ask(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", step=step)
        assert reply.body.endswith(b"\r\n\r\nhello")
        assert b"Content-Length: 5" in lines(reply.body)
        chunks = b"5;ext=1\r\nhello\r\n006\r\n world\r\n0\r\nX-After: 1\r\n\r\n"
        reply = await agent.ask(b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n" + chunks, step=step)
        assert reply.body.endswith(b"\r\n\r\nhello world")
        assert (b"Content-Length: 11" if buffered else b"Transfer-Encoding: chunked") in lines(reply.body)
        reply = await agent.ask(b"GET http://other:80/x HTTP/1.1\r\nHost: a\r\n\r\n", step=step)
        assert {b"GET /x HTTP/1.1", b"Host: other:80", b"X-Forwarded-Host: other:80"} <= lines(reply.body)


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
async def test_chunked_responses_keep_their_trailers(version: bytes) -> None:
    response = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-After, Content-Length\r\n\r\n"
        b"5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nX-After: 1\r\nContent-Length: 3\r\n\r\n"
    )
    async with served(respond_with(response)) as (_, gateway), agent_at(gateway) as agent:
        for _ in range(2 if version == b"1.1" else 1):
            reply = await agent.ask(b"GET / HTTP/%b\r\nHost: a\r\nTE: trailers\r\n\r\n" % version)
            assert reply.body == b"hello world"
            if version == b"1.1":
                assert reply.trailers == [(b"x-after", b"1")]
                assert reply.field(b"transfer-encoding") == b"chunked"
            else:
                assert reply.trailers == []
                assert reply.field(b"transfer-encoding") is None
