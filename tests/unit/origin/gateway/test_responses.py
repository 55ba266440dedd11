"""Responses that the gateway makes itself."""

import asyncio
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.bundle.files.open_file import OpenFile
from headgate.origin.gateway import responses
from headgate.origin.gateway.record import RequestRecord
from headgate.origin.gateway.responses import (
    FileResponse,
    date_line,
    gateway_problem,
    serialize,
)
from headgate.origin.response import FileSlice, Response
from tests.unit.origin.gateway.stub import StubTransport, turns

DATE = b"Date: Thu, 01 Jan 1970 00:00:01 GMT\r\n"


@pytest.fixture(autouse=True)
def _one_second_after_1970(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1.9)


@pytest.mark.parametrize(
    ("keep", "minor", "connection"),
    [(True, 1, b""), (True, 0, b"Connection: keep-alive\r\n"), (False, 1, b"Connection: close\r\n")],
)
def test_a_response_is_written_for_its_connection(keep: bool, minor: int, connection: bytes) -> None:
    response = Response(200, [(b"x", b"y"), (b"content-length", b"2")], b"hi")
    head = b"HTTP/1.1 200 OK\r\n" + DATE + connection + b"x: y\r\ncontent-length: 2\r\nX-Request-Id: %b\r\n\r\n"
    for name in (b"1", b"2", b"longer"):
        assert serialize(response, name, keep=keep, minor=minor) == (head % name + b"hi", 2)
        assert serialize(response, name, keep=keep, minor=minor, without_body=True) == (head % name, 0)


def test_a_response_without_a_body_is_written_whole_to_head_too() -> None:
    response = Response(599, [(b"content-length", b"0")], b"")
    for without_body in (False, True):
        written = serialize(response, b"1", keep=True, without_body=without_body)
        assert written == (b"HTTP/1.1 599 \r\n" + DATE + b"content-length: 0\r\nX-Request-Id: 1\r\n\r\n", 0)


def test_a_body_names_its_request_and_content_from_elsewhere_does_not() -> None:
    body = b"<{request_id}> <{request_id}>"
    response = Response(503, [(b"content-length", b"99")], body, names_request=True)
    for name in (b"0123", b"4567", b"0123456789abcdef" * 8, b"0123"):
        head, _, content = serialize(response, name, keep=True)[0].partition(b"\r\n\r\n")
        assert content == b"<%b> <%b>" % (name, name)
        assert b"content-length: %d\r\n" % len(content) in head
        assert head.endswith(b"X-Request-Id: " + name)
    assert serialize(Response(200, [], body), b"0123", keep=True)[0].endswith(body)


def test_the_date_moves_on() -> None:
    assert date_line(1) == DATE
    assert date_line(2) == DATE.replace(b":01 ", b":02 ")


def test_errors_are_problem_documents() -> None:
    response = gateway_problem(502, "the origin closed the connection")
    assert json.loads(response.body) == {
        "type": "about:blank",
        "title": "Bad Gateway",
        "status": 502,
        "detail": "The origin closed the connection.",
        "instance": "{request_id}",
    }
    assert b"allow" not in dict(response.fields)
    assert dict(gateway_problem(405, "x").fields)[b"allow"] == responses.ALLOW
    assert dict(gateway_problem(405, "x", allow=b"GET").fields)[b"allow"] == b"GET"


def test_a_limit_that_is_reached_says_when_to_return():
    answers = {status: dict(gateway_problem(status, "the origins are busy").fields) for status in (502, 503)}
    assert {status: fields.get(b"retry-after") for status, fields in answers.items()} == {502: None, 503: b"1"}


CONTENT = b"".join(b"%07d\n" % number for number in range(100_000))


class Transport(StubTransport):
    """Takes everything, and pauses its writer when `slow`."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0
        self.slow = False
        self.paused: Callable[[], None] = lambda: None
        self.limits: list[int | None] = []
        self.extra: dict[str, Any] = {}

    def write(self, data: bytes | bytearray | memoryview) -> None:
        super().write(data)
        self.largest = max(self.largest, len(data))
        if self.slow:
            self.buffered = len(data)
            self.paused()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.extra.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.limits.append(high)


class Client:
    """The client's connection, as far as a file response calls it."""

    def __init__(self) -> None:
        self.renewed = 0
        self.completed: list[tuple[bool, bool]] = []
        self.aborted = 0

    def renew_deadline(self) -> None:
        self.renewed += 1

    def complete(self, *, keep: bool, unread: bool) -> None:
        self.completed.append((keep, unread))

    def abort(self, reason: str) -> None:
        assert reason
        self.aborted += 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    return path


def make(path: Path, transport: Any, client: Any, *, keep: bool = True, unread: bool = False) -> FileResponse:
    source = FileSlice(OpenFile(path), 100, len(CONTENT) - 100)
    record = RequestRecord("192.0.2.1", 0.0, 0.0, None)
    return FileResponse(client, transport, record, source, keep=keep, unread=unread)


@pytest.mark.parametrize("unread", [False, True])
async def test_the_whole_slice_is_sent_in_pieces(path: Path, unread: bool) -> None:
    transport, client = Transport(), Client()
    make(path, transport, client, unread=unread).start()
    assert transport.written == b""  # not before others had a turn
    await turns(100)
    assert transport.written == CONTENT[100:]
    assert transport.largest == 131_072
    assert client.completed == [(True, unread)]
    assert client.renewed == -(-len(CONTENT) // 131_072) + 1


def test_all_but_the_last_piece_is_sent_with_sendfile_on_a_plain_socket(path: Path) -> None:
    async def check(limits: list[int | None], read: bytes, **extra: object) -> None:
        transport, client = Transport(), Client()
        near, far = socket.socketpair()
        with near, far:
            far.setblocking(False)
            near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * len(CONTENT))
            transport.extra = {"socket": near, **extra}
            make(path, transport, client).start()
            await turns(100)
            assert client.completed == [(True, False)]
            assert transport.written == read
            if read != CONTENT[100:]:
                assert far.recv(len(CONTENT), socket.MSG_WAITALL) == CONTENT[100 : -len(read)]
        # Paused whenever anything is buffered, so that what comes next can go the same way.
        assert transport.limits == limits

    asyncio.run(check([0, None], CONTENT[-131_072:]))
    asyncio.run(check([None], CONTENT[100:], ssl_object=object()))


async def test_a_slow_client_is_waited_for_and_each_piece_renews_the_deadline(path: Path) -> None:
    transport, client = Transport(), Client()
    response = make(path, transport, client)
    transport.slow, transport.paused = True, response.pause_response
    response.start()
    steps = 0
    while not client.completed:
        await turns(100)
        assert len(transport.written) <= (steps + 1) * 131_072
        assert client.renewed == steps + 1
        steps += 1
        transport.buffered = 0
        response.resume_response()
        assert len(transport.written) <= steps * 131_072  # not within the call, which asyncio does not allow
        await asyncio.sleep(0)
    assert transport.written == CONTENT[100:]


async def test_nothing_is_sent_once_abandoned_or_closing(path: Path) -> None:
    for leave in (lambda one, _: one.abandon(), lambda _, transport: transport.close()):
        transport, client = Transport(), Client()
        response = make(path, transport, client)
        response.start()
        await asyncio.sleep(0)
        leave(response, transport)
        sent = len(transport.written)
        await turns(100)
        assert len(transport.written) == sent
        assert client.completed == []


async def test_a_file_that_changes_aborts_the_connection(path: Path) -> None:
    transport, client = Transport(), Client()
    response = make(path, transport, client)
    transport.slow, transport.paused = True, response.pause_response
    response.start()
    await turns(100)
    path.write_bytes(CONTENT + b"more")  # noqa: ASYNC240 - a test may wait for its disk
    transport.buffered = 0
    response.resume_response()
    await turns(100)
    assert (client.aborted, client.completed) == (1, [])
    assert len(transport.written) == 131_072


async def test_a_file_that_has_changed_is_not_copied_to_the_socket(path: Path) -> None:
    transport, client = Transport(), Client()
    near, far = socket.socketpair()
    with near, far:
        far.setblocking(False)
        transport.extra = {"socket": near}
        response = make(path, transport, client)
        path.write_bytes(CONTENT + b"more")  # noqa: ASYNC240 - a test may wait for its disk
        response.start()
        await turns(100)
        assert client.aborted == 1
        with pytest.raises(BlockingIOError):
            far.recv(1)


def test_a_timeout_aborts_the_connection(path: Path) -> None:
    client = Client()
    response = make(path, Transport(), client)
    response.time_out(body_awaited=False)
    assert client.aborted == 1
    assert response.feed(b"x") == b"x"
