"""Frames to messages and back, as smockron.txt (Low-Level Proto) has them; byte-exact.

This file knows nothing of sockets. A message is a list of frames, each `bytes`; an instant inside headgate is a float
in seconds, on the wire an ASCII decimal number of milliseconds, rounded up when written: never early.
"""

import math
import re
from collections.abc import Sequence

from headgate.errors import WireError
from headgate.limit.accounting import Accounting, DelayUntil
from headgate.release import Status

__all__ = [
    "MAX_CONTROL_FRAME",
    "STATUSES",
    "decode_accounting",
    "decode_control",
    "domain_of",
    "encode_accounting",
    "encode_control",
    "from_milliseconds",
    "to_milliseconds",
    "topic",
]

MAX_CONTROL_FRAME = 255
"""Bytes in the longest frame of a control message: an existing gatekeeper reads no longer one (DESIGN.md §4)."""

STATUSES = {status.value.encode(): status for status in Status}
"""Frame 1 of an accounting message to its meaning."""

_DELAY_UNTIL = b"DELAY_UNTIL"
_DECIMAL = re.compile(rb"-?[0-9]{1,30}(?:\.[0-9]{0,30})?")
# A float near 1.7e9 s is a multiple of 0.24 us. An instant that close to a whole millisecond is that millisecond:
# what is left over came from a sum or from the conversion, and rounding it up would add a millisecond.
_DUST = 0.001


def to_milliseconds(instant: float) -> int:
    """Give `instant`, seconds, in whole milliseconds: rounded up, save for a float's dust. It must be finite."""
    milliseconds = instant * 1_000.0
    nearest = round(milliseconds)
    return nearest if abs(milliseconds - nearest) <= _DUST else math.ceil(milliseconds)


def from_milliseconds(frame: bytes) -> float:
    """Read a timestamp frame, "milliseconds since 1970, formatted as ASCII decimal", into seconds.

    A fraction of a millisecond is read. Raises `WireError` for anything that is not a finite decimal.
    """
    if frame.isdigit() and len(frame) <= 15:
        return int(frame) / 1_000.0
    if not _DECIMAL.fullmatch(frame):
        raise WireError(f"invalid timestamp {frame[:40]!r}; expected milliseconds since 1970 as an ASCII decimal")
    return float(frame) / 1_000.0


def topic(domain: str) -> bytes:
    """Give frame 0 for `domain`: "encoded with a trailing null", which makes it usable as a pubsub key.

    Raises `WireError` for a domain with a NUL in it: "domains should not contain nulls in their names".
    """
    if "\0" in domain:
        raise WireError(f"invalid domain name {domain!r}: contains NUL")
    return domain.encode("utf-8", "surrogateescape") + b"\0"


def domain_of(frame: bytes) -> str:
    """Read frame 0; one without its trailing NUL is accepted, as the original accepts it."""
    return frame.removesuffix(b"\0").decode("utf-8", "surrogateescape")


def encode_accounting(accounting: Accounting) -> list[bytes]:
    """Give the six frames of an accounting message. Raises `WireError` for a domain that cannot be a topic."""
    delayed = accounting.status is Status.DELAYED
    return [
        topic(accounting.domain),
        accounting.status.value.encode(),
        accounting.identifier,
        b"%d" % to_milliseconds(accounting.received),
        # "For ACCEPTED and REJECTED messages, this frame is zero-length."
        b"%d" % to_milliseconds(accounting.release) if delayed else b"",
        accounting.loginfo,
    ]


def decode_accounting(frames: Sequence[bytes]) -> Accounting:
    """Read an accounting message from five frames or more; from the seventh on they are ignored.

    What a REJECTED message's hold ended with is not on the wire: its `release` reads as `received`. Raises
    `WireError` for fewer frames, an unknown status, or a timestamp that is not a finite decimal or is missing.
    """
    if len(frames) < 5:
        raise WireError(f"an accounting message must have at least 5 frames, got {len(frames)}")
    status = STATUSES.get(frames[1])
    if status is None:
        raise WireError(f"unknown status {frames[1][:40]!r}; expected ACCEPTED, DELAYED or REJECTED")
    received = from_milliseconds(frames[3])
    release = from_milliseconds(frames[4]) if status is Status.DELAYED else received
    loginfo = frames[5] if len(frames) > 5 else b""
    return Accounting(domain_of(frames[0]), status, frames[2], received, release, loginfo)


def encode_control(control: DelayUntil) -> list[bytes]:
    """Give the four frames of a DELAY_UNTIL message.

    Raises `WireError` when a frame would be longer than `MAX_CONTROL_FRAME` bytes: no gatekeeper could read it.
    """
    frames = [topic(control.domain), _DELAY_UNTIL, control.identifier, b"%d" % to_milliseconds(control.release)]
    if len(max(frames, key=len)) > MAX_CONTROL_FRAME:
        raise WireError(
            f"a control frame must have at most {MAX_CONTROL_FRAME} bytes; shorten the domain or identifier"
        )
    return frames


def decode_control(frames: Sequence[bytes]) -> DelayUntil:
    """Read a DELAY_UNTIL message; arguments after the first are ignored. Raises `WireError` for anything else."""
    if len(frames) < 4:
        raise WireError(f"a control message must have at least 4 frames, got {len(frames)}")
    if frames[1] != _DELAY_UNTIL:
        raise WireError(f"unknown command {frames[1][:40]!r}; expected DELAY_UNTIL")
    return DelayUntil(domain_of(frames[0]), frames[2], from_milliseconds(frames[3]))
