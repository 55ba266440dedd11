"""The record of a request, and the files of the project that it passes through."""

import re
import sys
from pathlib import Path
from types import FrameType

import pytest

import headgate
from headgate.origin import client_address
from headgate.origin.gateway.record import RequestRecord
from tests.e2e.gateway_setup import agent_at, respond_with, served

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
