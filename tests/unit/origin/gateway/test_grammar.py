"""The grammar of heads: what is accepted means what it says, and h11 agrees."""

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.config.tree import Bounds
from headgate.origin.gateway.grammar import Request, check_beginning, parse_request
from headgate.origin.gateway.refusal import Refusal
from tests.e2e.hostile import HEADS

BOUNDS = Bounds()


def parse(head: bytes) -> Request:
    return parse_request(head, BOUNDS)


def test_a_plain_head() -> None:
    request = parse(b"GET /a/b?c=d HTTP/1.1\r\nHost: site.example:8080\r\nX-Two:  two words \t\r\nX-Empty:\r\n\r\n")
    assert (request.method, request.target, request.path, request.minor) == (b"GET", b"/a/b?c=d", b"/a/b", 1)
    assert request.host == b"site.example:8080"
    assert request.fields == [(b"host", b"site.example:8080"), (b"x-two", b"two words"), (b"x-empty", b"")]
    assert (request.length, request.chunked, request.has_body) == (-1, False, False)
    assert (request.keep_alive, request.expects, request.upgrade, request.trailers) == (True, False, False, False)


@pytest.mark.parametrize(
    ("line", "fields", "keep_alive"),
    [
        (b"GET / HTTP/1.1", b"", True),
        (b"GET / HTTP/1.1", b"Connection: close\r\n", False),
        (b"GET / HTTP/1.1", b"Connection: x\r\nConnection: , CLOSE ,\r\n", False),
        (b"GET / HTTP/1.1", b"Connection: closed\r\n", True),
        (b"GET / HTTP/1.0", b"", False),
        (b"GET / HTTP/1.0", b"Connection: Keep-Alive\r\n", True),
        (b"GET / HTTP/1.0", b"Connection: keep-alive, close\r\n", False),
    ],
)
def test_who_may_send_another_request(line: bytes, fields: bytes, keep_alive: bool) -> None:
    assert parse(line + b"\r\nHost: a\r\n" + fields + b"\r\n").keep_alive is keep_alive


@pytest.mark.parametrize(
    ("fields", "length", "chunked"),
    [
        (b"Content-Length: 0", 0, False),
        (b"content-length:\t42 ", 42, False),
        (b"Content-Length: 007", 7, False),
        (b"Content-Length: 999999999999999999", 999999999999999999, False),
        (b"Transfer-Encoding: chunked", -1, True),
        (b"TRANSFER-ENCODING: \t Chunked", -1, True),
    ],
)
def test_framings(fields: bytes, length: int, chunked: bool) -> None:
    request = parse(b"POST / HTTP/1.1\r\nHost: a\r\n" + fields + b"\r\n\r\n")
    assert (request.length, request.chunked) == (length, chunked)


@pytest.mark.parametrize(
    "host", [b"a", b"a.example.", b"127.0.0.1:80", b"[::1]", b"[::1]:8080", b"a:", b"x_y.example", b"%41"]
)
def test_hosts(host: bytes) -> None:
    assert parse(b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n\r\n").host == host


@pytest.mark.parametrize(
    "head",
    [message[: message.find(b"\r\n\r\n") + 4] for message, _ in HEADS.values() if b"\r\n\r\n" in message],
)
def test_every_hostile_head_is_refused(head: bytes) -> None:
    with pytest.raises(Refusal):
        parse(head)


@pytest.mark.parametrize(
    ("beginning", "status"),
    [
        (b"GET / HTTP/1.1\n", 400),
        (b"GET /\r\n", 400),
        (b"GET / HTTP/3.0\r\n", 505),
        (b"GET / HTTP/1.1\r\nX: y\rz", 400),
        (b"GET /" + b"a" * 8300, 414),
        (b"GET /" + b"a" * 8200 + b" HTTP/1.1\r\n", 414),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 65536, 431),
        (b"\x00", 400),
    ],
)
def test_what_can_never_become_a_head_is_refused_at_once(beginning: bytes, status: int) -> None:
    with pytest.raises(Refusal) as caught:
        check_beginning(bytearray(beginning), 0, BOUNDS)
    assert caught.value.status == status


GOOD = b"POST /a?b HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nX: y z\r\nConnection: TE\r\nTE: trailers\r\n\r\n"


def test_a_cr_at_the_end_of_one_read_is_judged_by_the_next() -> None:
    beginning = bytearray(b"GET / HTTP/1.1\r\nX: y\r")
    check_beginning(beginning, 0, BOUNDS)
    with pytest.raises(Refusal):
        check_beginning(beginning + b"z", len(beginning), BOUNDS)


def test_an_expectation_without_a_body_is_none() -> None:
    """9110 10.1.1: a 100-continue expectation has no meaning in a request without content."""
    assert not parse(b"GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n").expects
    assert parse(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: 100-Continue\r\n\r\n").expects


def test_every_beginning_of_a_good_head_may_go_on() -> None:
    for end in range(len(GOOD)):
        check_beginning(bytearray(GOOD[:end]), max(0, end - 1), BOUNDS)


# The differential: whatever is accepted here, h11 accepts, and understands alike.

_PARTS = st.sampled_from([
    b"GET", b"POST", b"OPTIONS", b" ", b"  ", b"\t", b"/", b"/a?b=c", b"http://a/", b"*", b"HTTP/1.1", b"HTTP/1.0",
    b"HTTP/2.0", b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"Host: a\r\n", b"Host:", b"Host : a\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 5, 5\r\n", b"Content-Length:", b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip\r\n",
    b"Connection: close\r\n", b"Expect: 100-continue\r\n", b"X: y\r\n", b" folded\r\n", b"\x00", b"\xff", b"\x0b",
    b":", b",",
    b"5", b"+", b"-", b"_", b"chunked", b"identity",
])  # fmt: skip
_SEEDS = st.sampled_from([
    GOOD,
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.0\r\n\r\n",
    b"PUT /x HTTP/1.1\r\nHost: a.example:80\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"GET http://a/b HTTP/1.1\r\nHost: a\r\nConnection: close, x\r\n\r\n",
    *(message[: message.find(b"\r\n\r\n") + 4] for message, _ in HEADS.values() if len(message) < 300),
])  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Cut, repeat and replace pieces of known heads; end with an empty line so that there is something to accept."""
    message = draw(_SEEDS)
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(message)))
        end = min(len(message), start + draw(st.integers(0, 12)))
        piece = draw(st.one_of(_PARTS, st.binary(max_size=3), st.just(message[start:end] * 2)))
        message = message[:start] + piece + message[end:]
    head = message.split(b"\r\n\r\n")[0] + b"\r\n\r\n"
    return head.removeprefix(b"\r\n")  # the connection skips an empty line before; h11 does not


@given(mutated())
@example(GOOD)
def test_whatever_is_accepted_h11_accepts_with_the_same_meaning(head: bytes) -> None:
    try:
        request = parse(head)
    except Refusal:
        return
    machine = h11.Connection(h11.SERVER)
    machine.receive_data(head)
    event = machine.next_event()
    assert isinstance(event, h11.Request)
    assert event.method == request.method
    assert event.http_version == b"1.%d" % request.minor
    assert event.target.endswith(request.target) or request.target in (b"*",) or event.target.startswith(b"http")
    # h11 writes names in lower case and the coding too, as this parser would.
    lowered = [(name, value.lower() if name == b"transfer-encoding" else value) for name, value in request.fields]
    assert [(bytes(name), bytes(value)) for name, value in event.headers] == lowered
    following = machine.next_event()
    if request.has_body:
        assert following is h11.NEED_DATA
        assert machine.they_are_waiting_for_100_continue == request.expects
    else:
        assert isinstance(following, h11.EndOfMessage)
        # And h11 takes what comes then for a new request exactly when this connection would.
        machine.receive_data(b"")
        expected = h11.DONE if request.keep_alive and request.minor else h11.MUST_CLOSE
        if request.minor:
            assert machine.their_state is expected


def test_the_differential_sees_accepted_heads() -> None:
    """Or it would compare nothing."""
    for head in (GOOD, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"GET / HTTP/1.0\r\n\r\n"):
        parse(head)
