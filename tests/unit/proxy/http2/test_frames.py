"""Parsing and writing frames, compared with hyperframe."""

from itertools import product

import pytest
from hyperframe.frame import (
    AltSvcFrame,
    ContinuationFrame,
    DataFrame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from hyperframe.frame import Frame as TheirFrame

from headgate.proxy.http2 import frames
from headgate.proxy.http2.buffers import DataBuffer
from headgate.proxy.http2.frames import DataReceived, ErrorCode, Frame, FrameParser, Http2Error

SETTLED = frames.PREFACE + SettingsFrame(0).serialize()
STRANGE = b"\0\0\x03\xbe\0\0\0\0\x03xyz"
WHOLE = [
    SettingsFrame(0, settings={4: 1000, 5: 20_000}),
    SettingsFrame(0, flags=["ACK"]),
    HeadersFrame(1, data=b"abc", flags=["END_HEADERS"]),
    HeadersFrame(1, data=b"", flags=["END_HEADERS", "END_STREAM"]),
    RstStreamFrame(1, error_code=8),
    PingFrame(0, opaque_data=b"12345678"),
    GoAwayFrame(0, last_stream_id=3, error_code=0, additional_data=b"bye"),
    WindowUpdateFrame(0, window_increment=5),
    PriorityFrame(3, depends_on=1),
]


Found = Frame | DataReceived


def parsed(raw: bytes, *, step: int = 0) -> list[Found]:
    """Return all frames in these bytes, received `step` at a time; consecutive DATA of one stream as one."""
    found: list[Found] = []
    parser = FrameParser()
    for start in range(0, len(raw), step or len(raw)):
        for frame in parser.parse(memoryview(raw[start : start + (step or len(raw))])):
            last = found[-1] if found else None
            if not isinstance(frame, DataReceived):
                found.append(frame)
            elif isinstance(last, DataReceived) and not last.is_last and last.stream_id == frame.stream_id:
                found[-1] = joined(last, frame)
            else:
                found.append(joined(frame))
    return found


def joined(*slices: DataReceived) -> DataReceived:
    """Return consecutive DATA as one value, with one piece."""
    payload = b"".join(piece for one in slices for piece in one.pieces)
    length = sum(one.length for one in slices)
    return DataReceived(slices[0].stream_id, (memoryview(payload),), length, slices[-1].is_last)


def after_settings(raw: bytes, *, step: int = 0) -> list[Found]:
    return parsed(SETTLED + raw, step=step)[1:]


STEPS = (0, 1, 2, 9, 10)
"""Bytes received at once; 0 for all."""


def test_frames_are_parsed_however_they_are_split() -> None:
    for frame, step in product(WHOLE, STEPS):
        raw = frame.serialize()
        expected = Frame(raw[3], raw[4], frame.stream_id, raw[9:])
        assert after_settings(raw + raw, step=step) == [expected, expected], (frame, step)


def test_padding_of_data_is_removed_and_counted() -> None:
    payload = bytes(range(256)) * 2
    for count, padding, step in product((0, 1, 300), (None, 0, 1, 255), STEPS):
        frame = DataFrame(5, data=payload[:count], flags=["END_STREAM"])
        if padding is not None:
            frame.flags.add("PADDED")
            frame.pad_length = padding
        raw = frame.serialize()
        expected = DataReceived(5, (memoryview(payload[:count]),), len(raw) - 9, is_last=True)
        assert after_settings(raw + raw, step=step) == [expected, expected], (count, padding, step)


def data_in(raw: bytes) -> list[tuple[int, list[bytes], int, bool]]:
    """Return the DATA in frames that are received at once after the settings."""
    parser = FrameParser()
    list(parser.parse(memoryview(SETTLED)))
    found = [one for one in parser.parse(memoryview(raw)) if isinstance(one, DataReceived)]
    return [(one.stream_id, [bytes(piece) for piece in one.pieces], one.length, one.is_last) for one in found]


def test_consecutive_data_of_one_stream_is_returned_at_once() -> None:
    first, second, other = DataFrame(1, data=b"ab"), DataFrame(1, data=b"cde"), DataFrame(3, data=b"f")
    last = DataFrame(1, data=b"g", flags=["END_STREAM"])
    raw = b"".join(frame.serialize() for frame in (first, second, other, second, last))
    assert data_in(raw) == [(1, [b"ab", b"cde"], 5, False), (3, [b"f"], 1, False), (1, [b"cde", b"g"], 4, True)]
    for missing in (10, 5, 1):  # the last frame, half its header, its payload
        assert data_in(raw[:-missing])[-1] == (1, [b"cde"], 3, False), missing


def test_frames_that_differ_are_not_joined() -> None:
    data = DataFrame(1, data=b"a")
    others = {
        "empty": DataFrame(1),
        "padded": DataFrame(1, data=b"b", pad_length=1, flags=["PADDED"]),
        "after the end": DataFrame(1, data=b"b"),
        "of another type": WindowUpdateFrame(1, window_increment=5),
    }
    for name, other in others.items():
        first = DataFrame(1, data=b"a", flags=["END_STREAM"]) if name == "after the end" else data
        found = data_in(first.serialize() + other.serialize() + data.serialize())
        assert found[0] == (1, [b"a"], 1, name == "after the end"), name
        assert found[-1][1][-1:] == [b"a"], name


def test_data_is_returned_before_its_frame_is_complete() -> None:
    parser = FrameParser()
    list(parser.parse(memoryview(SETTLED)))
    raw = DataFrame(1, data=b"abcdef", flags=["END_STREAM"]).serialize()
    assert list(parser.parse(memoryview(raw[:12]))) == [DataReceived(1, [memoryview(b"abc")], 6, is_last=False)]
    assert not parser.incomplete  # the rest is skipped
    assert list(parser.parse(memoryview(raw[12:]))) == [DataReceived(1, [memoryview(b"def")], 0, is_last=True)]


def test_data_is_not_copied() -> None:
    parser = FrameParser()
    list(parser.parse(memoryview(SETTLED)))
    raw = bytearray(DataFrame(1, data=b"abc").serialize())
    [data] = parser.parse(memoryview(raw))
    assert isinstance(data, DataReceived)
    raw[-1:] = b"d"
    assert bytes(data.pieces[0]) == b"abd"


@pytest.mark.parametrize("step", [0, 1, 7])
def test_frames_of_unknown_types_are_skipped(step: int) -> None:
    strange = frames.header(100_000, 0xBE, 0, 3) + b"x" * 100_000
    known = AltSvcFrame(0, origin=b"a", field=b"b").serialize()
    found = after_settings(strange + known + PingFrame(0, opaque_data=b"12345678").serialize(), step=step)
    assert found == [Frame(0xBE, 0, 3, b""), Frame(0x0A, 0, 0, b""), Frame(frames.PING, 0, 0, b"12345678")]


@pytest.mark.parametrize(
    ("raw", "incomplete"),
    [
        (b"", True),  # and nothing has come at all
        (frames.PREFACE[:5], True),
        (frames.PREFACE, True),
        (SETTLED, False),
        (SETTLED + b"\0", True),
        (SETTLED + PingFrame(0).serialize()[:12], True),
        (SETTLED + HeadersFrame(1, data=b"abc").serialize(), True),
        (SETTLED + HeadersFrame(1, flags=["END_HEADERS"]).serialize(), False),
        (SETTLED + STRANGE[:-1], False),
    ],
)
def test_incomplete_input_is_known(raw: bytes, incomplete: bool) -> None:
    parser = FrameParser()
    list(parser.parse(memoryview(raw)))
    assert bool(parser.incomplete) is incomplete


BLOCK = HeadersFrame(1, data=b"a").serialize()
WRONG = [
    (b"GET / HTTP/1.1\r\n\r\n", ErrorCode.PROTOCOL_ERROR),
    (frames.PREFACE[:-1] + b"x", ErrorCode.PROTOCOL_ERROR),
    (frames.PREFACE + PingFrame(0).serialize(), ErrorCode.PROTOCOL_ERROR),
    (frames.PREFACE + SettingsFrame(0, flags=["ACK"]).serialize(), ErrorCode.PROTOCOL_ERROR),
    (SETTLED + frames.PREFACE, ErrorCode.FRAME_SIZE_ERROR),
    (SETTLED + b"\0\0\x05\x06\0\0\0\0\0", ErrorCode.FRAME_SIZE_ERROR),  # PING of 5 bytes
    (SETTLED + b"\0\0\x03\x03\0\0\0\0\x01", ErrorCode.FRAME_SIZE_ERROR),  # RST_STREAM of 3
    (SETTLED + b"\0\0\x04\x02\0\0\0\0\x01", ErrorCode.FRAME_SIZE_ERROR),  # PRIORITY of 4
    (SETTLED + b"\0\0\x08\x08\0\0\0\0\x01", ErrorCode.FRAME_SIZE_ERROR),  # WINDOW_UPDATE of 8
    (SETTLED + b"\0\0\x07\x04\0\0\0\0\0", ErrorCode.FRAME_SIZE_ERROR),  # SETTINGS of 7
    (SETTLED + b"\0\0\x06\x04\x01\0\0\0\0", ErrorCode.FRAME_SIZE_ERROR),  # that acknowledges and says something
    (SETTLED + b"\0\0\0\0\x08\0\0\0\x01", ErrorCode.FRAME_SIZE_ERROR),  # padded DATA without a byte
    (SETTLED + b"\0\0\x03\0\x08\0\0\0\x01\x03ab", ErrorCode.PROTOCOL_ERROR),  # padding longer than the frame
    (SETTLED + b"\x04\0\x01\0\0\0\0\0\x01", ErrorCode.FRAME_SIZE_ERROR),  # DATA that is too long
    (SETTLED + DataFrame(1, data=b"a").serialize() + b"\x04\0\x01\0\0\0\0\0\x01x", ErrorCode.FRAME_SIZE_ERROR),
    (SETTLED + b"\xff\xff\xff\xbe\0\0\0\0\x01", ErrorCode.FRAME_SIZE_ERROR),
    (SETTLED + b"\0\x80\x01\x07\0\0\0\0\0", ErrorCode.ENHANCE_YOUR_CALM),  # GOAWAY of 32 KiB and one
    (SETTLED + b"\0\x01\x86\x04\0\0\0\0\0", ErrorCode.ENHANCE_YOUR_CALM),  # 65 settings
    (SETTLED + DataFrame(1).serialize()[:-1] + b"\0", ErrorCode.PROTOCOL_ERROR),  # DATA on stream 0
    (SETTLED + b"\0\0\0\x01\x04\0\0\0\0", ErrorCode.PROTOCOL_ERROR),  # HEADERS on stream 0
    (SETTLED + b"\0\0\x08\x06\0\0\0\0\x01", ErrorCode.PROTOCOL_ERROR),  # PING on stream 1
    (SETTLED + b"\0\0\0\x04\0\0\0\0\x01", ErrorCode.PROTOCOL_ERROR),
    (SETTLED + ContinuationFrame(1).serialize(), ErrorCode.PROTOCOL_ERROR),
    (SETTLED + BLOCK + DataFrame(1, data=b"a").serialize(), ErrorCode.PROTOCOL_ERROR),
    (SETTLED + BLOCK + PingFrame(0).serialize(), ErrorCode.PROTOCOL_ERROR),
    (SETTLED + BLOCK + ContinuationFrame(3).serialize(), ErrorCode.PROTOCOL_ERROR),
    (SETTLED + BLOCK + STRANGE, ErrorCode.PROTOCOL_ERROR),
    (SETTLED + BLOCK + 9 * ContinuationFrame(1).serialize(), ErrorCode.ENHANCE_YOUR_CALM),
    (SETTLED + BLOCK + ContinuationFrame(1, data=b"x" * 32_768).serialize(), ErrorCode.ENHANCE_YOUR_CALM),
    (SETTLED + b"\0\x80\x01\x01\x04\0\0\0\x01", ErrorCode.ENHANCE_YOUR_CALM),  # HEADERS of 32 KiB and one
]


def test_invalid_frames_are_connection_errors() -> None:
    for (raw, code), step in product(WRONG, (0, 1)):
        with pytest.raises(Http2Error) as found:
            parsed(raw, step=step)
        assert found.value.code is code, (raw, step)


def test_the_largest_header_block_is_accepted() -> None:
    last = ContinuationFrame(1, data=b"x" * (frames.MAX_HEADER_BLOCK_SIZE - 1 - 7), flags=["END_HEADERS"]).serialize()
    found = after_settings(BLOCK + 7 * ContinuationFrame(1, data=b"y").serialize() + last + last[:0])
    assert len(found) == 1 + frames.MAX_CONTINUATIONS
    again = after_settings(
        2 * HeadersFrame(1, data=b"x" * frames.MAX_HEADER_BLOCK_SIZE, flags=["END_HEADERS"]).serialize()
    )
    assert len(again) == 2  # each block begins anew


def test_the_reserved_bit_of_a_stream_is_ignored() -> None:
    assert after_settings(b"\0\0\x01\0\0\x80\0\0\x07x") == [DataReceived(7, (memoryview(b"x"),), 1, is_last=False)]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (frames.window_update(3, 70_000), WindowUpdateFrame(3, window_increment=70_000)),
        (frames.rst_stream(3, ErrorCode.CANCEL), RstStreamFrame(3, error_code=8)),
        (frames.goaway(7, ErrorCode.NO_ERROR, "bye"), GoAwayFrame(0, last_stream_id=7, additional_data=b"bye")),
        (frames.ping(b"abcdefgh"), PingFrame(0, opaque_data=b"abcdefgh")),
        (frames.settings({3: 256, 5: 1 << 18}), SettingsFrame(0, settings={3: 256, 5: 1 << 18})),
        (frames.header(70_000, frames.DATA, 1, 9), DataFrame(9, data=bytes(70_000), flags=["END_STREAM"])),
    ],
)
def test_frames_are_written_as_by_hyperframe(ours: bytes, theirs: TheirFrame) -> None:
    assert theirs.serialize().startswith(ours)


@pytest.mark.parametrize("count", [1, 16_374, 16_375, 16_376, 40_000, 3 * 16_375])
def test_payload_is_framed_in_place(count: int) -> None:
    buffer, payload = DataBuffer(3), bytes(number % 251 for number in range(count))
    position = 0
    for slot in buffer.slots(1 << 20):
        piece = payload[position : position + len(slot)]
        slot[: len(piece)] = piece
        position += len(slot)
    raw = bytes(buffer.frames(count, 9))
    [(stream, pieces, length, is_last)] = data_in(raw)
    assert (stream, b"".join(pieces), length, is_last) == (9, payload, count, False)
    assert max(map(len, pieces)) <= frames.MAX_PAYLOAD_SIZE


def test_slots_are_whole_or_one_smaller_one() -> None:
    whole = frames.MAX_PAYLOAD_SIZE
    for size, expected in {1: [1], whole - 1: [whole - 1], whole + 1: [whole], 1 << 20: 3 * [whole]}.items():
        assert list(map(len, DataBuffer(3).slots(size))) == expected, size
