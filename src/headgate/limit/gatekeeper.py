"""The gatekeeper: it accepts, delays or rejects each request.

This module knows neither HTTP, frames, sockets nor clocks, and never waits or locks: "the gatekeeper uses
local information to decide the disposition of each request instead of consulting the master" (smockron.txt,
Fault-Tolerance).
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from heapq import heappop, heappush, nlargest
from typing import NamedTuple

from msgspec.structs import replace

from headgate.errors import check_count, check_seconds, fail_if
from headgate.limit.arrivals import Arrivals
from headgate.limit.clock import TOLERANCE, SteadyClock
from headgate.limit.domain import Domain
from headgate.limit.master import Master
from headgate.limit.messages import Accounting, DelayUntil, Totals
from headgate.limit.table import SHARDS, Table, Tables
from headgate.release import ASAP, NEVER, Status, advance, judge

# Bound once: an attribute of an Enum costs a fifth of a decision.
_ACCEPTED, _DELAYED, _REJECTED = Status.ACCEPTED, Status.DELAYED, Status.REJECTED

_TICK = 0.0625
"""Seconds; the resolution of the order in which holds end."""

MAX_HOLD = 31 * 86_400.0
"""Seconds; the longest hold that is accepted if the rules are not known."""

_SLACK = 1.0
"""Seconds that a hold may exceed its rule: timestamps on the wire are rounded, and clocks differ."""

_ROUNDING = 0.002
"""Seconds that a hold may exceed the maximum: releases on the wire are rounded up to milliseconds."""

_COPIED_AT_ONCE = 1_000
"""Holds of a master copied at once after a reload; a millisecond."""

_MAX_BY_HAND = 100_000
"""Holds known to be made by an operator."""

_UNTIL_ANSWERED = 2.0
"""Seconds; a master elsewhere repeats its holds within a tenth of one, and sends 100,000 in a second."""

Account = Callable[[Accounting, float], DelayUntil | None]
"""The receiver of accounting: the `account` of an embedded master, or of a link, which returns None."""


class Charges(NamedTuple):
    """What one request counts for."""

    domain: str
    """Its own domain."""
    identifier: bytes
    """Its client in that domain."""
    others: tuple[tuple[str, bytes], ...] = ()
    """Other domains in which it counts, too, with its client there."""
    cost: int = 1
    """As how many requests it counts."""


class DelaySlots:
    """The slots of delayed requests, counted by release time; all times are of one clock.

    A slot is free at the release time of its request, without a call by the shell, or earlier if the client disconnects
    (docs/decisions/limits-and-clocks.md).
    """

    __slots__ = ("_counts", "_releases", "taken")

    def __init__(self) -> None:
        self.taken = 0
        """The number of delayed requests, as of the last call of `free`."""
        self._counts: dict[float, int] = {}
        self._releases: list[float] = []

    def take(self, release: float) -> None:
        """Take a slot until `release`."""
        if release not in self._counts:
            heappush(self._releases, release)
        self._counts[release] = self._counts.get(release, 0) + 1
        self.taken += 1

    def cancel(self, release: float) -> None:
        """Free a slot that was taken until `release`; does nothing after that time."""
        if self._counts.get(release, 0) > 0:
            self._counts[release] -= 1
            self.taken -= 1

    def free(self, now: float) -> None:
        """Free the slots whose release time has come."""
        releases = self._releases
        while releases and releases[0] <= now:
            self.taken -= self._counts.pop(heappop(releases))


class _InheritedHolds(NamedTuple):
    """The holds of one domain before a reload, which has changed its rules."""

    release: Callable[[bytes, float], float]
    """Returns the release of a hold at an instant, `ASAP` without a hold; both are instants of the clock."""
    steps: Iterator[list[DelayUntil]]
    """Yields the holds to copy, until none of them is needed any more."""


class Gatekeeper:
    """Decides on requests by the holds that a master has published.

    `account(accounting, now)` receives every verdict and may return a control, which is obeyed at once. An embedded
    `master` is called directly (see `embedded`). With neither, the gatekeeper only obeys. A request that is held for at
    most `max_delay` seconds is delayed while fewer than `max_delayed` requests are delayed; other held requests are
    rejected. `spacing` has, for domains whose rules are known, the seconds between two delayed requests of an
    identifier, so that they are not all released at one instant. At most `max_holds` holds are stored. A new one
    replaces one that has ended or, if none has, the one that ends next (counted in `evicted`). A hold of more than
    `max_hold` seconds is shortened (counted in `shortened`): its control is forged, or this clock is behind the
    master's. With `arrivals`, it also applies the rules itself, so that a fast client does not exceed them before the
    control of a master elsewhere arrives.
    """

    def __init__(
        self,
        account: Account | None = None,
        *,
        master: Master | None = None,
        max_delay: float = 5.0,
        max_delayed: int = 1024,
        spacing: Mapping[str, float] | None = None,
        max_holds: int = 1_000_000,
        max_hold: float = MAX_HOLD,
        arrivals: Arrivals | None = None,
    ) -> None:
        fail_if(
            account is not None and not callable(account),
            f"account must be a function, got {account!r:.80}; for domains, use Gatekeeper.embedded([Domain(…)])",
        )
        fail_if(master is not None and not isinstance(master, Master), f"master must be a Master, got {master!r:.80}")
        check_seconds("max_delay", max_delay)
        check_seconds("max_hold", max_hold)
        check_count("max_delayed", max_delayed)
        check_count("max_holds", max_holds, 1)
        self.max_delay = max_delay
        """Seconds; a request held for longer is rejected."""
        self.totals: dict[str, Totals] = defaultdict(Totals)
        """The number of requests by domain and verdict."""
        self.shortened = 0
        """Holds that were longer than `max_hold`."""
        self.clock = master.clock if master is not None else SteadyClock()
        """The clock of the instants in holds and in the histories of an embedded master."""
        self.master = master
        """The embedded master, if any."""
        self._account = account
        self._record = master.record if master is not None else None
        self._arrivals = arrivals
        self._max_delayed = max_delayed
        self.spacing = dict(spacing or {})
        """Seconds between two delayed requests of an identifier, by domain; absent for a domain of unknown rules."""
        self._tables: Tables[float] = Tables(max_holds)
        self._holds: dict[str, Table[float]] = {}
        self._max_hold = max_hold
        self.by_hand: dict[tuple[str, bytes], float] = {}
        """The ends of holds that an operator has made, by domain and identifier, also of some that have ended."""
        self._slots = DelaySlots()
        self._unanswered_until = ASAP
        self._inherited: dict[str, _InheritedHolds] = {}

    @classmethod
    def embedded(
        cls,
        domains: Iterable[Domain],
        *,
        max_delay: float = 5.0,
        max_delayed: int = 1024,
        max_identifiers: int = 1_000_000,
    ) -> "Gatekeeper":
        """Create a gatekeeper with an embedded master, which is all that one process needs."""
        master = Master(domains, max_identifiers=max_identifiers, max_delay=max_delay)
        return cls(
            master=master,
            max_delay=max_delay,
            max_delayed=max_delayed,
            spacing=spacing(master.domains.values()),
            max_holds=max_identifiers,
            max_hold=longest_hold(master.domains.values(), max_delay),
        )

    @property
    def evicted(self) -> int:
        """Holds dropped before they ended, to make room."""
        return self._tables.evicted

    @property
    def delayed(self) -> int:
        """The number of delayed requests, as of the last request."""
        return self._slots.taken

    def admit(
        self, domain: str, identifier: bytes | str, *, now: float, loginfo: bytes = b"", max_delay: float = math.inf
    ) -> Accounting:
        """Decide on a request received at `now`, seconds since 1970; account for it; return the verdict.

        A text identifier stands for its UTF-8 bytes. Process an accepted request now, a delayed one at `release`. Of a
        rejected one, `release` is when a request would be accepted. `max_delay` is the caller's own limit, in
        seconds, for one that cannot wait as long as the gatekeeper's. Never raises, waits or locks.
        """
        if isinstance(identifier, str):
            identifier = identifier.encode("utf-8", "surrogatepass")
        clock = self.clock
        instant = now + clock.behind
        if instant > clock.latest:
            clock.latest = instant
        elif clock.latest - instant > TOLERANCE:
            instant = clock.step(instant)
        holds = self._holds.get(domain)
        release = holds.shards[hash(identifier) % SHARDS].get(identifier, ASAP) if holds is not None else ASAP
        hold = release = self._release(domain, identifier, instant) if self._inherited else release
        arrivals = self._arrivals
        if arrivals is not None:
            entries = arrivals.entries(domain, identifier)
            release = max(release, arrivals.release(entries))
        if release <= instant:
            status, release = _ACCEPTED, instant
            self.totals[domain].accepted += 1
        else:
            status, release = self._judge_held(domain, identifier, release, instant, min(max_delay, self.max_delay))
        accounting = Accounting(domain, status, identifier, now, release - clock.behind, loginfo)
        if arrivals is not None and status is not _REJECTED:
            evidence = hold if hold > self._unanswered_until else ASAP
            arrivals.record(entries, release, now=instant, hold=evidence)
        if self._record is not None:
            following = self._record(domain, status, identifier, release, instant)
            if following > instant:
                self._hold(domain, identifier, following)
        if self._account is not None:
            self._send(accounting, now)
        return accounting

    def admit_all(self, charges: Charges, *, now: float, max_delay: float = math.inf) -> Accounting:
        """Decide on a request that counts in several domains, or as several requests; otherwise as `admit`.

        The longest hold decides, and a rejected request counts in none of them. A request is admitted as one, and then
        counts as if others had come with it, which the rules delay. Returns the accounting in its own domain; of a
        rejected one, that in the domain whose hold has decided.
        """
        domain, identifier, others, cost = charges
        if not others and cost == 1:
            return self.admit(domain, identifier, now=now, max_delay=max_delay)
        pairs, instant, arrivals = [(domain, identifier), *others], self.clock.read(now), self._arrivals
        holds = [self._release(*pair, instant) for pair in pairs]
        entries = [[] if arrivals is None else arrivals.entries(*pair) for pair in pairs]
        known = [ASAP if arrivals is None else arrivals.release(of) for of in entries]
        releases = [*map(max, holds, known)]
        release, status = max(releases), _ACCEPTED
        decider = releases.index(release)
        if release <= instant:
            release = instant
        else:
            limit = min(max_delay, self.max_delay)
            status, release = self._judge_held(*pairs[decider], release, instant, limit)
        made = [Accounting(name, status, who, now, release - self.clock.behind) for name, who in pairs]
        for index, accounting in enumerate(made):
            if status is _ACCEPTED or index != decider:
                self._count(accounting)
            evidence = holds[index] if holds[index] > self._unanswered_until else ASAP
            if arrivals is not None and status is not _REJECTED:
                for _ in range(cost):
                    arrivals.record(entries[index], release, now=instant, hold=evidence)
            self._charge(accounting, 1 if status is _REJECTED else cost, release, instant)
        return made[decider if status is _REJECTED else 0]

    def _charge(self, accounting: Accounting, times: int, release: float, now: float) -> None:
        """Account for a request as for several; those that the rules of an embedded master delay come later."""
        hold = ASAP
        for _ in range(times):
            if self._record is not None:
                timestamp = max(release, hold)
                following = self._record(accounting.domain, accounting.status, accounting.identifier, timestamp, now)
                hold = max(hold, following)
            if self._account is not None:
                self._send(accounting, accounting.received)
        if hold > now:
            self._hold(accounting.domain, accounting.identifier, hold)

    def _count(self, accounting: Accounting) -> None:
        totals = self.totals[accounting.domain]
        if accounting.status is _ACCEPTED:
            totals.accepted += 1
        elif accounting.status is _DELAYED:
            totals.delayed += 1
        else:
            totals.rejected += 1

    def _judge_held(
        self, domain: str, identifier: bytes, release: float, now: float, max_delay: float
    ) -> tuple[Status, float]:
        """Decide on a held request; return the verdict and its release.

        A delayed request takes a slot, and extends the hold by one interval.
        """
        permitted = self._shorten(release, now)
        if self._arrivals is not None or self._inherited:
            self._hold(domain, identifier, permitted)  # it may follow from these
        if permitted < release:
            release = permitted
            self._holds[domain].put(identifier, release)
        slots = self._slots
        slots.free(now)
        # "Delayed requests consume resources, and a gatekeeper may choose to reject further requests if these
        # resources are exhausted."
        if judge(release, now=now, max_delay=max_delay) is _REJECTED or slots.taken >= self._max_delayed:
            self.totals[domain].rejected += 1
            return _REJECTED, release
        slots.take(release)
        self.totals[domain].delayed += 1
        interval = self.spacing.get(domain)
        if interval is not None:
            self._hold(domain, identifier, advance(release, interval))
        return _DELAYED, release

    @property
    def history(self) -> Callable[[str, bytes], Sequence[float] | None] | None:
        """Returns what is recorded of an identifier in a known domain with rules, in instants of the clock.

        By the embedded master or, for algorithm `gcra`, by `arrivals`; None without both.
        """
        known = self._arrivals if self.master is None else self.master
        return None if known is None else known.history

    def report(self, accounting: Accounting, *, now: float) -> None:
        """Count and send a verdict that another program has decided by the holds of this gatekeeper, such as nginx.

        Its domain must be one of those that the operator has named: totals are kept for each. If it was received after
        `now`, it counts as received at `now`. The program limits how many requests it delays. Never raises, waits or
        locks.
        """
        ahead = accounting.received - now
        if ahead > 0.0:
            accounting = replace(accounting, received=now, release=accounting.release - ahead)
        self._count(accounting)
        if self._account is not None:
            self._send(accounting, now)

    def _send(self, accounting: Accounting, now: float) -> None:
        assert self._account is not None
        control = self._account(accounting, now)
        if control is not None:
            self.obey(control, now=now)

    def cancel(self, accounting: Accounting) -> None:
        """Free the slot of a delayed request whose client disconnected; at its release, the slot is freed anyway."""
        if accounting.status is _DELAYED:
            self._slots.cancel(accounting.release + self.clock.behind)

    def obey(self, control: DelayUntil, *, now: float | None = None) -> None:
        """Hold an identifier until a release time, unless it is held for longer already.

        With `now`, when the control was received, an overlong hold is shortened at once; without, when a request meets
        it. Until then it keeps its place in a full table, from which holds that end earlier are dropped.
        """
        if now is None:
            release = control.release + self.clock.behind
        else:
            instant = self.clock.read(now)
            release = self._shorten(control.release + self.clock.behind, instant)
        self._hold(control.domain, control.identifier, release)

    def hold(self, domain: str, identifier: bytes, seconds: float, *, now: float) -> None:
        """Hold an identifier at the request of an operator, so also for longer than `max_hold`, which grows."""
        control = DelayUntil(domain, identifier, now + seconds)
        keep_latest(self.by_hand, (domain, identifier), control.release)
        self._max_hold = max(self._max_hold, seconds)
        self.obey(control, now=now)
        if self.master is not None:
            self.master.learn(domain, identifier, control.release, now)

    def reset(self, domain: str, identifier: bytes, *, now: float) -> bool:
        """Forget the hold of an identifier, and what is counted of it here; return whether it was held."""
        release, holds = self.held(domain, identifier, now=now), self._holds.get(domain)
        if self.master is not None:
            self.master.reset(domain, identifier)
        if self._arrivals is not None:
            self._arrivals.reset(self._arrivals.entries(domain, identifier))
        if holds is not None and holds.get(identifier) is not None:
            holds.put(identifier, ASAP)
        return release > now

    def adopt(self, other: "Gatekeeper", domains: Iterable[str], *, now: float | None = None) -> None:
        """Take over the totals of another gatekeeper, the state of its master, and its holds in `domains`.

        For a reload, at `now`, by default the time of its last request. In the other domains, whose rules have changed,
        clients are held as the embedded master says or, without one, for `_UNTIL_ANSWERED` seconds at most: until then
        a master elsewhere has said. Afterwards the other gatekeeper may only be used to `cancel` requests that it has
        delayed. If it has more holds than this one allows, they are dropped as new ones are added.
        """
        self.totals, self.clock, self.shortened = other.totals, other.clock, other.shortened
        self.by_hand = other.by_hand
        self._slots = other._slots  # noqa: SLF001 - another one of this class
        self._tables.evicted = other.evicted
        moment = self.clock.latest - self.clock.behind if now is None else now
        self._max_hold = max(self._max_hold, max(self.by_hand.values(), default=ASAP) - moment)
        kept, until = set(domains), moment + self.clock.behind + _UNTIL_ANSWERED
        inherited = other._inherited  # noqa: SLF001 - another one of this class
        for name, holds in other._holds.items():  # noqa: SLF001 - another one of this class
            if name in kept:
                self._holds[name] = self._tables.include(holds)
        if self.master is not None:
            if other.master is not None:
                self.master.adopt(other.master, now=moment)
            self.master.clock = self.clock
            self.obey_master(now=moment, kept=kept - inherited.keys())
            return
        self._inherited = {name: holds for name, holds in inherited.items() if name in kept}
        for name in (other._holds.keys() | inherited.keys()) - kept:  # noqa: SLF001 - another one of this class
            self._unanswered_until = until  # a hold that ends earlier follows from the rules of before
            release = partial(other._release, name, until=until)  # noqa: SLF001 - another one of this class
            self._inherited[name] = _InheritedHolds(release, self._steps_until(until))

    def obey_master(self, *, now: float, kept: AbstractSet[str] = frozenset()) -> None:
        """Hold whom the embedded master holds at `now`, except in the domains that are `kept`.

        A hold is looked up when a request needs it; `forget` copies all of them, in steps.
        """
        assert self.master is not None
        for name in self.master.domains.keys() - kept:
            batches = self.master.hold_batches(name, now=now, limit=_COPIED_AT_ONCE)
            self._inherited[name] = _InheritedHolds(partial(self.master.held, name), (holds for holds, _ in batches))

    def _steps_until(self, until: float) -> Iterator[list[DelayUntil]]:
        while self.clock.latest < until:
            yield []

    def _release(self, domain: str, identifier: bytes, instant: float, *, until: float = NEVER) -> float:
        """Return the release of a hold, at most `until`, also of one that is not copied yet; `ASAP` without a hold."""
        holds, inherited = self._holds.get(domain), self._inherited.get(domain)
        release = holds.get(identifier) if holds is not None else None
        before = ASAP if inherited is None else inherited.release(identifier, instant)
        return min(until, before if release is None else max(release, before))

    def held(self, domain: str, identifier: bytes, *, now: float) -> float:
        """Return the release time in force for `identifier`, `ASAP` if it is not held."""
        behind = self.clock.behind
        release = self._release(domain, identifier, now + behind)
        return release - behind if release > now + behind else ASAP

    def holds(self, domain: str, *, now: float) -> Iterator[list[tuple[bytes, float]]]:
        """Yield the holds in force in `domain`, identifiers with their release times, in lists of some thousands.

        Holds may change between two lists: one that is added meanwhile may be missing.
        """
        holds = self._holds.get(domain)
        for batch, _ in holds.batches() if holds is not None else ():
            behind = self.clock.behind
            yield [(name, release - behind) for name, release in batch if release > now + behind]

    def hold_count(self, domain: str) -> int:
        """Return the number of holds in `domain`; some of them may have ended a moment ago."""
        holds = self._holds.get(domain)
        return holds.size if holds is not None else 0

    def top_in_steps(self, domain: str, *, now: float, most: int = 10) -> Iterator[list[tuple[bytes, float]]]:
        """Yield who is held longest, with the release times, at most `most`: among a part of the holds, finally all.

        Each step visits a limited number of holds, and they may change between two steps.
        """
        longest: list[tuple[float, bytes]] = []
        for batch in self.holds(domain, now=now):
            longest = nlargest(most, longest + [(release, name) for name, release in batch])
            yield [(name, release) for release, name in longest]

    def forget(self, *, now: float, most: int | None = None) -> int:
        """Drop the holds that have ended, and return their number; free the slots whose release time has come.

        With `most`, at most that many holds are examined, in the order of expiry, so that an event loop is not blocked.
        After a reload, some of its holds are copied, too.
        """
        instant = self.clock.read(now)
        self._slots.free(instant)
        name, inherited = next(iter(self._inherited.items()), ("", None))
        if inherited is not None:
            holds = next(inherited.steps, None)
            if holds is None:
                del self._inherited[name]
            for hold in holds or ():
                self._hold(name, hold.identifier, hold.release + self.clock.behind)
        return self._tables.forget(instant, most)

    def _shorten(self, release: float, now: float) -> float:
        """Return the end of a hold, at most `max_hold` from `now`; an endless hold is not shortened."""
        if not self._max_hold + _ROUNDING < release - now < NEVER:
            return release
        self.shortened += 1
        return now + self._max_hold

    def _hold(self, domain: str, identifier: bytes, release: float) -> None:
        holds = self._holds.get(domain)
        if holds is None:
            # A release is its own expiry.
            holds = self._holds[domain] = self._tables.include(Table(float, _TICK))
        known = holds.get(identifier)
        if known is None:
            self._tables.add(holds, identifier, release, self.clock.latest)
        elif release > known:
            holds.put(identifier, release)


def keep_latest(by_hand: dict[tuple[str, bytes], float], key: tuple[str, bytes], until: float) -> None:
    """Note a hold that an operator has made, in place of the oldest one if there are many."""
    by_hand[key] = until
    if len(by_hand) > _MAX_BY_HAND:
        del by_hand[next(iter(by_hand))]


def spacing(domains: Iterable[Domain]) -> dict[str, float]:
    """Return the seconds between delayed requests of each enforced domain: the interval of its fastest rule.

    The fastest, because it is unknown which rule caused a hold, and the master publishes the releases of slower rules.
    """
    return {
        domain.name: min(rule.interval for rule in domain.rules)
        for domain in domains
        if domain.rules and domain.mode == "enforce"
    }


def longest_hold(domains: Iterable[Domain], max_delay: float) -> float:
    """Return the maximum duration of a hold under the rules of `domains`, in seconds.

    A hold ends at most one interval after the release of a request that was delayed by `max_delay`. Algorithms that
    count excess requests make it longer, by at most a window.
    """
    return max_delay + max((rule.window for domain in domains for rule in domain.rules), default=0.0) + _SLACK
