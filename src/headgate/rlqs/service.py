"""The quota service without its sockets: usage reports become accounting, and assignments follow from the master.

All Envoys that have a bucket for an identifier share what the master permits to it: each gets a token bucket with its
share of the rate. A hold that is long enough becomes DENY_ALL. An assignment lives for `TIME_TO_LIVE` seconds and is
renewed by each report, so that all requests pass soon after the service has ended. This module opens no socket and
reads no clock: `now` is seconds since 1970, `moment` is monotonic seconds.

How Envoy behaves, and why the law of shares is as it is: docs/decisions/0076-envoys-share-a-rule.md.
"""

import heapq
import math
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

import msgspec

from headgate.errors import WireError
from headgate.limit.allowance import Allowance
from headgate.limit.master import Master
from headgate.limit.messages import DelayUntil, domain_of, short_identifier
from headgate.limit.shares import deal, fair_shares, is_stable, next_want
from headgate.release import NEVER
from headgate.rlqs import messages
from headgate.rlqs.messages import Bucket, Usage

TIME_TO_LIVE: Final = 10
"""Seconds that an assignment lives: two intervals of reports."""

MIN_HOLD: Final = 1.0
"""Seconds; a shorter hold is left to the token buckets."""

_STALE: Final = 16.0
"""Seconds without a report after which a bucket is forgotten: an Envoy reports each one every five seconds."""
_IDLE_TIME: Final = 4.0
"""Seconds; a bucket without a request for so long is abandoned. A request for a new one is reported at once, one for an
old one with the next report."""
_IPV4_NETWORK: Final = re.compile(rb"[0-9]{1,3}(?:\.[0-9]{1,3}){3}/32")
_LONGEST_HOLD: Final = 3_600.0
"""Seconds for which a hold of a service that has ended may last."""
_REPORT_INTERVAL: Final = 5.0
_MEASURED_TIME: Final = 2.0
"""Seconds that the first measured load of a bucket covers at least."""
_LEAST_PART: Final = 0.02
"""The part of the rate that Envoys have even if gatekeepers on the bus use all of it."""
_FILL_INTERVAL: Final = 1_000
"""Seconds; constant, because Envoy takes an assignment with another interval alone for unchanged."""
_MAX_FILL: Final = 2**32 - 1
_USAGES_PER_STEP: Final = 64
_ACTIONS_PER_MESSAGE: Final = 256
_STALE_PER_TURN: Final = 1_000

_Wake = Callable[[], None]


class QuotaCounters(msgspec.Struct):
    """What the service counts since its start."""

    streams: int = 0
    """Streams opened."""
    streams_refused: int = 0
    """Streams refused: too many were open."""
    reports: int = 0
    """Usage reports of buckets read."""
    malformed: int = 0
    """Messages and reports dropped: malformed."""
    unassignable: int = 0
    """Reports of buckets with a value that is not UTF-8: counted, but Envoy reads no assignment to them."""
    untracked: int = 0
    """Reports of buckets that were counted only: the table was full."""
    assignments: int = 0
    """Assignments sent."""
    abandoned: int = 0
    """Idle buckets abandoned."""


class QuotaLimits(msgspec.Struct, frozen=True):
    """Bounds of the tables."""

    streams: int = 1_024
    """Open streams."""
    stream_buckets: int = 262_144
    """Buckets of one stream."""
    buckets: int = 1_048_576
    """Buckets of all streams."""


class _Assignment(msgspec.Struct):
    """What an Envoy applies to a bucket, as far as this service knows."""

    kind: str = ""
    """"allow", "deny", "tokens", or empty for nothing."""
    share: float = 0.0
    expires: float = 0.0


class _Claim:
    """A bucket of one stream: one of those that share the allowance of an identifier."""

    __slots__ = (
        "admits_since",
        "assignment",
        "bucket",
        "bucket_id",
        "group",
        "idle",
        "is_new",
        "older",
        "reported",
        "stream",
        "want",
    )

    def __init__(self, stream: "QuotaStream", group: "_Group", bucket: Bucket, moment: float) -> None:
        self.stream = stream
        self.group = group
        self.bucket = bucket
        self.bucket_id = b""
        self.assignment = _Assignment()
        self.want = NEVER
        self.idle = 0.0
        self.is_new = True
        self.older = 0.0
        """Seconds for which a hold of a service that has ended was left alone."""
        self.reported = moment
        self.admits_since = moment
        """When the requests of the next report began to be admitted."""


class _Group:
    """All buckets of one identifier in one domain."""

    __slots__ = ("claims", "counted", "domain", "held_until", "identifier", "is_scheduled", "others")

    def __init__(self, domain: str, identifier: bytes) -> None:
        self.domain = domain
        self.identifier = identifier
        self.claims: dict[_Claim, None] = {}
        self.held_until = -NEVER
        self.is_scheduled = False
        """Whether the end of the hold, or an earlier instant, is in the queue of the service."""
        self.others = 0.0
        """Requests per second that other gatekeepers admit."""
        self.counted = -NEVER


class QuotaStream:
    """One stream of an Envoy; `QuotaService.open` makes it. `wake` is called when `take` has something to send."""

    def __init__(self, wake: _Wake, peer: str) -> None:
        self.peer = peer
        self.domain = ""
        self.is_open = True
        self.is_replaced = False
        """Whether the Envoy has probably opened another stream, after this one was lost."""
        self.claims: dict[tuple[str, Bucket], _Claim] = {}
        self.known: dict[tuple[str, bytes], _Claim] = {}  # by BucketId, to decode each once
        self.pending: dict[Bucket, bytes] = {}
        self._wake = wake

    def put(self, bucket: Bucket, action: bytes) -> None:
        """Send an action soon; it replaces one for the same bucket that waits."""
        self.pending.pop(bucket, None)
        self.pending[bucket] = action
        self._wake()

    def take(self) -> bytes:
        """Return the next message to send; empty if nothing waits."""
        buckets = list(islice(self.pending, _ACTIONS_PER_MESSAGE))
        return messages.join_actions(self.pending.pop(bucket) for bucket in buckets)


class QuotaService:
    """Serves the Envoys of one master; `publish` takes the controls that follow from their reports."""

    def __init__(
        self, master: Master, publish: Callable[[DelayUntil], None], *, limits: QuotaLimits | None = None
    ) -> None:
        self.counters = QuotaCounters()
        """The counters since the start."""
        self._master = master
        self._publish = publish
        self._limits = QuotaLimits() if limits is None else limits
        self._streams: set[QuotaStream] = set()
        self._lost: dict[str, dict[QuotaStream, None]] = {}  # closed streams with claims, by their peer
        self._groups: dict[tuple[str, bytes], _Group] = {}
        self._claims: dict[_Claim, None] = {}  # in the order of their last report
        self._ends: list[tuple[float, int, _Group]] = []
        self._number = 0

    @property
    def streams(self) -> int:
        """Open streams."""
        return len(self._streams)

    @property
    def buckets(self) -> int:
        """Buckets in the table."""
        return len(self._claims)

    def set_master(self, master: Master) -> None:
        """Serve for another master; its rules apply from the next report of each bucket."""
        self._master = master

    def open(self, wake: _Wake, *, peer: str) -> QuotaStream | None:
        """Return a new stream, which has to be closed; None if too many are open.

        It replaces a lost stream of the same `peer`, the address of an Envoy, if there is one.
        """
        if len(self._streams) >= self._limits.streams:
            self.counters.streams_refused += 1
            return None
        self.counters.streams += 1
        stream = QuotaStream(wake, peer)
        self._streams.add(stream)
        lost = next((one for one in self._lost.get(peer, ()) if not one.is_replaced), None)
        if lost is not None:
            lost.is_replaced = True
        return stream

    def close(self, stream: QuotaStream) -> None:
        """Forget a stream. Its shares stay reserved until its assignments end, or another stream replaces it."""
        stream.is_open = False
        stream.pending.clear()
        self._streams.discard(stream)
        if stream.claims:
            self._lost.setdefault(stream.peer, {})[stream] = None

    def receive(self, stream: QuotaStream, data: bytes, *, now: float, moment: float) -> Iterator[None]:
        """Process a message in steps, so that an event loop is not blocked: iterate until the end."""
        try:
            reports = messages.decode_reports(data)
        except WireError:
            self.counters.malformed += 1
            return
        if reports.domain:
            stream.domain = domain_of(reports.domain)
        for index, one in enumerate(reports.usages, start=1):
            try:
                self._process(stream, messages.decode_usage(one), now, moment)
            except WireError:
                self.counters.malformed += 1
            if index % _USAGES_PER_STEP == 0:
                yield

    def _process(self, stream: QuotaStream, usage: Usage, now: float, moment: float) -> None:
        self.counters.reports += 1
        domain = stream.domain
        claim = stream.known.get((domain, usage.bucket_id))
        if claim is None:
            bucket = messages.decode_bucket(usage.bucket_id)
            identifier = identifier_of(bucket)
            claim = stream.claims.get((domain, bucket)) or self._add(stream, domain, bucket, moment)
            if claim is not None:
                self._name(claim, usage.bucket_id)
        else:
            identifier = claim.group.identifier
        # An Envoy that has connected again reports what it has had since its last tick.
        elapsed, since = 0.0, min(usage.elapsed, TIME_TO_LIVE)
        if claim is not None and not claim.is_new:
            elapsed, since = moment - claim.reported, moment - claim.admits_since
        if usage.allowed or usage.denied:
            self._account(domain, identifier, usage, since, now)
        if claim is None:
            self.counters.untracked += 1
            return
        del self._claims[claim]
        self._claims[claim] = None
        claim.is_new = False
        claim.reported = claim.admits_since = moment
        self.counters.unassignable += not claim.bucket_id
        claim.idle = 0.0 if usage.allowed or usage.denied else claim.idle + elapsed
        self._assign(claim, usage, elapsed, now, moment)

    def _add(self, stream: QuotaStream, domain: str, bucket: Bucket, moment: float) -> _Claim | None:
        limits, identifier = self._limits, identifier_of(bucket)
        if len(stream.claims) >= limits.stream_buckets or len(self._claims) >= limits.buckets:
            return None
        group = self._groups.get((domain, identifier))
        if group is None:
            group = self._groups[domain, identifier] = _Group(domain, identifier)
        claim = _Claim(stream, group, bucket, moment)
        group.claims[claim] = self._claims[claim] = None
        stream.claims[domain, bucket] = claim
        return claim

    def _name(self, claim: _Claim, bucket_id: bytes) -> None:
        """Store the BucketId to which assignments are sent. With several keys, it may differ between reports."""
        if is_text(claim.bucket):
            claim.stream.known.pop((claim.group.domain, claim.bucket_id), None)
            claim.stream.known[claim.group.domain, bucket_id] = claim
            claim.bucket_id = bucket_id

    def _remove(self, claim: _Claim) -> None:
        group = claim.group
        claim.stream.known.pop((group.domain, claim.bucket_id), None)
        del self._claims[claim], group.claims[claim], claim.stream.claims[group.domain, claim.bucket]
        if not (claim.stream.claims or claim.stream.is_open):
            lost = self._lost[claim.stream.peer]
            del lost[claim.stream]
            if not lost:
                del self._lost[claim.stream.peer]
        if not group.claims:
            self._master.stop_counting(group.domain, group.identifier)
            del self._groups[group.domain, group.identifier]

    def _account(self, domain: str, identifier: bytes, usage: Usage, since: float, now: float) -> None:
        """Record the requests of a report, which came within the last `since` seconds."""
        master = self._master
        instant = master.clock.read(now)
        release = master.record_many(
            domain,
            identifier,
            accepted=usage.allowed,
            rejected=usage.denied,
            start=instant - since,
            now=instant,
        )
        if release > instant:
            self._publish(DelayUntil(domain, identifier, release - master.clock.behind))

    def _assign(self, claim: _Claim, usage: Usage, elapsed: float, now: float, moment: float) -> None:
        """Answer the report of a bucket, and correct the shares of others."""
        group = claim.group
        allowed = self._master.allowance(group.domain, group.identifier, now)
        if allowed is None:  # also after a reload
            group.held_until = -NEVER
        elif allowed.hold >= MIN_HOLD:
            self._hold(group, allowed.hold, moment)
        if group.held_until > moment:
            self._deny(claim, group.held_until, moment)
        elif self._has_older_hold(claim, usage, elapsed):
            pass
        elif claim.idle >= _IDLE_TIME and (allowed is None or self._permits_all(allowed)):
            self.counters.abandoned += 1
            self._send(claim, messages.abandon(claim.bucket_id))
            self._remove(claim)
        elif allowed is None:
            claim.assignment = _Assignment("allow", expires=moment + TIME_TO_LIVE)
            self._send(claim, messages.allow_all(claim.bucket_id, TIME_TO_LIVE))
        else:
            if elapsed > 0.0:
                offered = (usage.allowed + usage.denied) / elapsed
                # What a new bucket wants is a guess, until a report has measured it.
                is_guess = claim.want == NEVER and elapsed >= _MEASURED_TIME
                want = 0.0 if is_guess else min(claim.want, allowed.rate)
                claim.want = next_want(offered, want=want, share=claim.assignment.share, rate=allowed.rate)
            self._share(group, claim, allowed, moment)

    @staticmethod
    def _has_older_hold(claim: _Claim, usage: Usage, elapsed: float) -> bool:
        """Return whether an Envoy may apply a hold of a service that has ended: it stays until its time to live."""
        is_older = not claim.assignment.kind and usage.elapsed > 0.0
        if not (is_older and usage.denied and not usage.allowed):
            return False
        claim.older += elapsed
        return claim.older < _LONGEST_HOLD

    def _permits_all(self, allowed: Allowance) -> bool:
        """Return whether each Envoy may admit a request, as it does with the first request for a new bucket."""
        return allowed.tokens >= min(allowed.burst, len(self._streams))

    def _count_others(self, group: _Group, moment: float) -> None:
        """Measure what gatekeepers on the bus admit to the identifier, over at least one interval of reports."""
        elapsed = moment - group.counted
        if elapsed >= _REPORT_INTERVAL - 1.0:
            number = self._master.count(group.domain, group.identifier)
            group.others = number / elapsed if elapsed < NEVER else 0.0
            group.counted = moment

    def _share(self, group: _Group, reporter: _Claim | None, allowed: Allowance, moment: float) -> None:
        """Divide the allowance of a group; renew the assignment of the reporter, and tell others of changes.

        What gatekeepers on the bus have had is theirs: they decide on each request with the whole history.
        """
        self._count_others(group, moment)
        claims: list[_Claim] = []
        reserved = 0.0
        for one in group.claims:
            if one.stream.is_open and moment - one.reported < TIME_TO_LIVE:
                claims.append(one)
            elif one.assignment.expires > moment and not one.stream.is_replaced:
                reserved += one.assignment.share
        total = max(allowed.rate - reserved - group.others, _LEAST_PART * allowed.rate)
        old = [one.assignment.share for one in claims]
        shares = fair_shares(total, [min(one.want, allowed.rate) for one in claims])
        if sum(old) <= total * 1.001 and is_stable(old, shares):
            shares = old
        tokens = deal(int(allowed.tokens * total / allowed.rate), shares)
        for one, share, part in zip(claims, shares, tokens, strict=True):
            if one is reporter or share != one.assignment.share:
                self._give(one, share, part, moment)

    def _give(self, claim: _Claim, share: float, tokens: int, moment: float) -> None:
        """Assign a token bucket, or DENY_ALL if that would permit no request until the next report.

        A token bucket cannot be empty: it has room for one token at least, and starts full.
        """
        if tokens == 0 and share * _REPORT_INTERVAL < 1.0:
            claim.assignment = _Assignment("deny", share, moment + TIME_TO_LIVE)
            self._send(claim, messages.deny_all(claim.bucket_id, TIME_TO_LIVE))
            return
        claim.assignment = _Assignment("tokens", share, moment + TIME_TO_LIVE)
        fill = min(_MAX_FILL, max(1, round(share * _FILL_INTERVAL)))
        action = messages.token_bucket(
            claim.bucket_id, TIME_TO_LIVE, tokens=max(1, tokens), fill=fill, interval=_FILL_INTERVAL
        )
        self._send(claim, action)

    def on_control(self, domain: str, identifier: bytes, release: float, *, now: float, moment: float) -> None:
        """Deny the requests of an identifier for which a control has been published, if its hold is long enough."""
        group = self._groups.get((domain, identifier))
        if group is not None and release - now >= MIN_HOLD:
            self._hold(group, release - now, moment)

    def _hold(self, group: _Group, seconds: float, moment: float) -> None:
        until = moment + seconds
        if until <= group.held_until + 0.01:
            return
        group.held_until = until
        self._schedule(group)
        for claim in group.claims:
            if claim.stream.is_open:
                self._deny(claim, until, moment)

    def _schedule(self, group: _Group) -> None:
        if not group.is_scheduled:
            group.is_scheduled = True
            self._number += 1
            heapq.heappush(self._ends, (group.held_until, self._number, group))

    def _deny(self, claim: _Claim, until: float, moment: float) -> None:
        """Assign DENY_ALL; its time to live is rounded up once, and not again with each report."""
        old = claim.assignment
        if old.kind == "deny" and old.expires >= until:
            return
        seconds = math.ceil(until - moment)
        claim.assignment = _Assignment("deny", old.share, moment + seconds)
        self._send(claim, messages.deny_all(claim.bucket_id, seconds))

    def _send(self, claim: _Claim, action: bytes) -> None:
        if claim.bucket_id:
            self.counters.assignments += 1
            claim.stream.put(claim.bucket, action)

    def turn(self, *, now: float, moment: float) -> None:
        """Lift holds that have ended, and forget buckets without reports; call it when `due` says so."""
        while self._ends and self._ends[0][0] <= moment:
            _, _, group = heapq.heappop(self._ends)
            group.is_scheduled = False
            if group.held_until > moment:
                self._schedule(group)
            elif group.claims:
                self._lift(group, now, moment)
        for claim in list(islice(self._claims, _STALE_PER_TURN)):
            if moment - claim.reported < _STALE:
                break
            self._remove(claim)

    def _lift(self, group: _Group, now: float, moment: float) -> None:
        allowed = self._master.allowance(group.domain, group.identifier, now)
        if allowed is not None and allowed.hold >= MIN_HOLD:
            self._hold(group, allowed.hold, moment)
            return
        for claim in group.claims:
            claim.assignment.share = 0.0
            claim.admits_since = moment
        if allowed is not None:
            self._share(group, None, allowed, moment)

    def due(self) -> float:
        """Return the moment at which `turn` has something to do."""
        oldest = next(iter(self._claims), None)
        stale = NEVER if oldest is None else oldest.reported + _STALE
        return min(stale, self._ends[0][0] if self._ends else NEVER)


def identifier_of(bucket: Bucket) -> bytes:
    """Return the identifier of a bucket: the value of its key `identifier`, or all of its pairs.

    Envoy writes addresses as networks; `192.0.2.1/32` is the identifier `192.0.2.1`, as at other gatekeepers.
    """
    if len(bucket) == 1 and bucket[0][0] == b"identifier":
        value = bucket[0][1]
        return value[:-3] if _IPV4_NETWORK.fullmatch(value) else short_identifier(value)
    return short_identifier(b";".join(b"%s=%s" % pair for pair in bucket))


def is_text(bucket: Bucket) -> bool:
    """Return whether Envoy can read an assignment to a bucket: all of its strings are UTF-8."""
    try:
        for key, value in bucket:
            key.decode(), value.decode()
    except UnicodeDecodeError:
        return False
    return True
