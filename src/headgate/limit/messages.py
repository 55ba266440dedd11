"""The two messages between gatekeepers and masters, and their bytes (smockron.txt, Low-Level Proto).

An `Accounting` is both the verdict on a request and the message to the master; a `DelayUntil` is the master's response.
Identifiers are arbitrary bytes. A message on the wire is a list of frames, each `bytes`. Instants are seconds since
1970; on the wire they are ASCII decimal numbers of milliseconds, rounded up, so that no hold ends early. This module
opens no socket.
"""

import hashlib
import math
import re
from collections.abc import Sequence

import msgspec

from headgate.errors import WireError
from headgate.release import Status


class Accounting(msgspec.Struct, frozen=True, gc=False):
    """The verdict on one request (smockron.txt, Accounting Socket)."""

    domain: str
    """The group of resources that the request was for; without NUL."""
    status: Status
    """Accepted, delayed or rejected."""
    identifier: bytes
    """The client that the request is counted for."""
    received: float
    """When the request was received at the gatekeeper."""
    release: float
    """When it may proceed: `received` if accepted, the delayed timestamp if delayed, the end of its hold if not."""
    loginfo: bytes = b""
    """Free content for debugging; the document does not specify it."""

    @property
    def wait(self) -> float:
        """Seconds from the request to its release; 0.0 when it was accepted."""
        return max(0.0, self.release - self.received)


class DelayUntil(msgspec.Struct, frozen=True, gc=False):
    """Requests of `identifier` to `domain` "should not be allowed before a given time" (smockron.txt, DELAY_UNTIL)."""

    domain: str
    identifier: bytes
    release: float


class Totals(msgspec.Struct):
    """The number of requests by verdict since the start."""

    accepted: int = 0
    delayed: int = 0
    rejected: int = 0


MAX_CONTROL_FRAME = 255
"""Maximum bytes of a frame in a control message: an existing gatekeeper does not read longer ones."""


def short_identifier(value: bytes) -> bytes:
    """Return `value`, or, when it is longer than 255 bytes, `sha256:` and its digest in hexadecimal.

    A control frame holds 255 bytes, so a longer identifier could never be held.
    """
    if len(value) <= MAX_CONTROL_FRAME:
        return value
    return b"sha256:" + hashlib.sha256(value).hexdigest().encode()


_SCHEME = re.compile(rb"([^ \t]++)[ \t]++(.*+)", re.DOTALL)


def credential(name: bytes, value: bytes) -> bytes:
    """Return the value of the field `name` (lower case) in one spelling for each credential.

    RFC 9110, section 11.4: the scheme of Authorization is case-insensitive, and one or more spaces follow it.
    """
    match = _SCHEME.fullmatch(value) if name == b"authorization" else None
    return value if match is None else match[1].lower() + b" " + match[2]


def header_identifier(name: bytes, value: bytes) -> bytes:
    """Return the identifier of the client that the field `name` (lower case) names: `=` and its value, or a digest.

    No address begins with `=`: a client that may choose the value of the field cannot have the identifier of another
    one's address.
    """
    return short_identifier(b"=" + credential(name, value))


STATUSES = {status.value.encode(): status for status in Status}
"""The status by frame 1 of an accounting message."""

_DELAY_UNTIL = b"DELAY_UNTIL"
_DECIMAL = re.compile(rb"-?[0-9]{1,30}(?:\.[0-9]{0,30})?")
# A float near 1.7e9 s is a multiple of 0.24 us. An instant that close to a whole millisecond is that millisecond: the
# difference is an error of a sum or of the conversion, and rounding up would add a millisecond.
_ROUNDING_ERROR = 0.001


def to_milliseconds(instant: float) -> int:
    """Convert `instant`, finite seconds, to whole milliseconds, rounded up except for floating-point error."""
    return math.ceil(instant * 1_000.0 - _ROUNDING_ERROR)


def from_milliseconds(frame: bytes) -> float:
    """Parse a timestamp frame, "milliseconds since 1970, formatted as ASCII decimal", into seconds.

    A fraction of a millisecond is kept. Raises `WireError` for anything that is not a finite decimal.
    """
    if frame.isdigit() and len(frame) <= 15:
        return int(frame) / 1_000.0
    if not _DECIMAL.fullmatch(frame):
        raise WireError(f"invalid timestamp {frame[:40]!r}; expected milliseconds since 1970 as an ASCII decimal")
    return float(frame) / 1_000.0


def topic(domain: str) -> bytes:
    """Return frame 0 for `domain`: "encoded with a trailing null", which makes it usable as a pubsub key.

    Raises `WireError` for a domain that contains NUL: "domains should not contain nulls in their names".
    """
    if "\0" in domain:
        raise WireError(f"invalid domain name {domain!r}: contains NUL")
    return domain.encode("utf-8", "surrogateescape") + b"\0"


def domain_of(frame: bytes) -> str:
    """Decode frame 0; the trailing NUL is optional, as in the original."""
    return frame.removesuffix(b"\0").decode("utf-8", "surrogateescape")


def encode_accounting(accounting: Accounting) -> list[bytes]:
    """Encode the six frames of an accounting message. Raises `WireError` for a domain that cannot be a topic."""
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
    """Decode an accounting message of at least five frames; from the seventh on they are ignored.

    The end of the hold of a REJECTED message is not on the wire: its `release` is `received`. Raises `WireError` for
    fewer frames, an unknown status, or a missing or invalid timestamp.
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


def control_frames(topic: bytes, identifier: bytes, release: float) -> tuple[bytes, bytes, bytes, bytes]:
    """Return the four frames of a DELAY_UNTIL message; each must have at most `MAX_CONTROL_FRAME` bytes."""
    return topic, _DELAY_UNTIL, identifier, b"%d" % to_milliseconds(release)


def decode_control(frames: Sequence[bytes]) -> DelayUntil:
    """Decode a DELAY_UNTIL message; arguments after the first are ignored. Raises `WireError` for anything else."""
    if len(frames) < 4:
        raise WireError(f"a control message must have at least 4 frames, got {len(frames)}")
    if frames[1] != _DELAY_UNTIL:
        raise WireError(f"unknown command {frames[1][:40]!r}; expected DELAY_UNTIL")
    return DelayUntil(domain_of(frames[0]), frames[2], from_milliseconds(frames[3]))
