"""The quota service without its sockets: usage reports become accounting, and assignments follow from the master.

All Envoys that have a bucket for an identifier share what the master permits to it: each gets a token bucket with its
share of the rate. A hold that is long enough becomes DENY_ALL. An assignment lives for `TIME_TO_LIVE` seconds and is
renewed by each report, so that all requests pass soon after the service has ended. This module opens no socket and
reads no clock: `now` is seconds since 1970, `moment` is monotonic seconds.

How Envoy behaves, and why the law of shares is as it is: docs/decisions/quota-service.md.
"""

import heapq
from collections.abc import Callable, Iterator
from typing import Annotated, Final

import msgspec

from headgate.errors import WireError
from headgate.http.date import whole_seconds
from headgate.limit.master import Master
from headgate.limit.messages import DelayUntil, domain_of
from headgate.limit.shares import Allowance, deal, fair_shares, is_stable, next_want
from headgate.release import NEVER
from headgate.rlqs import messages
from headgate.rlqs.messages import Usage
from headgate.rlqs.table import STALE, Assignment, Claim, ClaimTable, Group, QuotaLimits, QuotaStream

TIME_TO_LIVE: Final = 10
"""Seconds that an assignment lives: two intervals of reports."""

MIN_HOLD: Final = 1.0
"""Seconds; a shorter hold is left to the token buckets."""

_IDLE_TIME: Final = 4.0
"""Seconds; a bucket without a request for so long is abandoned. A request for a new one is reported at once, one for an
old one with the next report."""
_LONGEST_HOLD: Final = 3_600.0
"""Seconds for which a hold of a service that has ended may last."""
_REPORT_INTERVAL: Final = 5.0
_MEASURED_TIME: Final = 2.0
"""Seconds; the first report over so long may be of a load that began within that time, so it does not lower a share."""
_STEADY: Final = 1.5
"""Factor; a load that grew by less since a shorter report did not begin between the two."""
_LEAST_PART: Final = 0.02
"""The part of the rate that Envoys have even if gatekeepers on the bus use all of it."""
_ROUNDING: Final = 1.001
"""Factor for the error of a sum of shares."""
_FILL_INTERVAL: Final = 1_000
"""Seconds; constant, because Envoy ignores an assignment in which only the interval differs."""
_MAX_FILL: Final = 2**32 - 1
_USAGES_PER_STEP: Final = 64
_LARGE_USAGE: Final = 256
"""Bytes of the report of a bucket that has a step of its own."""
_LIFTED_PER_TURN: Final = 256


class QuotaCounters(msgspec.Struct):
    """What the service counts since its start."""

    streams: Annotated[dict[str, int], "outcome"] = msgspec.field(
        default_factory=lambda: {"opened": 0, "refused": 0, "silent": 0}
    )
    """Streams of Envoys: opened, refused because too many were open, or ended because no report came (silent)."""
    reports: Annotated[dict[str, int], "outcome"] = msgspec.field(
        default_factory=lambda: {"assigned": 0, "untracked": 0, "unassignable": 0, "malformed": 0, "oversized": 0}
    )
    """Usage reports of buckets: assigned; counted only, because the table was full or the bucket has more than 4 KiB
    (untracked), or a value is not UTF-8, so that Envoy reads no assignment to it (unassignable); dropped, alone or with
    a whole message (malformed); or messages of more than 4 MiB, which end their stream (oversized)."""
    assignments: int = 0
    """Assignments sent."""
    abandoned: int = 0
    """Idle buckets abandoned."""


class QuotaService:
    """Serves the Envoys of one master; `publish` takes the controls that follow from their reports."""

    def __init__(
        self, master: Master, publish: Callable[[DelayUntil], None], *, limits: QuotaLimits | None = None
    ) -> None:
        self.counters = QuotaCounters()
        """The counters since the start."""
        self.master = master
        """The master; the rules of another one apply from the next report of each bucket."""
        self._publish = publish
        self.table = ClaimTable(QuotaLimits() if limits is None else limits, self._on_unused)
        self._ends: list[tuple[float, int, Group]] = []
        self._number = 0

    def open(self, wake: Callable[[], None], *, peer: str) -> QuotaStream | None:
        """Return a new stream, which has to be closed; None if too many are open.

        It replaces a lost stream of the same `peer`, the address of an Envoy, if there is one.
        """
        stream = self.table.open(wake, peer)
        self.counters.streams["opened" if stream is not None else "refused"] += 1
        return stream

    def close(self, stream: QuotaStream) -> None:
        """Forget a stream. Its shares stay reserved until its assignments end, or another stream replaces it."""
        self.table.close(stream)

    def receive(self, stream: QuotaStream, data: bytes, *, now: float, moment: float) -> Iterator[None]:
        """Process a message in steps, so that an event loop is not blocked: iterate until the end."""
        try:
            reports = yield from messages.decode_reports(data)
        except WireError:
            self.counters.reports["malformed"] += 1
            return
        if reports.domain:
            stream.domain = domain_of(reports.domain)
        for index, one in enumerate(reports.usages, start=1):
            try:
                self._process(stream, messages.decode_usage(one), now, moment)
            except WireError:
                self.counters.reports["malformed"] += 1
            if index % _USAGES_PER_STEP == 0 or len(one) > _LARGE_USAGE:
                yield

    def _process(self, stream: QuotaStream, usage: Usage, now: float, moment: float) -> None:
        identifier, claim = self.table.find(stream, usage.bucket_id, moment)
        # An Envoy that has connected again reports what it has had since its last tick.
        elapsed, since = 0.0, min(usage.elapsed, TIME_TO_LIVE)
        if claim is not None and not claim.is_new:
            elapsed, since = moment - claim.reported, moment - claim.admits_since
        if usage.allowed or usage.denied:
            is_owed = claim is not None and claim.assignment.is_single
            self._account(stream.domain, identifier, usage, since, now, is_owed=is_owed)
        if claim is None:
            self.counters.reports["untracked"] += 1
            return
        self.table.on_report(claim, moment)
        claim.assignment.is_single = False
        self.counters.reports["assigned" if claim.bucket_id else "unassignable"] += 1
        claim.idle = 0.0 if usage.allowed or usage.denied else claim.idle + elapsed
        self._assign(claim, usage, elapsed, now, moment)

    def _account(
        self, domain: str, identifier: bytes, usage: Usage, since: float, now: float, *, is_owed: bool
    ) -> None:
        """Record the requests of a report, which came within the last `since` seconds."""
        master = self.master
        instant = master.clock.read(now)
        release = master.record_many(
            domain,
            identifier,
            accepted=usage.allowed,
            rejected=usage.denied,
            start=instant - since,
            now=instant,
            owed=is_owed,
        )
        if release > instant:
            self._publish(DelayUntil(domain, identifier, release - master.clock.behind))

    def _assign(self, claim: Claim, usage: Usage, elapsed: float, now: float, moment: float) -> None:
        """Answer the report of a bucket, and correct the shares of others."""
        group = claim.group
        allowed = self.master.allowance(group.domain, group.identifier, now)
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
            self.table.remove(claim)
        elif allowed is None:
            claim.assignment = Assignment("allow", expires=moment + TIME_TO_LIVE)
            self._send(claim, messages.assign(claim.bucket_id, TIME_TO_LIVE, messages.ALLOW_ALL))
        else:
            if elapsed > 0.0:
                offered = (usage.allowed + usage.denied) / elapsed
                # What a new bucket wants is a guess, until a report has measured it.
                if claim.before == NEVER or offered < _STEADY * claim.before:
                    want = min(claim.want, allowed.rate)
                    claim.want = next_want(offered, want=want, share=claim.assignment.share, rate=allowed.rate)
                if claim.before < NEVER:
                    claim.before = offered if elapsed < _MEASURED_TIME else NEVER
            self._share(group, claim, allowed, moment)

    @staticmethod
    def _has_older_hold(claim: Claim, usage: Usage, elapsed: float) -> bool:
        """Return whether an Envoy may apply a hold of a service that has ended: it stays until its time to live."""
        is_older = not claim.assignment.kind and usage.elapsed > 0.0
        if not (is_older and usage.denied and not usage.allowed):
            return False
        claim.older += elapsed
        return claim.older < _LONGEST_HOLD

    def _permits_all(self, allowed: Allowance) -> bool:
        """Return whether each Envoy may admit a request, as it does with the first request for a new bucket."""
        return allowed.tokens >= min(allowed.burst, len(self.table.streams))

    def _count_others(self, group: Group, moment: float) -> None:
        """Measure what gatekeepers on the bus admit to the identifier, over at least one interval of reports."""
        elapsed = moment - group.counted
        if elapsed >= _REPORT_INTERVAL - 1.0:
            number = self.master.count(group.domain, group.identifier)
            group.others = number / elapsed if elapsed < NEVER else 0.0
            group.counted = moment

    def _share(self, group: Group, reporter: Claim | None, allowed: Allowance, moment: float) -> None:
        """Divide the allowance of a group; renew the assignment of the reporter, and tell others of changes.

        What gatekeepers on the bus have had is theirs: they decide on each request with the whole history.
        """
        self._count_others(group, moment)
        claims: list[Claim] = []
        reserved = 0.0
        for one in group.claims:
            if one.stream.is_open and moment - one.reported < TIME_TO_LIVE:
                claims.append(one)
            elif one.assignment.expires > moment and not one.stream.is_replaced:
                reserved += one.assignment.share
        left = max(0.0, allowed.rate - reserved)
        total = max(left - group.others, _LEAST_PART * allowed.rate)
        old = [one.assignment.share for one in claims]
        shares = fair_shares(total, [min(one.want, allowed.rate) for one in claims])
        if sum(old) <= total * _ROUNDING and is_stable(old, shares):
            shares = old
        # The tokens are what the history permits, so that what the others have had is missing already.
        tokens = deal(int(allowed.tokens * left / allowed.rate), shares)
        for one, share, part in zip(claims, shares, tokens, strict=True):
            if one is reporter or share != one.assignment.share:
                self._give(one, share, part, moment)

    def _give(self, claim: Claim, share: float, tokens: int, moment: float) -> None:
        """Assign a token bucket, or DENY_ALL if that would permit no request until the next report.

        A token bucket cannot be empty: it has room for one token at least, and starts full.
        """
        if tokens == 0 and share * _REPORT_INTERVAL < 1.0:
            claim.assignment = Assignment("deny", share, moment + TIME_TO_LIVE)
            self._send(claim, messages.assign(claim.bucket_id, TIME_TO_LIVE, messages.DENY_ALL))
            return
        is_single = tokens == 1 and share * _REPORT_INTERVAL < 1.0
        claim.assignment = Assignment("tokens", share, moment + TIME_TO_LIVE, is_single)
        fill = min(_MAX_FILL, max(1, round(share * _FILL_INTERVAL)))
        strategy = messages.token_bucket(max(1, tokens), fill, _FILL_INTERVAL)
        self._send(claim, messages.assign(claim.bucket_id, TIME_TO_LIVE, strategy))

    def on_control(self, domain: str, identifier: bytes, release: float, *, now: float, moment: float) -> None:
        """Deny the requests of an identifier for which a control has been published, if its hold is long enough."""
        group = self.table.groups.get((domain, identifier))
        if group is not None and release - now >= MIN_HOLD:
            self._hold(group, release - now, moment)

    def _hold(self, group: Group, seconds: float, moment: float) -> None:
        until = moment + seconds
        if until <= group.held_until + 0.01:
            return
        group.held_until = until
        self._schedule(group, moment)
        for claim in group.claims:
            if claim.stream.is_open:
                self._deny(claim, until, moment)

    def _schedule(self, group: Group, moment: float) -> None:
        if not group.is_scheduled:
            group.is_scheduled = True
            self._number += 1
            # Not for the whole of a long hold: a group without buckets would stay.
            heapq.heappush(self._ends, (min(group.held_until, moment + STALE), self._number, group))

    def _deny(self, claim: Claim, until: float, moment: float) -> None:
        """Assign DENY_ALL; its time to live is rounded up once, and not again with each report."""
        old = claim.assignment
        if old.kind == "deny" and old.expires >= until:
            return
        seconds = whole_seconds(until - moment)
        claim.assignment = Assignment("deny", old.share, max(until, moment + seconds), old.is_single)
        self._send(claim, messages.assign(claim.bucket_id, seconds, messages.DENY_ALL))

    def _send(self, claim: Claim, action: bytes) -> None:
        if claim.bucket_id:
            self.counters.assignments += 1
            if not claim.stream.put(claim.group.domain, claim.bucket_id, action):
                claim.assignment.kind = ""  # the next report is answered again

    def turn(self, *, now: float, moment: float) -> None:
        """Lift holds that have ended, and forget buckets without reports: a limited part of what is due."""
        for _ in range(_LIFTED_PER_TURN):
            if not self._ends or self._ends[0][0] > moment:
                break
            _, _, group = heapq.heappop(self._ends)
            group.is_scheduled = False
            if group.claims and group.held_until > moment:
                self._schedule(group, moment)
            elif group.claims:
                self._lift(group, now, moment)
        self.table.remove_stale(moment)

    def _on_unused(self, group: Group) -> None:
        self.master.stop_counting(group.domain, group.identifier)

    def _lift(self, group: Group, now: float, moment: float) -> None:
        allowed = self.master.allowance(group.domain, group.identifier, now)
        if allowed is not None and allowed.hold >= MIN_HOLD:
            self._hold(group, allowed.hold, moment)
            return
        for claim in group.claims:
            claim.assignment.share = 0.0
            claim.admits_since = moment
        if allowed is not None:
            self._share(group, None, allowed, moment)
