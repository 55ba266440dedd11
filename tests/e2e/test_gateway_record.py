"""The record of a request, and the files of the project that it passes through."""

import sys
from pathlib import Path
from types import FrameType

import pytest

import headgate
from headgate.origin.gateway.record import RequestRecord
from headgate.release import Status
from tests.e2e.gateway_setup import agent_at, respond_with, served, until

pytestmark = pytest.mark.usefixtures("run")

GET = b"GET /page?x HTTP/1.1\r\nHost: a\r\nUser-Agent: b\r\n\r\n"
RESPONSE = b"HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\n\r\nhi"
FILES = {
    "http/h1/request.py",
    "origin/gateway/client_connection.py",
    "origin/gateway/policy.py",
    "limit/gatekeeper.py",
    "limit/master.py",
    "limit/history.py",
    "origin/gateway/exchange.py",
    "http/h1/response.py",
}


async def test_a_proxied_request_touches_eight_files() -> None:
    """Those that docs/tour.md names, on a connection that has sent requests before."""
    root, touched = Path(headgate.__file__).parent, set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(root)):
            touched.add(Path(frame.f_code.co_filename).relative_to(root).as_posix())

    async with served(respond_with(RESPONSE), rule="1000/s burst 1000") as (_, gateway), agent_at(gateway) as agent:
        await agent.ask(GET)
        gateway._ticking.cancel()  # the clock, which is no part of a request
        sys.setprofile(note)
        try:
            assert (await agent.ask(GET)).body == b"hi"
        finally:
            sys.setprofile(None)
    assert touched == FILES
    tour = (root.parents[1] / "docs/tour.md").read_text()
    assert [name for name in FILES if f"`{name}`" not in tour] == []


async def test_a_request_leaves_one_record() -> None:
    records: list[RequestRecord] = []
    settings = {"rule": "1/h burst 1", "observe": records.append}
    async with served(respond_with(RESPONSE), **settings) as (origin, gateway), agent_at(gateway) as agent:
        assert [(await agent.ask(GET)).status for _ in range(2)] == [200, 503]
        await agent.send(b"GET\r\n\r\n")
        await until(lambda: len(records) == 3)
    accepted, rejected, malformed = records
    assert [(one.client, one.status, one.reason) for one in records] == [
        ("127.0.0.1", 200, ""), ("127.0.0.1", 503, "rule"), ("127.0.0.1", 400, "malformed"),
    ]  # fmt: skip
    assert accepted.accounting is not None
    assert rejected.accounting is not None
    assert (accepted.accounting.status, accepted.accounting.identifier) == (Status.ACCEPTED, b"127.0.0.1")
    assert rejected.accounting.status is Status.REJECTED
    assert accepted.request is not None
    assert (accepted.request.path, accepted.bytes, accepted.upstream) == (b"/page", 2, f"127.0.0.1:{origin.port}")
    assert accepted.start <= accepted.upstream_start <= accepted.upstream_first_byte <= accepted.end
    assert (rejected.upstream, malformed.request) == ("", None)
