"""Request heads, and what becomes of requests: decisions, and refusals."""

import asyncio

import pytest
from hyperframe.frame import RstStreamFrame

from headgate.proxy.connect import AcceptedConnect, ConnectRequest, RefusedConnect
from headgate.proxy.http2 import MAX_REQUEST_HEAD_SIZE, MAX_STREAMS, MalformedRequest, Request, parse_request
from tests.e2e.tunnels import StubDecision, target_running, until
from tests.unit.proxy.connected import PEER, connected

GET = [(":method", "GET"), (":scheme", "https"), (":path", "/feed"), (":authority", "a")]


async def test_the_decision_gets_the_whole_request() -> None:
    async with target_running() as port, connected() as pair:
        await pair.client.open(port, ("x", "é"), ("x", "z"))
        await pair.client.open(port)
    first, second = pair.decision.requests
    assert first == ConnectRequest(
        authority=f"a.example:{port}",
        fields=[("x", "Ã©"), ("x", "z")],
        peer=PEER,
        protocol="h2",
        head_bytes=first.head_bytes,
    )
    assert first.head_bytes > second.head_bytes > 9  # which HPACK knows already


async def test_the_decision_knows_of_the_shutdown() -> None:
    async with connected() as pair:
        pair.server.draining = True
        refused = pair.client.ask("a.example:443")
        assert await pair.client.answered(refused) == 503
        assert pair.decision.requests[0].draining


@pytest.mark.parametrize("ended", [False, True])
async def test_a_refused_stream_is_closed_at_once(ended: bool) -> None:
    decision = StubDecision()
    decision.refusals["no.example:443"] = RefusedConnect(status=403, reason="host")
    async with connected(decision) as pair:
        for _ in range(2 * MAX_STREAMS):
            refused = pair.client.ask("no.example:443", ended=ended)
            assert await pair.client.answered(refused) == 403
            assert pair.connection.tunnels == 0
            pair.advance(0.1)  # as many are allowed for ever
        await pair.client.ping()
        assert refused.code == (None if ended else 0)


async def test_a_surplus_connection_is_refused_and_closed() -> None:
    async with connected(surplus=True) as pair:
        refused = pair.client.ask("a.example:443")
        assert await pair.client.answered(refused) == 503
        assert (await pair.client.final_goaway()).last_stream_id == refused.number
        assert (pair.decision.early_refusals, pair.decision.requests) == (["connections"], [])


async def test_a_cancelled_decision_resets_the_stream() -> None:
    decision = StubDecision()

    async def cancelled(_: ConnectRequest) -> AcceptedConnect | RefusedConnect:
        raise asyncio.CancelledError

    decision.open = cancelled  # type: ignore[method-assign]
    async with connected(decision) as pair:
        assert await pair.client.was_reset(pair.client.ask("a.example:443")) == 2  # INTERNAL_ERROR


async def test_a_refusal_for_a_closed_stream_is_not_sent() -> None:
    decision = StubDecision()
    refused = RefusedConnect(status=403, reason="host")

    async def stubborn(_: ConnectRequest) -> AcceptedConnect | RefusedConnect:
        with pytest.raises(asyncio.CancelledError):
            await asyncio.Event().wait()
        return refused

    decision.open = stubborn  # type: ignore[method-assign]
    async with connected(decision) as pair:
        asked = pair.client.ask("a.example:443")
        await until(lambda: decision.requests)
        pair.client.send_frames(RstStreamFrame(asked.number))
        await pair.client.ping()
        assert asked.status == 0


async def test_a_failed_decision_is_reported_and_resets_the_stream() -> None:
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: told.append(what["message"]))
    async with connected() as pair:
        assert await pair.client.was_reset(pair.client.ask("a.example:none")) == 2  # INTERNAL_ERROR
    assert told == ["a decision failed"]


CONNECT = [(b":method", b"CONNECT"), (b":authority", b"www.example.org:443")]
GET_LINES = [(b":method", b"GET"), (b":scheme", b"https"), (b":path", b"/"), (b":authority", b"www.example.org")]


def test_connect_is_parsed() -> None:
    more = [(b"proxy-authorization", b"Bearer \xe9 x"), (b"chrome-tunnel", b""), (b"te", b"trailers")]
    assert parse_request([*CONNECT, *more]) == Request(
        "CONNECT",
        "www.example.org:443",
        [("proxy-authorization", "Bearer é x"), ("chrome-tunnel", ""), ("te", "trailers")],
    )
    assert parse_request(CONNECT[::-1]).authority == "www.example.org:443"


MALFORMED = [
    [],
    CONNECT[:1],
    CONNECT[1:],
    [*CONNECT, (b":path", b"/")],
    [*CONNECT, (b":scheme", b"https")],
    [*CONNECT, (b":protocol", b"connect-udp")],
    [*CONNECT, (b":status", b"200")],
    [*CONNECT, (b":unknown", b"x")],
    [*CONNECT, CONNECT[1]],
    [CONNECT[0], (b":authority", b"")],
    [CONNECT[0], (b":authority", b"a b:443")],
    [CONNECT[0], (b":authority", b"a\x00:443")],
    [CONNECT[0], (b":authority", b"\xc3\xa9:443")],
    [CONNECT[0], (b"host", b"a:443")],
    [CONNECT[0], (b"x", b"y"), CONNECT[1]],
    [(b":method", b""), CONNECT[1]],
    [*GET_LINES[:2], GET_LINES[3]],
    [GET_LINES[0], *GET_LINES[2:]],
    [*GET_LINES, (b":protocol", b"x")],
    [*CONNECT, (b"X", b"y")],
    [*CONNECT, (b"", b"y")],
    [*CONNECT, (b"a b", b"y")],
    [*CONNECT, (b"a:b", b"y")],
    [*CONNECT, (b"\xff", b"y")],
    [*CONNECT, (b"x", b"a\r\nb")],
    [*CONNECT, (b"x", b"a\nb")],
    [*CONNECT, (b"x", b"a\x00")],
    [*CONNECT, (b"x", b" a")],
    [*CONNECT, (b"x", b"a\t")],
    [*CONNECT, (b"x", b" ")],
    [*CONNECT, (b"x", b"a\x7fb")],
    [*CONNECT, (b"connection", b"close")],
    [*CONNECT, (b"proxy-connection", b"keep-alive")],
    [*CONNECT, (b"keep-alive", b"5")],
    [*CONNECT, (b"transfer-encoding", b"chunked")],
    [*CONNECT, (b"upgrade", b"h2c")],
    [*CONNECT, (b"te", b"gzip")],
    [*CONNECT, (b"host", b"a"), (b"host", b"a")],
    [*CONNECT, (b"content-length", b"5")],
    [*CONNECT, (b"content-length", b"0"), (b"content-length", b"0")],
    [*CONNECT, (b"content-length", b"+0")],
    [*CONNECT, (b"content-length", b"\xb2")],
    [*CONNECT, (b"x", b"y" * MAX_REQUEST_HEAD_SIZE)],
]


def test_malformed_heads() -> None:
    for lines in MALFORMED:
        with pytest.raises(MalformedRequest):
            parse_request(lines)


@pytest.mark.parametrize("value", [b"a", b"a b", b"a\tb", b"", b"\xff", b"a  b", b'"x\\"'])
def test_field_values(value: bytes) -> None:
    assert parse_request([*CONNECT, (b"x", value)]).fields == [("x", value.decode("latin-1"))]


def test_connect_with_a_content_length_of_zero() -> None:
    assert parse_request([*CONNECT, (b"content-length", b"0")]).method == "CONNECT"
    assert parse_request([*CONNECT, (b"host", b"other")]).authority == "www.example.org:443"
