"""What h2 is asked, and what it is spared."""

import pytest
from h2.errors import ErrorCodes
from h2.events import PingAckReceived, RemoteSettingsChanged, RequestReceived, StreamReset
from hpack import Decoder, Encoder
from hyperframe.frame import Frame as TheirFrame
from hyperframe.frame import HeadersFrame, PingFrame, RstStreamFrame, SettingsFrame

from headgate.proxy.http2 import frames
from headgate.proxy.http2.control import Control
from headgate.proxy.http2.frames import Frame, Violation

CONNECT = [(":method", "CONNECT"), (":authority", "a:443")]


def frame(theirs: TheirFrame) -> Frame:
    raw = theirs.serialize()
    return Frame(raw[3], raw[4], theirs.stream_id, len(raw) - 9, raw[9:])


def head(stream: int, fields: list[tuple[str, str]] = CONNECT, *flags: str) -> Frame:
    return frame(HeadersFrame(stream, data=Encoder().encode(fields), flags=["END_HEADERS", *flags]))


def said(out: bytearray) -> list[TheirFrame]:
    found = []
    while out:
        one, length = TheirFrame.parse_frame_header(memoryview(bytes(out[:9])))
        one.parse_body(memoryview(bytes(out[9 : 9 + length])))
        found.append(one)
        del out[: 9 + length]
    return found


@pytest.fixture
def out() -> bytearray:
    return bytearray()


@pytest.fixture
def control(out: bytearray) -> Control:
    made = Control(out)
    out.clear()
    made.receive(frame(SettingsFrame(0)))
    out.clear()
    return made


def test_it_announces_what_it_does() -> None:
    out = bytearray()
    Control(out)
    [first] = said(out)
    assert dict(first.settings) == {
        SettingsFrame.ENABLE_PUSH: 0,
        SettingsFrame.MAX_CONCURRENT_STREAMS: 256,
        SettingsFrame.MAX_FRAME_SIZE: frames.LONGEST_DATA,
        SettingsFrame.MAX_HEADER_LIST_SIZE: 16_384,
    }


def test_a_request_is_given_as_it_came(control: Control) -> None:
    [event] = control.receive(head(5, [*CONNECT, ("X", " y\n")]))
    assert isinstance(event, RequestReceived)
    assert [tuple(pair) for pair in event.headers][-1] == (b"X", b" y\n")
    assert event.stream_ended is None
    assert control.latest == 5
    assert control.receive(head(7, CONNECT, "END_STREAM"))[0].stream_ended is not None


def test_a_tunnel_of_which_h2_hears_the_ends_alone(control: Control, out: bytearray) -> None:
    control.receive(head(1))
    control.answer(1, 200, (), is_all=False)
    control.hear_end(1)
    control.say_end(1)
    opened, end = said(out)
    assert Decoder().decode(opened.data) == [(":status", "200")]
    assert (end.type, end.stream_id, end.flags) == (0, 1, {"END_STREAM"})
    [reused] = control.receive(head(3))
    assert isinstance(reused, RequestReceived)


def test_a_refusal_is_all_there_is(control: Control, out: bytearray) -> None:
    control.receive(head(1))
    control.answer(1, 403, [("Retry-After", "0")])
    control.reset(1, ErrorCodes.NO_ERROR)
    refused, reset = said(out)
    assert Decoder().decode(refused.data) == [(":status", "403"), ("retry-after", "0")]
    assert "END_STREAM" in refused.flags
    assert (reset.type, reset.error_code) == (3, 0)


def test_a_stream_that_is_over_may_be_reset_all_the_same(control: Control, out: bytearray) -> None:
    control.receive(head(1, CONNECT, "END_STREAM"))
    control.answer(1, 403, ())
    control.reset(1, ErrorCodes.CANCEL)
    control.reset(99, ErrorCodes.CANCEL)
    assert [one.type for one in said(out)] == [1, 3, 3]


def test_settings_that_nobody_knows_are_kept_from_it(control: Control, out: bytearray) -> None:
    payload = frames.settings({4: 1000, 0x1234: 5, 8: 1})[9:]
    [event] = control.receive(Frame(frames.SETTINGS, 0, 0, len(payload), payload))
    assert isinstance(event, RemoteSettingsChanged)
    assert sorted(event.changed_settings) == [4, 8]
    assert control.first_window == 1000
    [ack] = said(out)
    assert (ack.type, ack.flags) == (4, {"ACK"})


def test_pings_are_answered(control: Control, out: bytearray) -> None:
    control.receive(frame(PingFrame(0, opaque_data=b"12345678")))
    [answer] = said(out)
    assert (answer.opaque_data, answer.flags) == (b"12345678", {"ACK"})
    [event] = control.receive(frame(PingFrame(0, opaque_data=b"headgate", flags=["ACK"])))
    assert isinstance(event, PingAckReceived)


def test_a_second_head_behind_the_end_resets_the_stream(control: Control, out: bytearray) -> None:
    control.receive(head(1, CONNECT, "END_STREAM"))
    [event] = control.receive(head(1))
    assert isinstance(event, StreamReset)
    [reset] = said(out)
    assert (reset.type, reset.error_code) == (3, ErrorCodes.STREAM_CLOSED)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (head(2), ErrorCodes.PROTOCOL_ERROR),
        (frame(SettingsFrame(0, settings={2: 5})), ErrorCodes.PROTOCOL_ERROR),
        (frame(SettingsFrame(0, settings={5: 5})), ErrorCodes.PROTOCOL_ERROR),
        (frame(SettingsFrame(0, settings={4: 1 << 31})), ErrorCodes.FLOW_CONTROL_ERROR),
        (Frame(1, 4, 1, 2, b"\xff\xff"), ErrorCodes.COMPRESSION_ERROR),
        (Frame(1, 4, 1, 1, b"\xff"), ErrorCodes.COMPRESSION_ERROR),
        (head(1, [("x", "y" * 200_000)]), ErrorCodes.FRAME_SIZE_ERROR),
        (Frame(1, 4 | 8, 1, 3, b"\x09ab"), ErrorCodes.PROTOCOL_ERROR),  # padding longer than the frame
        (Frame(1, 4 | 32, 1, 3, b"abc"), ErrorCodes.FRAME_SIZE_ERROR),  # a priority that is not whole
        (head(1, [("content-length", "x"), *CONNECT]), ErrorCodes.PROTOCOL_ERROR),
    ],
)
def test_what_h2_refuses_is_told_without_its_words(control: Control, wrong: Frame, code: ErrorCodes) -> None:
    with pytest.raises(Violation) as found:
        control.receive(wrong)
    assert found.value.code is code
    assert found.value.why == f"a frame of type {wrong.type} is wrong, or comes at a wrong time"


def test_a_list_that_unfolds_too_far_is_refused(control: Control) -> None:
    control.receive(Frame(1, 4, 1, 4009, Encoder().encode([("x", "y" * 4000)], huffman=False)))
    with pytest.raises(Violation) as found:
        control.receive(Frame(1, 4, 3, 100, b"\xbe" * 100))
    assert found.value.code is ErrorCodes.ENHANCE_YOUR_CALM


def test_few_streams_that_are_over_are_remembered(control: Control) -> None:
    for stream in range(1, 2001, 2):
        control.receive(head(stream))
        control.receive(frame(RstStreamFrame(stream)))
    assert len(control._h2._closed_streams) <= 128
    assert len(control._h2.streams) <= 1
