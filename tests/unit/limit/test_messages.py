import json
from pathlib import Path

import pytest

from headgate.errors import WireError
from headgate.limit import Accounting, DelayUntil
from headgate.limit.messages import (
    control_frames,
    decode_accounting,
    decode_control,
    encode_accounting,
    from_milliseconds,
    to_milliseconds,
    topic,
)
from headgate.release import NEVER, Status
from tests.quotes import quotes

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "limit" / "wire.json").read_text())


def frames_of(case):
    return [bytes.fromhex(frame) for frame in case["frames"]]


def accounting_of(meaning):
    status = Status(meaning["status"])
    received = meaning["received"] / 1000
    release = received if meaning["delayed"] is None else meaning["delayed"] / 1000
    identifier, loginfo = bytes.fromhex(meaning["identifier"]), bytes.fromhex(meaning["loginfo"])
    return Accounting(meaning["domain"], status, identifier, received, release, loginfo)


@quotes(
    "smockron Low-Level Proto",
    "As milliseconds since 1970, formatted as ASCII decimal. The time when the request was received at the gatekeeper.",
    "For DELAYED messages, the time at which the request was forwarded to the resource. For ACCEPTED and REJECTED"
    " messages, this frame is zero-length.",
)
def test_accounting_vectors_in_both_directions():
    for case in VECTORS["accounting"]:
        frames, meaning = frames_of(case), case["is"]
        if meaning is None:
            with pytest.raises(WireError):
                decode_accounting(frames)
            continue
        assert decode_accounting(frames) == accounting_of(meaning), case["name"]
        written = encode_accounting(accounting_of(meaning))
        assert (written == frames) is case["canonical"], case["name"]
        assert decode_accounting(written) == decode_accounting(frames), case["name"]


@quotes(
    "smockron Low-Level Proto",
    "Instructs gatekeepers that requests from clients identified by `identifier` should not be allowed before a "
    "given time.",
)
def test_control_vectors_in_both_directions():
    for case in VECTORS["control"]:
        frames, meaning = frames_of(case), case["is"]
        if meaning is None:
            with pytest.raises(WireError):
                decode_control(frames)
            continue
        control = DelayUntil(meaning["domain"], bytes.fromhex(meaning["identifier"]), meaning["release"] / 1000)
        assert decode_control(frames) == control, case["name"]
        published = control_frames(topic(control.domain), control.identifier, control.release)
        assert (list(published) == frames) is case["canonical"], case["name"]


MILLISECONDS = [0, 1, 1_700_000_000_000, 1_700_000_000_100, 1_763_692_800_333, 4_102_444_800_001]


def test_whole_millisecond_survives_a_float():
    for whole in MILLISECONDS:
        assert to_milliseconds(whole / 1000) == whole, whole
        for error in (2.4e-7, -2.4e-7):
            assert to_milliseconds(whole / 1000 + error) == whole, whole


@pytest.mark.parametrize(("seconds", "milliseconds"), [(1.0001, 1001), (1.00099, 1001), (-1.0005, -1000)])
def test_fraction_of_a_millisecond_is_rounded_up(seconds, milliseconds):
    assert to_milliseconds(seconds) == milliseconds


INVALID_TIMESTAMPS = [
    b"1_000", b" 1", b"1 ", b"1e3", b"0x10", b"inf", b"-", b".", b"1,5", "٣".encode(), b"--1",
]  # fmt: skip


def test_timestamp_that_is_not_an_ascii_decimal_is_refused():
    for frame in INVALID_TIMESTAMPS:
        with pytest.raises(WireError):
            from_milliseconds(frame)


@pytest.mark.parametrize(("frame", "seconds"), [(b"1500", 1.5), (b"-1500", -1.5), (b"1500.5", 1.5005), (b"1500.", 1.5)])
def test_decimal_timestamps_are_read(frame, seconds):
    assert from_milliseconds(frame) == seconds


@quotes("smockron Low-Level Proto", "Domains should not contain nulls in their names.")
def test_domain_with_nul_is_refused():
    with pytest.raises(WireError, match="NUL"):
        topic("a\0b")


@pytest.mark.parametrize(
    ("status", "release", "wait"),
    [
        (Status.ACCEPTED, 10.0, 0.0),
        (Status.DELAYED, 12.5, 2.5),
        (Status.REJECTED, NEVER, NEVER),
        (Status.REJECTED, 9.0, 0.0),
    ],
)
def test_wait_is_never_negative(status, release, wait):
    assert Accounting("api", status, b"a", 10.0, release).wait == wait
