"""Response heads: what is accepted has one meaning, and h11 reads it alike; what is hostile is refused."""

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.errors import ProtocolError
from headgate.http.h1 import check_response_start, parse_response_head, parse_usual_response_head
from tests.unit.http.h1.hostile import RESPONSES

USUAL = b"HTTP/1.1 200 OK\r\nDate: d\r\ncontent-length: 3\r\nX: y\r\nConnection: keep-alive\r\n\r\n"


def test_status_line_and_framing_are_read() -> None:
    head = parse_response_head(USUAL)
    assert (head.status, head.reason, head.minor, head.size) == (200, b"OK", 1, len(USUAL))
    assert (head.length, head.chunked, head.keep_alive, head.has_date) == (3, False, True, True)
    assert head.lines == b"Date: d\r\ncontent-length: 3\r\nX: y\r\nConnection: keep-alive\r\n"
    bare = parse_response_head(b"HTTP/1.0 404\r\n\r\n")
    assert (bare.status, bare.reason, bare.minor, bare.length, bare.has_date) == (404, b"", 0, -1, False)
    assert parse_response_head(b"HTTP/1.1 200 \r\nTransfer-Encoding: CHUNKED\r\n\r\n").chunked


def test_keep_alive_follows_version_and_connection() -> None:
    for head, keep_alive in (
        (b"HTTP/1.1 200 OK\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n", True),
    ):
        assert parse_response_head(head).keep_alive is keep_alive, head


def test_only_101_with_upgrade_websocket_switches_to_websocket() -> None:
    upgrade = b"Connection: Upgrade\r\nUpgrade: %b\r\n\r\n"
    assert parse_response_head(b"HTTP/1.1 101 S\r\n" + upgrade % b"WebSocket").websocket
    assert not parse_response_head(b"HTTP/1.1 200 OK\r\n" + upgrade % b"websocket").websocket
    assert not parse_response_head(b"HTTP/1.1 101 S\r\n" + upgrade % b"websocket, h2c").websocket
    assert not parse_response_head(b"HTTP/1.1 101 S\r\nUpgrade: websocket\r\n\r\n").websocket


def test_responses_with_a_body() -> None:
    for status, method, has_body in (
        (200, b"GET", True),
        (200, b"HEAD", False),
        (101, b"GET", False),
        (204, b"GET", False),
        (304, b"GET", False),
        (404, b"POST", True),
    ):
        assert parse_response_head(b"HTTP/1.1 %d X\r\n\r\n" % status).has_body(method) is has_body


def test_hostile_responses_are_refused_as_502() -> None:
    for name, message in RESPONSES.items():
        end = message.find(b"\r\n\r\n") + 4
        with pytest.raises(ProtocolError) as caught:
            parse_response_head(message[:end]) if end >= 4 else check_response_start(message)
        assert caught.value.status == 502, name
        assert end < 4 or parse_usual_response_head(message) is None, name


def test_beginning_that_cannot_become_a_head_is_refused_at_once() -> None:
    for beginning in (b"", b"H", b"HTTP/1.", b"HTTP/1.1 200 OK\r\nX: y\r"):
        check_response_start(beginning)
    for beginning in (b"X", b"HTTP/2", b"HTTP/1.1 200 OK\n", b"HTTP/1.1 200 OK\r\nX: \x00"):
        with pytest.raises(ProtocolError) as caught:
            check_response_start(beginning)
        assert caught.value.status == 502, beginning


def test_usual_head_is_forwardable_without_connection() -> None:
    expected = b"HTTP/1.1 200 OK\r\nDate: d\r\ncontent-length: 3\r\nX: y\r\n"
    for head in (
        USUAL,
        USUAL.replace(b"Connection: keep-alive\r\n", b""),
        b"HTTP/1.1 200 OK\r\nDate: d\r\nConnection: keep-alive\r\ncontent-length: 3\r\nX: y\r\n\r\n",
    ):
        found = parse_usual_response_head(head + b"abc")
        assert found is not None
        assert (found.size, found.length, found.forwardable) == (len(head), 3, expected)


def test_head_that_a_gateway_must_change_is_not_usual() -> None:
    for old, new in (
        (b"Date: d\r\n", b""),  # a gateway adds its own
        (b"HTTP/1.1", b"HTTP/1.0"),
        (b"keep-alive", b"close"),
        (b"200", b"101"),
        (b"content-length: 3", b"Transfer-Encoding: chunked"),
        (b"content-length: 3\r\n", b""),
        (b"X: y", b"Connection: keep-alive"),
        (b"X: y", b"Keep-Alive: timeout=5"),
        (b"X: y", b"Upgrade: h2c"),
        (b"content-length", b"Connection: keep-alive\r\ncontent-length"),
    ):
        assert parse_usual_response_head(USUAL.replace(old, new)) is None, new


_LINES = st.lists(
    st.sampled_from([
        b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 404 \r\n", b"HTTP/1.1 204\r\n", b"Content-Length: 5\r\n", b"X: y\r\n",
        b" z\r\n", b"Transfer-Encoding: chunked\r\n", b"Content-Length: 5, 5\r\n", b"Connection: close\r\n",
        b"Connection: keep-alive\r\n", b"Date: d\r\n", b"Keep-Alive: 5\r\n", b"\n", b"\r", b"\x00",
        b"Content-Length : 3\r\n", b"A: \xff\r\n", b": x\r\n", b"\x0b",
    ]),
    max_size=6,
)  # fmt: skip


@given(_LINES)
@example([b"HTTP/1.1 200 OK\r\n", b"Date: d\r\n", b"Content-Length: 5\r\n", b"Connection: keep-alive\r\n"])
@example([b"HTTP/1.1 204\r\n", b"Connection: keep-alive\r\n", b"Content-Length: 5\r\n", b"Date: d\r\n"])
def test_both_grammars_read_an_accepted_head_alike(parts: list[bytes]) -> None:
    head = b"".join(parts).split(b"\r\n\r\n")[0].removesuffix(b"\r\n") + b"\r\n\r\n"
    usual = parse_usual_response_head(head)
    if usual is not None:
        general = parse_response_head(head)
        general.reason, general.lines, general.forwardable = b"", b"", usual.forwardable
        assert usual == general


@given(_LINES)
@example([b"HTTP/1.1 200 OK\r\n", b"Content-Length: 5\r\n"])
def test_accepted_head_is_read_alike_by_h11(parts: list[bytes]) -> None:
    head = b"".join(parts).split(b"\r\n\r\n")[0].removesuffix(b"\r\n") + b"\r\n\r\n"
    try:
        response = parse_response_head(head)
    except ProtocolError:
        return
    machine = h11.Connection(h11.CLIENT)
    machine.send(h11.Request(method="GET", target="/", headers=[("Host", "a")]))
    machine.send(h11.EndOfMessage())
    machine.receive_data(head)
    event = machine.next_event()
    assert isinstance(event, h11.Response)
    assert event.status_code == response.status
    lengths = [value for name, value in event.headers if name == b"content-length"]
    assert lengths == ([b"%d" % response.length] if response.length >= 0 else [])
