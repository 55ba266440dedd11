"""The record of a request, and the files of the project that it passes through."""

import json
import re
import sys
from pathlib import Path
from types import FrameType

import pytest

import headgate
from headgate.origin import client_address
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
    """Those that docs/contributing.md names, on a connection that has sent requests before."""
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
    page = (root.parents[1] / "docs/contributing.md").read_text()
    assert [name for name in FILES if f"`{name}`" not in page] == []


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


NEW = re.compile(rb"[0-9a-f]{16}")


@pytest.mark.parametrize(
    ("trusted", "lines", "passed"),
    [
        (True, b"X-Request-Id: abc-1\r\n", b"abc-1"),
        (True, b"x_request_id: abc-1\r\n", b""),
        (True, b"X-Request-Id: abc-1\r\nX-Request-Id: abc-1\r\n", b""),
        (True, b'X-Request-Id: "><script>\r\n', b""),
        (True, b"X-Request-Id: " + b"a" * 129 + b"\r\n", b""),
        (False, b"X-Request-Id: abc-1\r\n", b""),
    ],
)
@pytest.mark.parametrize("echoed", [b"", b"X-Request-ID: of-the-origin\r\n"])
async def test_each_request_has_one_id(trusted: bool, lines: bytes, passed: bytes, echoed: bytes) -> None:
    """That of a trusted proxy or a new one, at the origin, in the response and in the record; not that of others."""
    records: list[RequestRecord] = []
    proxies = client_address(["127.0.0.1"] if trusted else [])
    answer = respond_with(RESPONSE.replace(b"Date", echoed + b"Date"))
    async with served(answer, observe=records.append, trusted=proxies) as (origin, gateway), agent_at(gateway) as agent:
        reply = await agent.ask(GET.replace(b"User-Agent", lines + b"traceparent: 00-ab-cd-01\r\nUser-Agent"))
        sent = re.findall(rb"(?i)\nx.request.id: ([^\r]*)", origin.received)
    assert b"\ntraceparent: 00-ab-cd-01\r" in origin.received
    assert sent == [reply.field(b"x-request-id")] == [records[0].request_id]
    assert sent == [passed] if passed else NEW.fullmatch(sent[0])


async def test_an_answer_of_the_gateway_has_the_id_of_its_request() -> None:
    records: list[RequestRecord] = []
    async with served(respond_with(b"no\r\n\r\n"), observe=records.append) as (_, gateway), agent_at(gateway) as agent:
        failed = await agent.ask(GET)
        refused = await agent.ask(b"GET\r\n\r\n")
    assert (failed.status, refused.status) == (502, 400)
    ids = [reply.field(b"x-request-id") for reply in (failed, refused)]
    assert ids == [record.request_id for record in records]
    assert [json.loads(reply.body)["instance"].encode() for reply in (failed, refused)] == ids
    assert len(set(ids)) == 2
