"""Request heads: what is accepted has one meaning, and h11 reads it alike; what is hostile is refused."""

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.errors import ProtocolError
from headgate.http.h1 import RequestBuffer, RequestHead, RequestLimits, parse_request_head, parse_usual_request_head
from headgate.http.h1.request import parse_general_request_head
from tests.unit.http.h1.hostile import HEADS

LIMITS = RequestLimits()
PLAIN = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
BROWSER = (
    b"GET /shop/item/7?ref=search HTTP/1.1\r\nHost: shop.example:8080\r\nConnection: keep-alive\r\n"
    b'sec-ch-ua: "Chromium";v="140"\r\nUser-Agent: Mozilla/5.0\r\nAccept: text/html,*/*;q=0.8\r\n'
    b"Referer: http://shop.example/\r\nCookie: a=b; c=d\r\n\r\n"
)
WITH_BODY = b"POST /a?b HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nX: y z\r\nConnection: TE\r\nTE: trailers\r\n\r\n"


def parse(head: bytes) -> RequestHead:
    return parse_request_head(head, LIMITS)


def with_fields(*lines: bytes, method: bytes = b"GET", version: bytes = b"1.1") -> RequestHead:
    return parse(method + b" / HTTP/" + version + b"\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n")


def whole_heads() -> list[bytes]:
    """Return the head of every hostile message that has one, and of those with a short body."""
    return [message[: message.find(b"\r\n\r\n") + 4] for message, _ in HEADS.values() if b"\r\n\r\n" in message]


# What a head means.


def test_request_line_and_fields_are_read() -> None:
    request = parse(b"GET /a/b?c=d HTTP/1.1\r\nHost: site.example:8080\r\nX-Two:  two words \t\r\nX-Empty:\r\n\r\n")
    assert (request.method, request.target, request.path, request.minor) == (b"GET", b"/a/b?c=d", b"/a/b", 1)
    assert request.host == b"site.example:8080"
    assert request.fields == [(b"host", b"site.example:8080"), (b"x-two", b"two words"), (b"x-empty", b"")]
    assert (request.length, request.chunked, request.has_body) == (-1, False, False)
    assert (request.keep_alive, request.expects_continue, request.websocket) == (True, False, False)
    assert request.connection == frozenset()
    assert not request.accepts_trailers


def test_values_of_one_field_are_found_without_splitting_the_others() -> None:
    request = with_fields(b"Host: a", b"ACCEPT: text/html \t", b"Accept-Language: en", b"accept:*/*", b"X-Accept: no")
    assert request.values(b"accept") == [b"text/html", b"*/*"]
    assert request.values(b"accept-encoding") == []


def test_keep_alive_follows_version_and_connection() -> None:
    for version, fields, keep_alive in (
        (b"1.1", (), True),
        (b"1.1", (b"Connection: close",), False),
        (b"1.1", (b"Connection: x", b"Connection: , CLOSE ,"), False),
        (b"1.1", (b"Connection: closed",), True),
        (b"1.0", (), False),
        (b"1.0", (b"Connection: Keep-Alive",), True),
        (b"1.0", (b"Connection: keep-alive, close",), False),
    ):
        assert with_fields(b"Host: a", *fields, version=version).keep_alive is keep_alive, fields


def test_framing_is_a_length_or_chunked() -> None:
    for field, length, chunked in (
        (b"Content-Length: 0", 0, False),
        (b"content-length:\t42 ", 42, False),
        (b"Content-Length: 0" + b"9" * 17, 10**17 - 1, False),
        (b"Transfer-Encoding: chunked", -1, True),
        (b"TRANSFER-ENCODING: \t Chunked", -1, True),
    ):
        request = with_fields(b"Host: a", field, method=b"POST")
        assert (request.length, request.chunked, request.has_body) == (length, chunked, chunked or length > 0)


def test_targets_in_absolute_form_become_paths_and_replace_host() -> None:
    for line, host, path in (
        (b"http://a/b?c HTTP/1.1\r\nHost: a", b"a", b"/b?c"),
        (b"HTTPS://A HTTP/1.1\r\nHost: a", b"A", b"/"),
        (b"http://a:80?b HTTP/1.1\r\nHost: b", b"a:80", b"/?b"),
        (b"http://[::1]/ HTTP/1.0", b"[::1]", b"/"),
    ):
        request = parse(b"GET " + line + b"\r\n\r\n")
        assert (request.host, request.target) == (host, path)
    assert parse(b"OPTIONS http://a HTTP/1.1\r\nHost: a\r\n\r\n").target == b"*"
    assert parse(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").target == b"*"


def test_connect_may_lack_host_and_must_lack_a_body() -> None:
    assert parse(b"CONNECT a:443 HTTP/1.1\r\n\r\n").target == b"a:443"
    with pytest.raises(ProtocolError, match="CONNECT with a body"):
        parse(b"CONNECT a:443 HTTP/1.1\r\nContent-Length: 1\r\n\r\n")


def test_expectation_without_a_body_is_ignored() -> None:
    """9110 10.1.1: a 100-continue expectation has no meaning in a request without content."""
    assert not with_fields(b"Host: a", b"Expect: 100-continue").expects_continue
    assert with_fields(b"Host: a", b"Content-Length: 1", b"Expect: 100-Continue", method=b"PUT").expects_continue
    assert not with_fields(b"Content-Length: 1", b"Expect: x", method=b"PUT", version=b"1.0").expects_continue


def test_only_get_without_a_body_can_switch_to_websocket() -> None:
    upgrade = b"Host: a", b"Connection: Upgrade", b"Upgrade: WebSocket"
    assert with_fields(*upgrade).websocket
    assert not with_fields(*upgrade, method=b"POST").websocket
    assert not with_fields(*upgrade, b"Content-Length: 1").websocket
    assert not with_fields(*upgrade, version=b"1.0").websocket
    assert not with_fields(b"Host: a", b"Upgrade: websocket").websocket
    assert not with_fields(b"Host: a", b"Connection: Upgrade", b"Upgrade: h2c").websocket


def test_te_trailers_accepts_trailers() -> None:
    assert parse(WITH_BODY).accepts_trailers
    assert not with_fields(b"Host: a", b"TE: gzip").accepts_trailers


# What is refused.


def test_hostile_heads_are_refused_with_their_status() -> None:
    for name, (message, status) in HEADS.items():
        end = message.find(b"\r\n\r\n") + 4
        if end < 4 or status == 405:
            continue  # incomplete, or well-formed and not served by a gateway
        with pytest.raises(ProtocolError) as caught:
            parse(message[:end])
        assert caught.value.status == status, name


def test_each_limit_has_its_status() -> None:
    limits = RequestLimits(target=10, head=60, body=5)
    for head, status in (
        (b"GET /" + b"a" * 10 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 60 + b"\r\n\r\n", 431),
        # The size comes first if the head is malformed as well.
        (b"GET /" + b"a" * 100 + b" nonsense\r\nHost: a\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nnonsense" + b"a" * 60 + b"\r\n\r\n", 431),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n", 413),
        (b"G" * 33 + b" / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ):
        with pytest.raises(ProtocolError) as caught:
            parse_request_head(head, limits)
        assert caught.value.status == status, head
    parse_request_head(b"GET /" + b"a" * 9 + b" HTTP/1.1\r\nHost: a\r\n\r\n", limits)
    parse_request_head(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n", limits)


# Heads that arrive in pieces.


def test_heads_are_found_in_any_pieces() -> None:
    data = b"\r\n" + PLAIN + WITH_BODY + b"0123456789"
    for step in (1, 2, 3, 7, len(data)):
        buffer, found = RequestBuffer(), []
        for start in range(0, len(data), step):
            buffer.append(data[start : start + step])
            if len(found) < 2:
                while (head := buffer.next_head(LIMITS)) is not None:
                    found.append(head)
                    if len(found) == 2:
                        break
        assert found == [PLAIN, WITH_BODY]
        assert buffer.take() == b"0123456789"
        assert len(buffer) == 0


def test_beginning_that_cannot_become_a_head_is_refused_at_once() -> None:
    for beginning, status in (
        (b"GET / HTTP/1.1\n", 400),
        (b"GET /\r\n", 400),
        (b"GET / HTTP/3.0\r\n", 505),
        (b"GET / HTTP/1.1\r\nX: y\rz", 400),
        (b"GET /" + b"a" * 8300, 414),
        (b"GET /" + b"a" * 8200 + b" HTTP/1.1\r\n", 414),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 65536, 431),
        (b"\x00", 400),
    ):
        buffer = RequestBuffer()
        buffer.append(beginning)
        with pytest.raises(ProtocolError) as caught:
            buffer.next_head(LIMITS)
        assert caught.value.status == status, beginning


def test_every_beginning_of_a_valid_head_is_accepted() -> None:
    for end in range(len(WITH_BODY)):
        buffer = RequestBuffer()
        for byte in WITH_BODY[:end]:
            buffer.append(bytes([byte]))
            assert buffer.next_head(LIMITS) is None


def test_cr_at_the_end_of_a_piece_is_checked_with_the_next_piece() -> None:
    buffer = RequestBuffer()
    buffer.append(b"GET / HTTP/1.1\r\nX: y\r")
    assert buffer.next_head(LIMITS) is None
    buffer.append(b"z")
    with pytest.raises(ProtocolError):
        buffer.next_head(LIMITS)


# The usual head: read in one pass, and never otherwise than by the general grammar.


def test_head_of_a_browser_is_usual() -> None:
    for head in (PLAIN, BROWSER, BROWSER.replace(b"Connection: keep-alive\r\n", b"")):
        request = parse_usual_request_head(head, LIMITS)
        assert request is not None
        assert request.forwardable == head.replace(b"Connection: keep-alive\r\n", b"")[:-2]
        assert request.fields == parse_general_request_head(head, LIMITS).fields


_LINES = st.sampled_from([
    b"Host: a", b"host:\ta ", b"HOST: a", b"Accept: */*", b"X: y", b"Cookie: a=b", b"Connection: keep-alive",
    b"connection: keep-alive", b"Connection: close", b"Connection: Keep-Alive", b"Content-Length: 5",
    b"Content_Length: 5", b"Transfer-Encoding: chunked", b"Expect: 100-continue", b"Via: 1.1 x", b"Forwarded: for=a",
    b"X-Forwarded-For: a", b"x_forwarded_host: b", b"X-Real-IP: a", b"TE: trailers", b"Te: gzip", b"Trailer: x",
    b"Upgrade: websocket", b"Keep-Alive: 5", b"Proxy: x", b"Proxy-Connection: x", b"Hostess: x", b"Vi: x", b"Tea: x",
    b" folded", b"A: \xff", b"B: \x00", b"no colon",
])  # fmt: skip
_REQUEST_LINES = st.sampled_from([
    b"GET / HTTP/1.1", b"POST /a?b HTTP/1.1", b"GET / HTTP/1.0", b"OPTIONS * HTTP/1.1", b"GET http://a/ HTTP/1.1",
    b"CONNECT a HTTP/1.1", b"FOO / HTTP/1.1", b"GET /#f HTTP/1.1", b"GET  / HTTP/1.1",
])  # fmt: skip


@given(_REQUEST_LINES, st.lists(_LINES, max_size=6))
@example(b"GET / HTTP/1.1", [b"Host: a", b"X: y", b"Connection: keep-alive"])
def test_both_grammars_read_an_accepted_head_alike(line: bytes, lines: list[bytes]) -> None:
    head = b"\r\n".join([line, *lines]) + b"\r\n\r\n"
    usual = parse_usual_request_head(head, LIMITS)
    if usual is not None:
        general = parse_general_request_head(head, LIMITS)
        general.forwardable = usual.forwardable
        assert usual == general


def test_hostile_heads_are_not_usual() -> None:
    for head in whole_heads():
        request = parse_usual_request_head(head, LIMITS)
        assert request is None, head


# Whatever is accepted here, h11 accepts, and understands alike.

_PARTS = st.sampled_from([
    b"GET", b"POST", b"OPTIONS", b" ", b"  ", b"\t", b"/", b"/a?b=c", b"http://a/", b"*", b"HTTP/1.1", b"HTTP/1.0",
    b"HTTP/2.0", b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"Host: a\r\n", b"Host:", b"Host : a\r\n",
    b"Content-Length: 5\r\n", b"Content-Length: 5, 5\r\n", b"Content-Length:", b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip\r\n", b"Connection: close\r\n", b"Connection: keep-alive\r\n",
    b"Expect: 100-continue\r\n", b"X: y\r\n", b" folded\r\n", b"\x00", b"\xff", b"\x0b", b":", b",", b"5", b"+", b"-",
    b"_", b"chunked", b"identity",
])  # fmt: skip
_SEEDS = st.sampled_from([
    WITH_BODY, PLAIN, BROWSER, b"GET / HTTP/1.0\r\n\r\n",
    b"PUT /x HTTP/1.1\r\nHost: a.example:80\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"GET http://a/b HTTP/1.1\r\nHost: a\r\nConnection: close, x\r\n\r\n",
    *(head for head in whole_heads() if len(head) < 300),
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
    return head.removeprefix(b"\r\n")  # `RequestBuffer` skips an empty line before a head; h11 does not


@given(mutated())
@example(WITH_BODY)
@example(PLAIN)
@example(BROWSER)
@example(b"GET / HTTP/1.0\r\n\r\n")
def test_accepted_head_is_read_alike_by_h11(head: bytes) -> None:
    try:
        request = parse(head)
    except ProtocolError:
        assert head not in (WITH_BODY, PLAIN, BROWSER)
        return
    if request.method == b"CONNECT":
        return  # h11 wants a Host
    machine = h11.Connection(h11.SERVER)
    machine.receive_data(head)
    event = machine.next_event()
    assert isinstance(event, h11.Request)
    assert event.method == request.method
    assert event.http_version == b"1.%d" % request.minor
    assert event.target.endswith(request.target) or request.target == b"*" or event.target.startswith(b"http")
    # h11 writes names in lower case and the coding too, as this parser would.
    lowered = [(name, value.lower() if name == b"transfer-encoding" else value) for name, value in request.fields]
    assert [(bytes(name), bytes(value)) for name, value in event.headers] == lowered
    following = machine.next_event()
    if request.has_body:
        assert following is h11.NEED_DATA
        assert machine.they_are_waiting_for_100_continue == request.expects_continue
    else:
        assert isinstance(following, h11.EndOfMessage)
        # And h11 takes what comes then for a new request exactly when a server here would.
        machine.receive_data(b"")
        if request.minor:
            assert machine.their_state is (h11.DONE if request.keep_alive else h11.MUST_CLOSE)
