"""The gatekeeper: who may go now, who waits, who is turned away.

This file knows nothing of HTTP, frames, sockets or clocks, and nothing in it waits or locks: "the gatekeeper uses
local information to decide the disposition of each request instead of consulting the master" (smockron.txt,
Fault-Tolerance).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heappop, heappush, nlargest
from itertools import islice

from headgate.limit.accounting import Accounting, DelayUntil, Totals
from headgate.limit.domain import Domain
from headgate.limit.master import Master
from headgate.release import ASAP, NEVER, Status, advance, judge

__all__ = ["Account", "Gatekeeper"]

# Bound once: looking a member up in its Enum costs a fifth of a decision.
_ACCEPTED, _DELAYED, _REJECTED = Status.ACCEPTED, Status.DELAYED, Status.REJECTED

Account = Callable[[Accounting, float], DelayUntil | None]
"""Where a gatekeeper's accounting goes: an embedded master's `account`, or a link's, which answers later."""


class Gatekeeper:
    """Holds the identifiers a master has spoken of.

    `account(accounting, now)` takes every verdict and may answer with a control, which is obeyed at once; a `master`
    inside is told directly (see `embedded`); with neither, the gatekeeper only obeys. A hold of at most `max_delay`
    seconds is a delay while fewer than `max_delayed` requests are delayed at once; anything else held is rejected.
    `spacing` gives, for domains whose rule is known here, the seconds between two requests delayed under it, so that
    those who wait are not all released at one instant. At most `max_holds` holds are kept; when there is no room the
    oldest are dropped (counted in `evicted`).
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
    ) -> None:
        self.max_delay = max_delay
        """Seconds; a longer hold is a rejection."""
        self.totals: dict[str, Totals] = {}
        """How many requests of each domain met each verdict."""
        self.evicted = 0
        """Holds dropped for want of room."""
        self.master = master
        """The master inside, where there is one."""
        self._account = account
        self._weigh = master.weigh if master is not None else None
        self._max_delayed = max_delayed
        self._spacing = dict(spacing or {})
        self._max_holds = max_holds
        self._holds: dict[str, dict[bytes, float]] = {}
        self._size = 0
        self._sweep: Iterator[tuple[str, bytes]] = iter(())
        self._seen = ASAP
        self._places: dict[float, int] = {}
        self._departures: list[float] = []
        self._delayed = 0

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
        master = Master(domains, max_identifiers=max_identifiers)
        return cls(
            master=master,
            max_delay=max_delay,
            max_delayed=max_delayed,
            spacing=spacing(master.domains.values()),
            max_holds=max_identifiers,
        )

    @property
    def delayed(self) -> int:
        """How many requests are delayed: those whose time had not come, and who had not left, at the last request."""
        return self._delayed

    def admit(self, domain: str, identifier: bytes | str, *, now: float, loginfo: bytes = b"") -> Accounting:
        """Decide on one request received at `now`, seconds since 1970; account for it; give the verdict.

        An identifier that is text stands for its UTF-8 bytes. Accepted: go. Delayed: go at `release`. Rejected: turn
        it away; `release` says when a request would be acceptable. Never raises, waits or locks.
        """
        if isinstance(identifier, str):
            identifier = identifier.encode("utf-8", "surrogatepass")
        self._seen = now
        try:
            totals = self.totals[domain]
        except KeyError:
            totals = self.totals[domain] = Totals()
        holds = self._holds.get(domain)
        release = holds.get(identifier, ASAP) if holds else ASAP
        if release <= now:
            status, release = _ACCEPTED, now
            totals.accepted += 1
        else:
            status = self._judge_held(release, now)
            if status is _DELAYED:
                totals.delayed += 1
                self._space(domain, identifier, release)
            else:
                totals.rejected += 1
        accounting = Accounting(domain, status, identifier, now, release, loginfo)
        if self._weigh is not None:
            following = self._weigh(domain, status, identifier, release, now)
            if following > now:
                self._hold(domain, identifier, following)
        if self._account is not None:
            control = self._account(accounting, now)
            if control is not None:
                self.obey(control)
        return accounting

    def _judge_held(self, release: float, now: float) -> Status:
        """Judge a held request; a delayed one takes a place until its release."""
        self._free_places(now)
        status = judge(release, now=now, max_delay=self.max_delay)
        if status is _DELAYED:
            # "Delayed requests consume resources, and a gatekeeper may choose to reject further requests if these
            # resources are exhausted."
            if self._delayed >= self._max_delayed:
                return _REJECTED
            if release not in self._places:
                heappush(self._departures, release)
            self._places[release] = self._places.get(release, 0) + 1
            self._delayed += 1
        return status

    def _free_places(self, now: float) -> None:
        departures = self._departures
        while departures and departures[0] <= now:
            self._delayed -= self._places.pop(heappop(departures))

    def _space(self, domain: str, identifier: bytes, release: float) -> None:
        interval = self._spacing.get(domain)
        if interval is not None:
            self._hold(domain, identifier, advance(release, interval))

    def leave(self, accounting: Accounting) -> None:
        """Free the place of a delayed request that went away before its time; at its time it is free by itself."""
        if accounting.status is _DELAYED and self._places.get(accounting.release, 0) > 0:
            self._places[accounting.release] -= 1
            self._delayed -= 1

    def obey(self, control: DelayUntil) -> None:
        """Hold an identifier until a release time; one earlier than it already has changes nothing."""
        self._hold(control.domain, control.identifier, control.release)

    def _hold(self, domain: str, identifier: bytes, release: float) -> None:
        known = self._holds.get(domain, {}).get(identifier)
        if known is None:
            if self._size >= self._max_holds:
                self._make_room()
            self._holds.setdefault(domain, {})[identifier] = release
            self._size += 1
        elif release > known:
            self._holds[domain][identifier] = release

    def held(self, domain: str, identifier: bytes, *, now: float) -> float:
        """Give the release time in force for `identifier`, `ASAP` when nothing holds it."""
        release = self._holds.get(domain, {}).get(identifier, ASAP)
        return release if release > now else ASAP

    def top(self, domain: str, *, now: float, most: int = 10) -> list[tuple[bytes, float]]:
        """Give the identifiers held longest in `domain` with their release times, at most `most`."""
        held = ((release, name) for name, release in self._holds.get(domain, {}).items() if release > now)
        return [(name, release) for release, name in nlargest(most, held)]

    def forget(self, *, now: float, most: int | None = None) -> int:
        """Drop the holds that are over; give how many. Places whose time has come are free too.

        With `most`, look at no more than that many, and go on from there the next time: a shell that calls this from
        an event loop never stops it for long.
        """
        self._free_places(now)
        before = self._size
        steps = list(islice(self._sweep, most)) if most is not None else self._names()
        if not steps:
            self._sweep = iter(self._names())
            steps = list(islice(self._sweep, most))
        for domain, identifier in steps:
            holds = self._holds[domain]
            if holds.get(identifier, NEVER) <= now:
                del holds[identifier]
                self._size -= 1
        return before - self._size

    def _names(self) -> list[tuple[str, bytes]]:
        return [(domain, identifier) for domain, holds in self._holds.items() for identifier in holds]

    def _make_room(self) -> None:
        """Drop what is over, and else the oldest sixteenth of the fullest domain: one pass instead of many."""
        if self.forget(now=self._seen) > self._max_holds // 64:
            return
        holds = max(self._holds.values(), key=len)
        oldest = list(islice(holds, len(holds) // 16 + 1))
        for name in oldest:
            del holds[name]
        self._size -= len(oldest)
        self.evicted += len(oldest)


def spacing(domains: Iterable[Domain]) -> dict[str, float]:
    """Give each enforced domain's seconds between delayed requests: the interval of its fastest rule.

    The fastest, since which rule made a hold is not known here, and a slower rule's own release comes from the master.
    """
    return {
        domain.name: min(rule.interval for rule in domain.rules)
        for domain in domains
        if domain.rules and domain.mode == "enforce"
    }
