"""Origins that truncate responses, violate HTTP, pause or are unreachable: the client gets an error."""

import json

import h11
import pytest

from tests import servers
from tests.e2e.gateway_setup import Reply, agent_at, gateway_running, origin_running, respond_with, served

pytestmark = pytest.mark.usefixtures("run")

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"


def is_problem(reply: Reply, status: int) -> bool:
    document = json.loads(reply.body)
    assert document["status"] == status
    assert document["detail"]
    return reply.status == status and reply.field(b"content-type") == b"application/problem+json"


async def test_an_origin_that_is_down_is_502_until_it_is_up() -> None:
    async with gateway_running(servers.free_port()) as gateway, agent_at(gateway) as agent:
        for request in (GET, POST, GET):
            assert is_problem(await agent.ask(request), 502)
        async with origin_running() as origin:
            gateway.origins.pools[0].port = origin.port
            assert (await agent.ask(GET)).status == 200


TRUNCATED = {
    "length": b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello",
    "chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\nhello",
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    "trailers": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n",
    "a bad chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n",
}


@pytest.mark.parametrize("name", TRUNCATED)
async def test_a_truncated_response_is_never_completed(name: str) -> None:
    async with served(respond_with(TRUNCATED[name], close=True)) as (_, gateway):
        async with agent_at(gateway) as agent:
            await agent.send(GET)
            with pytest.raises((h11.RemoteProtocolError, ConnectionError)):
                await agent.response()
        assert gateway.origins.pools[0].failures["truncated"] == 1
