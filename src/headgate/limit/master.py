"""The master: accounting in, release times out.

This file knows nothing of frames, sockets or clocks. "When the master receives an accounting message, it applies the
throttling logic to determine when the next request for the given identifier is allowed on the given domain […]
otherwise it publishes a control message" (smockron.txt, Protocol). What it returns is what to publish.
"""

import sys
from array import array
from collections.abc import Callable, Iterable, Iterator

from headgate.limit.accounting import Accounting, DelayUntil, Totals
from headgate.limit.clock import SteadyClock
from headgate.limit.domain import Domain
from headgate.limit.history import ALGORITHMS, PUBLISHED, new_history
from headgate.limit.table import SHARDS, Table, Tables
from headgate.release import ASAP, Status

__all__ = ["Master"]

_ACCEPTED, _REJECTED = Status.ACCEPTED, Status.REJECTED

_AHEAD = 1.0
"""Seconds; a sender whose clock is ahead by more is counted."""

_MAX_DELAY = 86_400.0
"""Seconds; no gatekeeper's configuration allows a longer delay."""

_TICKS_A_WINDOW = 64
"""How finely a domain tells its histories apart, by their expiry, when one has to make room."""


class _Book:
    """One domain's histories by identifier."""

    __slots__ = ("domain", "enforced", "histories", "record", "selective", "totals")

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        # None where there is nothing to work out: no rules, or a domain that only counts.
        self.histories: Table[array[float]] | None = None
        self.record: Callable[[array[float], float, float], float] = _nothing
        if domain.rules and domain.mode != "off":
            algorithm = ALGORITHMS[domain.algorithm](domain.rules)
            tick = max(rule.window for rule in domain.rules) / _TICKS_A_WINDOW
            self.histories, self.record = Table(algorithm.expiry, tick), algorithm.record
        self.enforced = domain.mode == "enforce"
        self.selective = bool(domain.exempt)
        self.totals = Totals()


def _nothing(_history: "array[float]", _moment: float, _now: float) -> float:
    return ASAP


class Master:
    """Applies the rules of `domains` to accounting messages, in whatever order they arrive.

    At most `max_identifiers` histories are kept over all domains; one more takes the place of one that can hold no
    request any more or, when there is none, of the one in the fullest domain that expires next (counted in `evicted`:
    "a fail-permissive design"). No message reaches further into the future than `max_delay`, the longest delay of the
    gatekeepers, whatever the sender's clock says.
    """

    def __init__(
        self, domains: Iterable[Domain], *, max_identifiers: int = 1_000_000, max_delay: float = _MAX_DELAY
    ) -> None:
        self.domains: dict[str, Domain] = {}
        """The domains by name."""
        self.unknown = 0
        """Messages dropped because their domain is none of ours."""
        self.shadowed = 0
        """Releases worked out for domains in shadow mode, and not published."""
        self.ahead = 0
        """Messages from senders whose clock is ahead by more than a second."""
        self.clock = SteadyClock()
        """The clock of the instants in histories; it goes on when the wall clock is set back."""
        self._max_delay = max_delay
        self._max_identifiers = max_identifiers
        self._tables: Tables[array[float]] = Tables(max_identifiers)
        self._books: dict[str, _Book] = {}
        for domain in domains:
            self.domains[domain.name] = domain
            self._books[domain.name] = _Book(domain)
        for book in self._books.values():
            if book.histories is not None:
                self._tables.include(book.histories)
        self.totals: dict[str, Totals] = {name: book.totals for name, book in self._books.items()}
        """How many requests of each domain met each verdict."""

    def __len__(self) -> int:
        """The number of histories kept."""
        return self._tables.size

    @property
    def evicted(self) -> int:
        """Histories dropped to make room while they could still hold a request."""
        return self._tables.evicted

    def account(self, accounting: Accounting, now: float) -> DelayUntil | None:
        """Take one accounting message that arrives at `now`; give the control to publish, or None."""
        instant, behind = self.clock.read(now), self.clock.behind
        moment = self.moment(accounting.received, accounting.release, now) + behind
        release = self.weigh(accounting.domain, accounting.status, accounting.identifier, moment, instant)
        return None if release == ASAP else DelayUntil(accounting.domain, accounting.identifier, release - behind)

    def moment(self, received: float, release: float, now: float) -> float:
        """Return when a request counts whose message arrives at `now`; all in seconds since 1970.

        That is "the received timestamp for accepted requests, and the delayed timestamp for delayed requests":
        `release`, which for an accepted one is `received`. No request is received after its message, so where
        `received` is later, the sender's clock is ahead. A delay is a delay by any clock, of at most `max_delay`.
        """
        if received > now:
            self.ahead += received - now > _AHEAD
            release = now + max(0.0, release - received)
        return release if release - now <= self._max_delay else now + self._max_delay

    def weigh(self, domain: str, status: Status, identifier: bytes, moment: float, now: float) -> float:
        """Take one accounting message in pieces; give the release time to publish, `ASAP` for none.

        `moment` is when the request counts (see `moment`); of a rejected one it is not looked at. `now` is when the
        message arrives. All are instants of `clock`.
        """
        try:
            book = self._books[domain]
        except KeyError:
            self.unknown += 1
            return ASAP
        if status is _ACCEPTED:
            book.totals.accepted += 1
        elif status is _REJECTED:
            book.totals.rejected += 1
            return ASAP
        else:
            book.totals.delayed += 1
        histories = book.histories
        if histories is None or (book.selective and book.domain.exempts(identifier)):
            return ASAP
        history = histories.shards[hash(identifier) % SHARDS].get(identifier)
        if history is None:
            history = new_history()
            release = book.record(history, moment, now)
            self._tables.add(histories, identifier, history, now)
        else:
            release = book.record(history, moment, now)
        # A hold is published once: only a later one says anything new.
        if release <= now or release <= history[PUBLISHED]:
            return ASAP
        history[PUBLISHED] = release
        if book.enforced:
            return release
        self.shadowed += 1
        return ASAP

    def holds(self, domain: str, *, now: float) -> Iterator[DelayUntil]:
        """Give the controls still in force for `domain`: what a gatekeeper that (re)connects has to know."""
        for piece, _ in self.hold_pieces(domain, now=now, most=sys.maxsize):
            yield from piece

    def hold_pieces(self, domain: str, *, now: float, most: int) -> Iterator[tuple[list[DelayUntil], bool]]:
        """Yield what `holds` does in lists of at most `most`, each after looking at a bounded part of the histories.

        With each list comes whether more may follow. A list may be empty, and the histories may change between two.
        """
        book = self._books.get(domain)
        if book is None or book.histories is None or not book.enforced:
            return
        behind = self.clock.behind
        instant = now + behind
        controls: list[DelayUntil] = []
        for entries, more in book.histories.pieces():
            controls += [
                DelayUntil(domain, identifier, history[PUBLISHED] - behind)
                for identifier, history in entries
                if history[PUBLISHED] > instant
            ]
            while more or len(controls) > most:
                yield controls[:most], True
                controls = controls[most:]
                if not controls:
                    break
        yield controls, False

    def adopt(self, other: "Master") -> None:
        """Take over what another master knows: its totals, and the histories of each domain that is the same in both.

        For rules that change while requests come in; the other one is not to be used any more. Where there are more
        histories than this one keeps, they go as new ones come.
        """
        self.unknown, self.shadowed, self.ahead = other.unknown, other.shadowed, other.ahead
        self.clock = other.clock
        self._tables = Tables(self._max_identifiers, evicted=other.evicted)
        for name, book in self._books.items():
            old = other._books.get(name)  # noqa: SLF001 - another one of this class
            if old is not None:
                self.totals[name] = book.totals = old.totals
            if old is not None and old.domain == book.domain:
                book.histories = old.histories
            if book.histories is not None:
                self._tables.include(book.histories)

    def forget(self, *, now: float, most: int | None = None) -> int:
        """Drop histories that can hold no request any more; give how many.

        With `most`, no more than that many are examined: those that should have expired first. A shell that calls
        this from an event loop never stops it for long.
        """
        return self._tables.forget(self.clock.read(now), most)
