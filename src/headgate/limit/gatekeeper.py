"""The gatekeeper: who may go now, who waits, who is turned away.

This file knows nothing of HTTP, frames, sockets or clocks, and nothing in it waits or locks: "the gatekeeper uses
local information to decide the disposition of each request instead of consulting the master" (smockron.txt,
Fault-Tolerance).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nlargest

from headgate.limit.accounting import Accounting, DelayUntil, Totals
from headgate.limit.clock import TOLERANCE, SteadyClock
from headgate.limit.domain import Domain
from headgate.limit.master import Master
from headgate.limit.slots import DelaySlots
from headgate.limit.table import SHARDS, Table, Tables
from headgate.release import ASAP, NEVER, Status, advance, judge

__all__ = ["MAX_HOLD", "Account", "Gatekeeper", "longest_hold", "spacing"]

# Bound once: looking a member up in its Enum costs a fifth of a decision.
_ACCEPTED, _DELAYED, _REJECTED = Status.ACCEPTED, Status.DELAYED, Status.REJECTED

_TICK = 0.0625
"""Seconds within which holds that end are not told apart when one has to make room."""

MAX_HOLD = 31 * 86_400.0
"""Seconds: the longest hold that is believed where the rules are not known."""

_SLACK = 1.0
"""Seconds that a hold may be longer than its rule says: a timestamp on the wire is rounded, and clocks differ."""

Account = Callable[[Accounting, float], DelayUntil | None]
"""Where a gatekeeper's accounting goes: an embedded master's `account`, or a link's, which answers later."""


class Gatekeeper:
    """Holds the identifiers a master has spoken of.

    `account(accounting, now)` takes every verdict and may answer with a control, which is obeyed at once; a `master`
    inside is told directly (see `embedded`); with neither, the gatekeeper only obeys. A hold of at most `max_delay`
    seconds is a delay while fewer than `max_delayed` requests are delayed at once; anything else held is rejected.
    `spacing` gives, for domains whose rule is known here, the seconds between two requests delayed under it, so that
    those who wait are not all released at one instant. At most `max_holds` holds are kept; one more takes the place of
    one that is over or, when none is, of the one that ends next (counted in `evicted`). A hold of more than `max_hold`
    seconds is cut to so many when a request meets it (counted in `shortened`): this clock is behind the master's.
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
    ) -> None:
        self.max_delay = max_delay
        """Seconds; a longer hold is a rejection."""
        self.totals: dict[str, Totals] = defaultdict(Totals)
        """How many requests of each domain met each verdict."""
        self.shortened = 0
        """Holds that were longer than any can be."""
        self.clock = master.clock if master is not None else SteadyClock()
        """The clock of the instants in holds and, with a master inside, in its histories."""
        self.master = master
        """The master inside, where there is one."""
        self._account = account
        self._weigh = master.weigh if master is not None else None
        self._max_delayed = max_delayed
        self._spacing = dict(spacing or {})
        self._tables: Tables[float] = Tables(max_holds)
        self._holds: dict[str, Table[float]] = {}
        self._max_hold = max_hold
        self._slots = DelaySlots()

    @classmethod
    def embedded(
        cls,
        domains: Iterable[Domain],
        *,
        max_delay: float = 5.0,
        max_delayed: int = 1024,
        max_identifiers: int = 1_000_000,
    ) -> "Gatekeeper":
        """Give a gatekeeper with its master inside: everything one process needs."""
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
        """Holds in force that were dropped to make room."""
        return self._tables.evicted

    @property
    def delayed(self) -> int:
        """How many requests are delayed: those whose time had not come, and who had not left, at the last request."""
        return self._slots.taken

    def admit(self, domain: str, identifier: bytes | str, *, now: float, loginfo: bytes = b"") -> Accounting:
        """Decide on one request received at `now`, seconds since 1970; account for it; give the verdict.

        An identifier that is text stands for its UTF-8 bytes. Accepted: go. Delayed: go at `release`. Rejected: turn
        it away; `release` says when a request would be acceptable. Never raises, waits or locks.
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
        if release <= instant:
            status, release = _ACCEPTED, instant
            self.totals[domain].accepted += 1
        else:
            status, release = self._judge_held(domain, identifier, release, instant)
        accounting = Accounting(domain, status, identifier, now, release - clock.behind, loginfo)
        if self._weigh is not None:
            following = self._weigh(domain, status, identifier, release, instant)
            if following > instant:
                self._hold(domain, identifier, following)
        if self._account is not None:
            control = self._account(accounting, now)
            if control is not None:
                self.obey(control)
        return accounting

    def _judge_held(self, domain: str, identifier: bytes, release: float, now: float) -> tuple[Status, float]:
        """Judge a held request; return the verdict and its release.

        One that is delayed takes a place until then, and the next one waits for an interval more.
        """
        if self._max_hold < release - now < NEVER:
            release = now + self._max_hold
            self._holds[domain].put(identifier, release)
            self.shortened += 1
        slots = self._slots
        slots.free(now)
        # "Delayed requests consume resources, and a gatekeeper may choose to reject further requests if these
        # resources are exhausted."
        if judge(release, now=now, max_delay=self.max_delay) is _REJECTED or slots.taken >= self._max_delayed:
            self.totals[domain].rejected += 1
            return _REJECTED, release
        slots.take(release)
        self.totals[domain].delayed += 1
        interval = self._spacing.get(domain)
        if interval is not None:
            self._hold(domain, identifier, advance(release, interval))
        return _DELAYED, release

    def leave(self, accounting: Accounting) -> None:
        """Free the place of a delayed request that went away before its time; at its time it is free by itself."""
        if accounting.status is _DELAYED:
            self._slots.leave(accounting.release + self.clock.behind)

    def obey(self, control: DelayUntil) -> None:
        """Hold an identifier until a release time; one earlier than it already has changes nothing."""
        self._hold(control.domain, control.identifier, control.release + self.clock.behind)

    def adopt(self, other: "Gatekeeper", domains: Iterable[str]) -> None:
        """Take over what another gatekeeper knows: its totals, what its master knows, and the holds in `domains`.

        For rules that change while requests come in. The other one must not be used any more, but for requests that it
        has delayed: they count here, and those that go away may be told to either. Where there are more holds than
        this one keeps, they go as new ones come.
        """
        self.totals, self.clock, self.shortened = other.totals, other.clock, other.shortened
        self._slots = other._slots  # noqa: SLF001 - another one of this class
        self._tables.evicted = other.evicted
        for name in domains:
            holds = other._holds.get(name)  # noqa: SLF001 - another one of this class
            if holds is not None:
                self._holds[name] = self._tables.include(holds)
        if self.master is not None:
            if other.master is not None:
                self.master.adopt(other.master)
            self.master.clock = self.clock

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

    def held(self, domain: str, identifier: bytes, *, now: float) -> float:
        """Give the release time in force for `identifier`, `ASAP` when nothing holds it."""
        holds = self._holds.get(domain)
        release = holds.get(identifier) if holds is not None else None
        behind = self.clock.behind
        return release - behind if release is not None and release > now + behind else ASAP

    def top(self, domain: str, *, now: float, most: int = 10) -> list[tuple[bytes, float]]:
        """Give the identifiers held longest in `domain` with their release times, at most `most`."""
        longest: list[tuple[bytes, float]] = []
        for so_far in self.top_pieces(domain, now=now, most=most):
            longest = so_far
        return longest

    def top_pieces(self, domain: str, *, now: float, most: int = 10) -> Iterator[list[tuple[bytes, float]]]:
        """Yield what `top` gives of a part of the holds, then of a greater part, at last of all of them.

        Each time no more than a bounded number of holds is looked at, and they may change between two.
        """
        longest: list[tuple[float, bytes]] = []
        holds = self._holds.get(domain)
        for piece, _ in holds.pieces() if holds is not None else ():
            behind = self.clock.behind
            held = [(release - behind, name) for name, release in piece if release > now + behind]
            longest = nlargest(most, longest + held)
            yield [(name, release) for release, name in longest]

    def forget(self, *, now: float, most: int | None = None) -> int:
        """Drop the holds that are over; give how many. Places whose time has come are free too.

        With `most`, no more than that many are examined: those that should be over first. A shell that calls this
        from an event loop never stops it for long.
        """
        instant = self.clock.read(now)
        self._slots.free(instant)
        return self._tables.forget(instant, most)


def spacing(domains: Iterable[Domain]) -> dict[str, float]:
    """Give each enforced domain's seconds between delayed requests: the interval of its fastest rule.

    The fastest, since which rule made a hold is not known here, and a slower rule's own release comes from the master.
    """
    return {
        domain.name: min(rule.interval for rule in domain.rules)
        for domain in domains
        if domain.rules and domain.mode == "enforce"
    }


def longest_hold(domains: Iterable[Domain], max_delay: float) -> float:
    """Return the seconds that no hold under the rules of `domains` is longer than.

    A hold ends at most one interval after the release of a request that was delayed by `max_delay`; algorithms that
    count what slipped through make it longer, but not by more than a window.
    """
    return max_delay + max((rule.window for domain in domains for rule in domain.rules), default=0.0) + _SLACK
