"""Flow control windows, the frames that a connection accepts, and limits of abusive frames: those of one connection's
frames here, further attacks in tests/e2e/http2_attacks.py."""

import itertools

import pytest
from h2.errors import ErrorCodes
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
)

from headgate.proxy import limits as module
from headgate.proxy.limits import (
    INITIAL_WINDOW,
    MAX_CONNECTION_WINDOW,
    MAX_CONTINUATIONS,
    MAX_FRAME_SIZE,
    MAX_HEADER_BLOCK_SIZE,
    AbuseKind,
    FrameGuard,
    Http2Error,
    ReceiveWindow,
)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTLED = PREFACE + SettingsFrame(0).serialize()


def test_a_window_is_updated_after_half_of_it() -> None:
    receiving = ReceiveWindow(MAX_CONNECTION_WINDOW)
    receiving.receive(INITIAL_WINDOW // 2)
    assert receiving.update(0) == 0
    receiving.receive(1)
    assert receiving.update(0) == INITIAL_WINDOW // 2 + 1


def test_held_bytes_are_not_returned_to_the_window() -> None:
    receiving = ReceiveWindow(MAX_CONNECTION_WINDOW)
    receiving.receive(INITIAL_WINDOW)
    assert receiving.update(INITIAL_WINDOW) == 0
    assert receiving.update(1000) == INITIAL_WINDOW - 1000
    assert receiving.update(1000) == 0
    receiving.receive(INITIAL_WINDOW - 1000)
    assert receiving.update(INITIAL_WINDOW) == 0


def test_a_window_doubles_up_to_a_maximum() -> None:
    receiving = ReceiveWindow(MAX_CONNECTION_WINDOW)
    limits = []
    for _ in range(6):
        receiving.receive(receiving.limit)
        before = receiving.limit
        assert receiving.update(0, growth=MAX_CONNECTION_WINDOW) == before + receiving.limit - before
        limits.append(receiving.limit)
    assert limits[:2] == [2 * INITIAL_WINDOW, 4 * INITIAL_WINDOW]
    assert limits[-1] == limits[-2] == MAX_CONNECTION_WINDOW


def guard(*closed: int) -> FrameGuard:
    """Return a guard for which these streams have ended."""
    return FrameGuard(lambda stream: stream in closed)


def passed(guarding: FrameGuard, raw: bytes, *, step: int = 0) -> bytes:
    """Return what h2 gets of these bytes, received `step` at a time."""
    pieces = [raw[start : start + (step or len(raw))] for start in range(0, len(raw) or 1, step or len(raw) or 1)]
    return b"".join(bytes(kept) for piece in pieces for kept in guarding.filter(memoryview(piece), now=0.0))


KEPT = [
    HeadersFrame(1, data=b"abc", flags=["END_HEADERS"]).serialize(),
    DataFrame(1, data=b"abc", flags=["END_STREAM"]).serialize(),
    DataFrame(3).serialize(),
    RstStreamFrame(1).serialize(),
    PingFrame(0, opaque_data=b"12345678").serialize(),
    SettingsFrame(0, flags=["ACK"]).serialize(),
    DataFrame(9, data=b"late").serialize(),
]
DROPPED = [
    PriorityFrame(3, depends_on=1).serialize(),
    GoAwayFrame(0, additional_data=b"bye").serialize(),
    b"\0\0\x03\xbe\0\0\0\0\x03xyz",
    b"\0\0\0\x0a\0\0\0\0\0",
    RstStreamFrame(9).serialize(),
]


@pytest.mark.parametrize("step", [0, 1, 2, 8, 9, 10, 31])
def test_frames_without_a_purpose_are_removed_however_they_are_split(step: int) -> None:
    guarding = guard(9)
    mixed = b"".join(kept + dropped for kept, dropped in itertools.zip_longest(KEPT, DROPPED, fillvalue=b""))
    assert passed(guarding, SETTLED + mixed, step=step) == SETTLED + b"".join(KEPT)
    assert guarding.client_leaves
    assert guarding.incomplete == 0
    assert guarding.head_sizes == {1: 12}


def test_incomplete_input_is_known() -> None:
    for raw, incomplete in (
        (b"", True),  # and nothing has come at all
        (PREFACE[:5], True),
        (PREFACE, True),
        (SETTLED, False),
        (SETTLED + b"\0", True),
        (SETTLED + PingFrame(0).serialize()[:12], True),
        (SETTLED + HeadersFrame(1, data=b"abc").serialize(), True),
        (SETTLED + HeadersFrame(1, flags=["END_HEADERS"]).serialize(), False),
        (SETTLED + DataFrame(1, data=b"abc").serialize()[:-1], False),  # a tunnel has its own timeout
    ):
        guarding = guard()
        passed(guarding, raw)
        assert bool(guarding.incomplete) is incomplete, raw


BLOCK = HeadersFrame(1, data=b"a").serialize()
WRONG = [
    (PREFACE + PingFrame(0).serialize(), ErrorCodes.PROTOCOL_ERROR),
    (PREFACE + SettingsFrame(0, flags=["ACK"]).serialize(), ErrorCodes.PROTOCOL_ERROR),
    (SETTLED + b"\0\x40\x01\0\0\0\0\0\x01", ErrorCodes.FRAME_SIZE_ERROR),  # DATA of 16 KiB and one
    (SETTLED + b"\xff\xff\xff\xbe\0\0\0\0\x01", ErrorCodes.FRAME_SIZE_ERROR),
    (SETTLED + b"\0\x01\x86\x04\0\0\0\0\0", ErrorCodes.ENHANCE_YOUR_CALM),  # 65 settings
    (SETTLED + ContinuationFrame(1).serialize(), ErrorCodes.PROTOCOL_ERROR),
    (SETTLED + BLOCK + DataFrame(1, data=b"a").serialize(), ErrorCodes.PROTOCOL_ERROR),
    (SETTLED + BLOCK + PriorityFrame(1).serialize(), ErrorCodes.PROTOCOL_ERROR),
    (SETTLED + BLOCK + HeadersFrame(1).serialize(), ErrorCodes.PROTOCOL_ERROR),
    (SETTLED + BLOCK + ContinuationFrame(3).serialize(), ErrorCodes.PROTOCOL_ERROR),
    (SETTLED + BLOCK + b"\0\0\x03\xbe\0\0\0\0\x01xyz", ErrorCodes.PROTOCOL_ERROR),
    (SETTLED + BLOCK + 9 * ContinuationFrame(1).serialize(), ErrorCodes.ENHANCE_YOUR_CALM),
    (SETTLED + BLOCK + 2 * ContinuationFrame(1, data=b"x" * 16_384).serialize(), ErrorCodes.ENHANCE_YOUR_CALM),
]


@pytest.mark.parametrize("step", [0, 1])
def test_invalid_frames_are_connection_errors(step: int) -> None:
    for raw, code in WRONG:
        with pytest.raises(Http2Error) as found:
            passed(guard(), raw, step=step)
        assert found.value.code is code, raw


def test_the_largest_frames_and_header_blocks_are_accepted() -> None:
    rest = MAX_HEADER_BLOCK_SIZE - len(BLOCK) - 8 * 9 - MAX_FRAME_SIZE
    most = [ContinuationFrame(1, data=b"x" * size) for size in (MAX_FRAME_SIZE, rest, *(MAX_CONTINUATIONS - 2) * [0])]
    most[-1].flags.add("END_HEADERS")
    block = BLOCK + b"".join(frame.serialize() for frame in most)
    guarding = guard()
    for raw in (block, SettingsFrame(0, settings={9 + number: 1 for number in range(64)}).serialize(), block):
        passed(guarding, raw if guarding.has_settings else SETTLED + raw)
    assert guarding.head_sizes == {1: MAX_HEADER_BLOCK_SIZE}


COUNTED = [
    (PingFrame(0, opaque_data=b"12345678").serialize(), "pings"),
    (PingFrame(0, opaque_data=b"12345678", flags=["ACK"]).serialize(), "pings"),
    (SettingsFrame(0).serialize(), "settings"),
    (SettingsFrame(0, flags=["ACK"]).serialize(), "idle frames"),
    (PriorityFrame(3, depends_on=1).serialize(), "idle frames"),
    (RstStreamFrame(9).serialize(), "idle frames"),
    (GoAwayFrame(0).serialize(), "idle frames"),
    (b"\0\0\x08\xbe\0\0\0\0\x01abcdefgh", "idle frames"),
    (b"\0\0\x04\x08\0\0\0\0\x01\0\0\0\x01", "WINDOW_UPDATE"),
    (HeadersFrame(9, flags=["END_HEADERS"]).serialize(), "failed requests"),
]


@pytest.mark.parametrize(("frame", "kind"), COUNTED)
def test_frames_are_counted_by_their_kind(frame: bytes, kind: AbuseKind) -> None:
    guarding, most = guard(9), int(module.ABUSE_LIMITS[kind].burst) - (kind == "settings")
    passed(guarding, SETTLED + most * frame)
    with pytest.raises(Http2Error, match=f"too many {kind}"):
        passed(guarding, frame)


def test_late_data_is_counted_by_its_bytes_and_frames() -> None:
    for size, most in ((0, 4194), (3096, 1024)):
        guarding, frame = guard(9), DataFrame(9, data=bytes(size)).serialize()
        passed(guarding, SETTLED + most * frame)
        with pytest.raises(Http2Error, match="too many late DATA"):
            passed(guarding, frame)


def test_bytes_of_heads_are_counted() -> None:
    frame = HeadersFrame(1, data=bytes(1000), flags=["END_HEADERS"]).serialize()
    guarding = guard()
    passed(guarding, SETTLED + (1 << 20) // len(frame) * frame)
    with pytest.raises(Http2Error, match="too many head bytes"):
        passed(guarding, frame)


def borne(counted: FrameGuard, kind: AbuseKind, *, now: float, step: float = 0) -> int:
    """How many more there may be, the first one now and each of the others a step later."""
    numbers = itertools.count()

    def count_on() -> None:
        for number in numbers:
            list(counted.filter(memoryview(b""), now=now + number * step))  # which tells it the time
            counted.count(kind)

    with pytest.raises(Http2Error, match=kind) as found:
        count_on()
    assert found.value.code is ErrorCodes.ENHANCE_YOUR_CALM
    return next(numbers) - 1


@pytest.mark.parametrize("kind", [kind for kind in module.ABUSE_LIMITS if kind not in {"head bytes", "late DATA"}])
def test_a_burst_and_a_rate_are_allowed(kind: AbuseKind) -> None:
    allowance = module.ABUSE_LIMITS[kind]
    counted = guard()
    assert borne(counted, kind, now=50.0) == allowance.burst
    then = allowance.burst / allowance.per_second  # and nothing is remembered
    assert borne(counted, kind, now=50.0 + 2 * then) == allowance.burst
    other: AbuseKind = "pings" if kind == "settings" else "settings"
    assert borne(counted, other, now=50.0) == module.ABUSE_LIMITS[other].burst


def test_the_rate_is_allowed_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ABUSE_LIMITS", {"pings": module.AbuseLimit(2, 8)})
    counted = guard()
    for number in range(1000):
        list(counted.filter(memoryview(b""), now=number / 8))
        counted.count("pings")
    assert borne(counted, "pings", now=125, step=1 / 12) == 4


def test_refunds_are_subtracted() -> None:
    counted = guard()
    counted.abuse.add("WINDOW_UPDATE", -10, now=0.0)  # nothing was counted
    for _ in range(10_000):
        counted.count("WINDOW_UPDATE")
        counted.abuse.add("WINDOW_UPDATE", -4, now=0.0)
    assert borne(counted, "WINDOW_UPDATE", now=0) == module.ABUSE_LIMITS["WINDOW_UPDATE"].burst
