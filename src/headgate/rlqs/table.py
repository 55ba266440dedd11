"""The tables of the quota service: streams of Envoys, their buckets, and which of them share a rule.

This module knows neither rules nor the bytes of messages. Every table is bounded. `moment` is monotonic seconds.
"""

import re
from collections.abc import Callable
from itertools import chain, islice
from typing import Final

import msgspec

from headgate.limit.messages import header_identifier, short_identifier
from headgate.release import NEVER
from headgate.rlqs.messages import Bucket, decode_bucket

STALE: Final = 16.0
"""Seconds without a report after which a bucket is forgotten: an Envoy reports each one every five seconds."""
_STALE_PER_TURN: Final = 1_000
_ACTIONS_PER_MESSAGE: Final = 256
_IPV4_NETWORK: Final = re.compile(rb"[0-9]{1,3}(?:\.[0-9]{1,3}){3}/32")


class QuotaLimits(msgspec.Struct, frozen=True):
    """Bounds of the tables."""

    streams: int = 1_024
    """Open streams."""
    peer_streams: int = 64
    """Open streams of one address."""
    stream_buckets: int = 65_536
    """Buckets of one stream."""
    buckets: int = 262_144
    """Buckets of all streams; one takes about 1.5 kB, and its BucketId three times."""
    bucket_size: int = 4_096
    """Bytes of the BucketId of a bucket."""
    size: int = 64 * 1024 * 1024
    """Bytes of the BucketIds of all streams."""
    waiting: int = 1024 * 1024
    """Bytes of the actions that wait to be sent on one stream."""


class Assignment(msgspec.Struct):
    """What an Envoy applies to a bucket, as far as this service knows."""

    kind: str = ""
    """"allow", "deny", "tokens", or empty for nothing."""
    share: float = 0.0
    expires: float = 0.0
    is_single: bool = False
    """Whether one token has been assigned that no report mentions yet. Its request counts in full, also if a gatekeeper
    on the bus has admitted one meanwhile."""


class Claim(msgspec.Struct, eq=False):
    """A bucket of one stream: one of those that share the allowance of an identifier."""

    stream: "QuotaStream"
    group: "Group"
    bucket: Bucket
    size: int
    """Bytes of the BucketId."""
    reported: float
    admits_since: float
    """When the requests of the next report began to be admitted."""
    bucket_id: bytes = b""
    assignment: Assignment = msgspec.field(default_factory=Assignment)
    want: float = NEVER
    idle: float = 0.0
    is_new: bool = True
    before: float = 0.0
    """Requests per second of the last report, `NEVER` when a load has been measured."""
    older: float = 0.0
    """Seconds for which a hold of a service that has ended was left alone."""


class Group(msgspec.Struct, eq=False):
    """All buckets of one identifier in one domain."""

    domain: str
    identifier: bytes
    claims: dict[Claim, None] = {}
    held_until: float = -NEVER
    is_scheduled: bool = False
    """Whether the end of the hold, or an earlier instant, is in the queue of the service."""
    others: float = 0.0
    """Requests per second that other gatekeepers admit."""
    counted: float = -NEVER


class QuotaStream:
    """One stream of an Envoy at the address `peer`. `wake` is called when `take` has something to send.

    Actions of at most `limit` bytes wait.
    """

    def __init__(self, wake: Callable[[], None], peer: str, limit: int) -> None:
        self.peer = peer
        self.domain = ""
        self.is_open = True
        self.is_replaced = False
        """Whether the Envoy has probably opened another stream, after this one was lost."""
        self.claims: dict[tuple[str, Bucket], Claim] = {}
        self.known: dict[tuple[str, bytes], Claim] = {}  # by BucketId, to decode each once
        self.pending: dict[tuple[str, bytes], bytes] = {}  # actions to send, by BucketId
        self._wake = wake
        self._free = limit

    def put(self, domain: str, bucket_id: bytes, action: bytes) -> bool:
        """Send an action soon; it replaces one for the same bucket that waits. Return False if that is too much."""
        self._free += len(self.pending.pop((domain, bucket_id), b"")) - len(action)
        if self._free < 0:
            self._free += len(action)
            return False
        self.pending[domain, bucket_id] = action
        self._wake()
        return True

    def take(self) -> bytes:
        """Return the next message to send; empty if nothing waits."""
        buckets = list(islice(self.pending, _ACTIONS_PER_MESSAGE))
        data = b"".join(self.pending.pop(bucket) for bucket in buckets)
        self._free += len(data)
        return data


class ClaimTable:
    """Streams and their claims, within `limits`. `on_unused` is called when the last claim of a group is removed."""

    def __init__(self, limits: QuotaLimits, on_unused: Callable[[Group], None]) -> None:
        self.groups: dict[tuple[str, bytes], Group] = {}
        """By domain and identifier."""
        self.streams: set[QuotaStream] = set()
        """The open streams."""
        self._limits = limits
        self._size = 0
        self._on_unused = on_unused
        self._claims: dict[Claim, None] = {}  # in the order of their last report
        self._lost: dict[str, dict[QuotaStream, None]] = {}  # closed streams with claims, by their peer

    def __len__(self) -> int:
        """The number of claims."""
        return len(self._claims)

    def open(self, wake: Callable[[], None], peer: str) -> QuotaStream | None:
        """Return a new stream, which replaces a lost one of the same peer; None if too many are open."""
        limits, same = self._limits, sum(one.peer == peer for one in self.streams)
        if len(self.streams) >= limits.streams or same >= limits.peer_streams:
            return None
        stream = QuotaStream(wake, peer, limits.waiting)
        self.streams.add(stream)
        lost = next((one for one in self._lost.get(peer, ()) if not one.is_replaced), None)
        if lost is not None:
            lost.is_replaced = True
        return stream

    def close(self, stream: QuotaStream) -> None:
        """Forget an open stream; its claims stay until they are stale."""
        stream.is_open = False
        stream.pending.clear()
        self.streams.discard(stream)
        if stream.claims:
            self._lost.setdefault(stream.peer, {})[stream] = None

    def find(self, stream: QuotaStream, bucket_id: bytes, moment: float) -> tuple[bytes, Claim | None]:
        """Return the identifier of a bucket, and its claim, a new one if necessary; None if the table is full.

        Raises `WireError` for a malformed BucketId.
        """
        domain = stream.domain
        known = stream.known.get((domain, bucket_id))
        if known is not None:
            return known.group.identifier, known
        bucket = decode_bucket(bucket_id)
        identifier = identifier_of(bucket)
        claim = stream.claims.get((domain, bucket)) or self._add(stream, identifier, bucket, len(bucket_id), moment)
        if claim is not None and is_text(bucket) and len(bucket_id) <= claim.size:
            # With several keys, it may differ between reports, but not in its size.
            stream.known.pop((domain, claim.bucket_id), None)
            stream.known[domain, bucket_id] = claim
            claim.bucket_id = bucket_id
        return identifier, claim

    def _add(self, stream: QuotaStream, identifier: bytes, bucket: Bucket, size: int, moment: float) -> Claim | None:
        limits, domain = self._limits, stream.domain
        if len(stream.claims) >= limits.stream_buckets or len(self._claims) >= limits.buckets:
            return None
        if size > min(limits.bucket_size, limits.size - self._size):
            return None
        group = self.groups.get((domain, identifier))
        if group is None:
            group = self.groups[domain, identifier] = Group(domain, identifier)
        claim = Claim(stream, group, bucket, size, moment, moment)
        self._size += size
        group.claims[claim] = self._claims[claim] = None
        stream.claims[domain, bucket] = claim
        return claim

    def on_report(self, claim: Claim, moment: float) -> None:
        """Note that a claim has been reported."""
        del self._claims[claim]
        self._claims[claim] = None
        claim.is_new = False
        claim.reported = claim.admits_since = moment

    def remove(self, claim: Claim) -> None:
        """Forget a claim."""
        group, stream = claim.group, claim.stream
        stream.known.pop((group.domain, claim.bucket_id), None)
        self._size -= claim.size
        del self._claims[claim], group.claims[claim], stream.claims[group.domain, claim.bucket]
        if not (stream.claims or stream.is_open):
            del self._lost[stream.peer][stream]
            if not self._lost[stream.peer]:
                del self._lost[stream.peer]
        if not group.claims:
            del self.groups[group.domain, group.identifier]
            self._on_unused(group)

    def remove_stale(self, moment: float) -> None:
        """Forget claims without reports, at most a limited number."""
        for claim in list(islice(self._claims, _STALE_PER_TURN)):
            if moment - claim.reported < STALE:
                break
            self.remove(claim)


def identifier_of(bucket: Bucket) -> bytes:
    """Return the identifier of a bucket: the value of its key `identifier`, or all of its pairs.

    The keys `header` and `authorization` have the value of a header that names the client.
    Envoy writes addresses as networks; `192.0.2.1/32` is the identifier `192.0.2.1`, as at other gatekeepers.
    """
    if len(bucket) == 1 and bucket[0][0] == b"identifier":
        value = bucket[0][1]
        return value[:-3] if _IPV4_NETWORK.fullmatch(value) else short_identifier(value)
    if len(bucket) == 1 and bucket[0][0] in (b"header", b"authorization"):
        return header_identifier(*bucket[0])
    return short_identifier(b";".join(b"%s=%s" % pair for pair in bucket))


def is_text(bucket: Bucket) -> bool:
    """Return whether Envoy can read an assignment to a bucket: all of its strings are UTF-8."""
    try:
        b"\0".join(chain.from_iterable(bucket)).decode()
    except UnicodeDecodeError:
        return False
    return True
