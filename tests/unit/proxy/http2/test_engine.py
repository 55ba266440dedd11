"""The protocol of one connection, without I/O: events of received frames, frames of commands."""

import struct
from itertools import islice

import pytest
from hpack import Decoder, Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    PushPromiseFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from hyperframe.frame import Frame as TheirFrame

from headgate.proxy.http2 import frames
from headgate.proxy.http2.engine import MAX_STREAMS, Http2Engine
from headgate.proxy.http2.events import (
    Event,
    GoawayReceived,
    PingAnswered,
    RequestReceived,
    StreamReset,
    WindowIncreased,
)
from headgate.proxy.http2.frames import DataReceived, ErrorCode, Http2Error
from headgate.proxy.http2.limits import INITIAL_WINDOW, MAX_WINDOW
from tests.e2e.http2_attacks import ATTACKS

CONNECT = [(":method", "CONNECT"), (":authority", "a:443")]
FIELDS = [(name.encode(), value.encode()) for name, value in CONNECT]


def head(stream: int, fields: list[tuple[str, str]] = CONNECT, *flags: str) -> HeadersFrame:
    return HeadersFrame(stream, data=Encoder().encode(fields), flags=["END_HEADERS", *flags])


def receive(engine: Http2Engine, *received: TheirFrame | bytes) -> list[Event]:
    raw = b"".join(one if isinstance(one, bytes) else one.serialize() for one in received)
    return list(engine.receive(memoryview(raw), now=0.0))


def sent(engine: Http2Engine) -> list[TheirFrame]:
    found = []
    while engine.output:
        one, length = TheirFrame.parse_frame_header(memoryview(bytes(engine.output[:9])))
        one.parse_body(memoryview(bytes(engine.output[9 : 9 + length])))
        found.append(one)
        del engine.output[: 9 + length]
    return found


@pytest.fixture
def engine() -> Http2Engine:
    """Return one that has received the client's preface and settings."""
    made = Http2Engine()
    assert receive(made, frames.PREFACE, SettingsFrame(0)) == []
    made.output.clear()
    return made


def test_our_settings_come_first() -> None:
    [first] = sent(Http2Engine())
    assert dict(first.settings) == {
        SettingsFrame.ENABLE_PUSH: 0,
        SettingsFrame.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
        SettingsFrame.MAX_FRAME_SIZE: frames.MAX_DATA_SIZE,
        SettingsFrame.MAX_HEADER_LIST_SIZE: 16_384,
    }


def test_a_request_has_its_fields_as_received(engine: Http2Engine) -> None:
    [event] = receive(engine, head(5, [*CONNECT, ("X", " y\n")]))
    assert isinstance(event, RequestReceived)
    assert [tuple(pair) for pair in event.fields] == [*FIELDS, (b"X", b" y\n")]
    assert (event.stream_id, event.is_last, engine.last_stream_id) == (5, False, 5)
    [event] = receive(engine, head(7, CONNECT, "END_STREAM"))
    assert isinstance(event, RequestReceived)
    assert event.is_last


@pytest.mark.parametrize("pieces", [1, 2, 5])
def test_a_head_may_come_in_several_frames_with_padding_and_priority(engine: Http2Engine, pieces: int) -> None:
    block = Encoder().encode(CONNECT)
    size = -(-len(block) // pieces)
    parts = [block[start : start + size] for start in range(0, len(block), size)]
    first = HeadersFrame(1, data=parts[0], pad_length=3, depends_on=0, flags=["PADDED", "PRIORITY"])
    rest = [ContinuationFrame(1, data=part) for part in parts[1:]]
    (rest[-1] if rest else first).flags.add("END_HEADERS")
    [event] = receive(engine, first, *rest)
    assert isinstance(event, RequestReceived)
    assert [tuple(pair) for pair in event.fields] == FIELDS
    assert event.head_size == sum(len(one.serialize()) for one in (first, *rest))


def test_a_tunnel_ends_in_each_direction_apart(engine: Http2Engine) -> None:
    receive(engine, head(1))
    engine.respond(1, 200, (), is_last=False)
    [data] = receive(engine, DataFrame(1, data=b"x", flags=["END_STREAM"]))
    assert data == DataReceived(1, [memoryview(b"x")], 1, is_last=True)
    engine.end_stream(1)
    engine.end_stream(1)
    opened, end = sent(engine)
    assert Decoder().decode(opened.data) == [(":status", "200")]
    assert (end.type, end.stream_id, end.flags) == (0, 1, {"END_STREAM"})
    engine.close_stream(1)
    assert (sent(engine), engine.streams) == ([], {})


def test_a_refused_stream_is_reset_unless_the_client_has_ended_it(engine: Http2Engine) -> None:
    receive(engine, head(1), head(3, CONNECT, "END_STREAM"))
    for stream in (1, 3):
        engine.respond(stream, 403, [("Retry-After", "0")], is_last=True)
        engine.close_stream(stream, ErrorCode.NO_ERROR)
    refused, reset, _ = sent(engine)
    assert Decoder().decode(refused.data) == [(":status", "403"), ("retry-after", "0")]
    assert "END_STREAM" in refused.flags
    assert (reset.type, reset.stream_id, reset.error_code) == (3, 1, 0)


def test_commands_for_a_stream_that_is_over_do_nothing(engine: Http2Engine) -> None:
    receive(engine, head(1), RstStreamFrame(1))
    engine.respond(1, 403, (), is_last=True)
    engine.end_stream(1)
    engine.close_stream(1)
    engine.update_stream_window(1, 0, growth=0)
    assert (sent(engine), engine.send_capacity(1)) == ([], 0)


def test_settings_change_the_windows_of_all_streams(engine: Http2Engine) -> None:
    receive(engine, head(1))
    for size, event in ((1000, []), (2000, [WindowIncreased(0)]), (0, [])):
        assert receive(engine, SettingsFrame(0, settings={4: size, 0x1234: 5, 8: 1})) == event
        receive(engine, head(engine.last_stream_id + 2))
        assert {stream.send_window for stream in engine.streams.values()} == {size}
        [ack] = sent(engine)
        assert (ack.type, ack.flags) == (4, {"ACK"})


def test_the_clients_header_table_is_respected(engine: Http2Engine) -> None:
    receive(engine, SettingsFrame(0, settings={1: 0}), head(1), head(3))
    engine.output.clear()
    decoder = Decoder()
    decoder.max_allowed_table_size = 0
    for stream in (1, 3):
        engine.respond(stream, 403, [("x", "y")], is_last=True)
        [response] = sent(engine)
        assert decoder.decode(response.data) == [(":status", "403"), ("x", "y")]
    assert not decoder.header_table.dynamic_entries


def responses(engine: Http2Engine, *sizes: int) -> list[bytes]:
    """Return the header blocks of responses after changes of the client's header table."""
    blocks = []
    for stream, size in zip(range(1, 100, 2), sizes, strict=False):
        receive(engine, SettingsFrame(0, settings={1: size}), head(stream))
        engine.respond(stream, 200, (), is_last=False)
        blocks.append(bytes(sent(engine)[-1].data))
    return blocks


def test_a_changed_header_table_is_announced_in_the_next_response(engine: Http2Engine) -> None:
    announced = b"\x20\x88", b"\x3f\xe1\x1f\x88"  # RFC 7541, 4.2: to 0, and to 4096
    assert responses(engine, 65_536, 4096, 0, 0, 65_536) == [b"\x88", b"\x88", announced[0], b"\x88", announced[1]]


def test_a_connection_with_plain_responses_has_no_encoder(engine: Http2Engine) -> None:
    responses(engine, 65_536, 4096)
    assert engine._encoder is None
    receive(engine, head(5))
    engine.respond(5, 200, [("Content-Type", "text/csv")], is_last=False)
    assert Decoder().decode(sent(engine)[-1].data) == [(":status", "200"), ("content-type", "text/csv")]


def test_pings_are_answered(engine: Http2Engine) -> None:
    assert receive(engine, PingFrame(0, opaque_data=b"12345678")) == []
    [answer] = sent(engine)
    assert (answer.opaque_data, answer.flags) == (b"12345678", {"ACK"})
    answered = PingFrame(0, opaque_data=b"headgate", flags=["ACK"])
    assert receive(engine, answered, GoAwayFrame(0)) == [PingAnswered(b"headgate"), GoawayReceived()]


STREAM_ERRORS = [
    (head(1), head(1), ErrorCode.PROTOCOL_ERROR),  # 8.5: no trailers in a tunnel
    (head(1, CONNECT, "END_STREAM"), head(1), ErrorCode.STREAM_CLOSED),
    (head(1, CONNECT, "END_STREAM"), DataFrame(1, data=b"x"), ErrorCode.STREAM_CLOSED),
    (head(1), WindowUpdateFrame(1, window_increment=MAX_WINDOW), ErrorCode.FLOW_CONTROL_ERROR),
    (head(1), b"\0\0\x04\x08\0\0\0\0\x01\0\0\0\0", ErrorCode.PROTOCOL_ERROR),
]


def test_an_error_of_a_stream_resets_it_and_no_other() -> None:
    for begun, wrong, code in STREAM_ERRORS:
        engine = Http2Engine()
        receive(engine, frames.PREFACE, SettingsFrame(0), begun, head(3))
        engine.output.clear()
        assert receive(engine, wrong) == [StreamReset(1)], code
        [reset] = sent(engine)
        assert (reset.type, reset.stream_id, reset.error_code) == (3, 1, code)
        assert list(engine.streams) == [3]
        assert receive(engine, DataFrame(1, data=b"in flight"), head(1)) == []


CONNECTION_ERRORS = [
    (head(2), ErrorCode.PROTOCOL_ERROR),
    (head(5).serialize() + head(3).serialize(), ErrorCode.STREAM_CLOSED),
    (SettingsFrame(0, settings={2: 5}), ErrorCode.PROTOCOL_ERROR),
    (SettingsFrame(0, settings={5: 5}), ErrorCode.PROTOCOL_ERROR),
    (SettingsFrame(0, settings={5: 1 << 24}), ErrorCode.PROTOCOL_ERROR),
    (SettingsFrame(0, settings={8: 2}), ErrorCode.PROTOCOL_ERROR),
    (SettingsFrame(0, settings={4: 1 << 31}), ErrorCode.FLOW_CONTROL_ERROR),
    (frames.header(2, 1, 4, 1) + b"\xff\xff", ErrorCode.COMPRESSION_ERROR),
    (frames.header(1, 1, 4, 1) + b"\xff", ErrorCode.COMPRESSION_ERROR),
    (frames.header(3, 1, 4 | 8, 1) + b"\x09ab", ErrorCode.PROTOCOL_ERROR),  # padding larger than the frame
    (frames.header(3, 1, 4 | 32, 1) + b"abc", ErrorCode.FRAME_SIZE_ERROR),  # priority incomplete
    (frames.header(0, 1, 4 | 8, 1), ErrorCode.FRAME_SIZE_ERROR),  # no Pad Length
    (DataFrame(1, data=b"x"), ErrorCode.PROTOCOL_ERROR),
    (RstStreamFrame(1), ErrorCode.PROTOCOL_ERROR),
    (WindowUpdateFrame(1, window_increment=1), ErrorCode.PROTOCOL_ERROR),
    (WindowUpdateFrame(0, window_increment=MAX_WINDOW), ErrorCode.FLOW_CONTROL_ERROR),
    (b"\0\0\x04\x08\0\0\0\0\0\0\0\0\0", ErrorCode.PROTOCOL_ERROR),  # WINDOW_UPDATE by 0
    (
        head(1).serialize()
        + WindowUpdateFrame(1, window_increment=MAX_WINDOW - INITIAL_WINDOW).serialize()
        + SettingsFrame(0, settings={4: INITIAL_WINDOW + 1}).serialize(),
        ErrorCode.FLOW_CONTROL_ERROR,
    ),
    (PushPromiseFrame(1, promised_stream_id=2, data=b"x", flags=["END_HEADERS"]), ErrorCode.PROTOCOL_ERROR),
    (frames.header(7, 7, 0, 0) + bytes(7), ErrorCode.FRAME_SIZE_ERROR),
    (head(1).serialize() + frames.header(1 << 16, 0, 0, 1) + bytes(1 << 16), ErrorCode.FLOW_CONTROL_ERROR),
]


def test_an_error_of_the_connection_has_its_code() -> None:
    for wrong, code in CONNECTION_ERRORS:
        engine = Http2Engine()
        receive(engine, frames.PREFACE, SettingsFrame(0))
        with pytest.raises(Http2Error) as found:
            receive(engine, wrong)
        assert found.value.code is code, wrong


def until_error(name: str) -> Http2Error | None:
    """Return the error that ends the connection of an attack."""
    engine, pieces = Http2Engine(), ATTACKS[name].bytes(443)
    receive(engine, frames.PREFACE, SettingsFrame(0))
    try:
        for _ in range(2000):
            receive(engine, *islice(pieces, 50))
    except Http2Error as error:
        return error
    return None


def test_abuse_ends_the_connection() -> None:
    # Requests that are refused without a decision are counted by the dispatcher.
    for name in [name for name in ATTACKS if "requests" not in name]:
        error = until_error(name)
        assert error is not None, name
        assert error.code in ATTACKS[name].codes, name
        assert ATTACKS[name].word in error.detail, name


def test_more_data_than_a_streams_window_resets_the_stream(engine: Http2Engine) -> None:
    receive(engine, head(1), head(3), DataFrame(1, data=bytes(INITIAL_WINDOW)))
    assert engine.update_window(0, growth=INITIAL_WINDOW) == INITIAL_WINDOW
    assert receive(engine, DataFrame(1, data=b"x")) == [StreamReset(1)]
    assert sent(engine)[-1].error_code == ErrorCode.FLOW_CONTROL_ERROR
    assert list(engine.streams) == [3]


def test_frames_about_closed_streams_are_ignored(engine: Http2Engine) -> None:
    receive(engine, head(1), RstStreamFrame(1), head(5))
    for late in (
        PriorityFrame(1),
        PriorityFrame(99, depends_on=1),
        RstStreamFrame(1),
        WindowUpdateFrame(1, window_increment=5),
        WindowUpdateFrame(3, window_increment=5),  # closed by the head of a later stream (5.1.1)
        DataFrame(1, data=b"late"),
        SettingsFrame(0, flags=["ACK"]),
    ):
        assert receive(engine, late) == [], late
    assert list(engine.streams) == [5]


def test_a_head_that_decodes_to_too_much_ends_the_connection(engine: Http2Engine) -> None:
    block = Encoder().encode([("x", "y" * 4000)], huffman=False)
    receive(engine, HeadersFrame(1, data=block, flags=["END_HEADERS"]))
    with pytest.raises(Http2Error) as found:
        receive(engine, HeadersFrame(3, data=b"\xbe" * 100, flags=["END_HEADERS"]))
    assert found.value.code is ErrorCode.ENHANCE_YOUR_CALM


def test_streams_beyond_the_maximum_are_refused(engine: Http2Engine) -> None:
    receive(engine, *(head(number) for number in range(1, 2 * MAX_STREAMS, 2)))
    assert receive(engine, head(2 * MAX_STREAMS + 1)) == []
    [reset] = sent(engine)
    assert reset.error_code == ErrorCode.REFUSED_STREAM
    engine.close_stream(1)
    [event] = receive(engine, head(2 * MAX_STREAMS + 3))
    assert isinstance(event, RequestReceived)


def test_few_streams_that_are_over_are_remembered(engine: Http2Engine) -> None:
    for number in range(1, 1001, 2):
        receive(engine, head(number))
        engine.close_stream(number)
    assert len(engine._reset_streams) == 128
    assert not engine.streams


def test_send_windows_are_of_the_stream_and_of_the_connection(engine: Http2Engine) -> None:
    receive(engine, head(1), head(3))
    engine.data_sent(1, 60_000)
    assert (engine.send_capacity(1), engine.send_capacity(3)) == (INITIAL_WINDOW - 60_000, INITIAL_WINDOW - 60_000)
    assert receive(engine, WindowUpdateFrame(0, window_increment=10_000)) == []
    assert (engine.send_capacity(1), engine.send_capacity(3)) == (INITIAL_WINDOW - 60_000, 15_535)
    assert receive(engine, WindowUpdateFrame(1, window_increment=1)) == [WindowIncreased(1)]
    assert engine.send_capacity(1) == INITIAL_WINDOW - 59_999


def test_a_receive_window_is_updated_after_half_of_it(engine: Http2Engine) -> None:
    receive(engine, head(1), DataFrame(1, data=bytes(30_000)))
    engine.update_stream_window(1, 0, growth=0)
    assert engine.update_window(0, growth=0) == 0
    assert sent(engine) == []
    receive(engine, DataFrame(1, data=bytes(10_000)))
    engine.update_stream_window(1, 0, growth=0)
    assert engine.update_window(0, growth=1000) == 1000
    updates = [(one.stream_id, one.window_increment) for one in sent(engine)]
    assert updates == [(1, 40_000), (0, 41_000)]


def test_the_shutdown_is_announced_and_then_final(engine: Http2Engine) -> None:
    receive(engine, head(1))
    engine.announce_shutdown(b"12345678")
    engine.shut_down(ErrorCode.CANCEL, "why")
    first, probe, last = sent(engine)
    assert (first.last_stream_id, probe.opaque_data) == (frames.MAX_STREAM_ID, b"12345678")
    assert (last.last_stream_id, last.error_code, last.additional_data) == (1, 8, b"why")


def test_an_incomplete_frame_is_known(engine: Http2Engine) -> None:
    assert engine.incomplete_input == 0
    receive(engine, head(1).serialize()[:-1])
    before = engine.incomplete_input
    assert before
    receive(engine, head(1).serialize()[-1:] + head(3).serialize()[:4])
    assert engine.incomplete_input not in {0, before}
    receive(engine, head(3).serialize()[4:])
    assert engine.incomplete_input == 0
    receive(engine, struct.pack(">HBBBL", 0, 1, 1, 0, 5) + b"x")  # a head without its end
    assert engine.incomplete_input
