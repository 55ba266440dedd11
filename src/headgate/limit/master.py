"""The master: accounting in, release times out.

This file knows nothing of frames, sockets or clocks. "When the master receives an accounting message, it applies the
throttling logic to determine when the next request for the given identifier is allowed on the given domain […]
otherwise it publishes a control message" (smockron.txt, Protocol). What it returns is what to publish.
"""

from array import array
from collections.abc import Iterable, Iterator
from itertools import islice

from headgate.limit.accounting import Accounting, DelayUntil, Totals
from headgate.limit.domain import Domain
from headgate.limit.history import ALGORITHMS, PUBLISHED, opened
from headgate.release import ASAP, Status

__all__ = ["Master"]

_ACCEPTED, _REJECTED = Status.ACCEPTED, Status.REJECTED


class _Book:
    """One domain's histories by identifier."""

    __slots__ = ("algorithm", "domain", "enforced", "histories", "selective", "sweep", "totals")

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        # None where there is nothing to work out: no rules, or a domain that only counts.
        self.algorithm = ALGORITHMS[domain.algorithm](domain.rules) if domain.rules and domain.mode != "off" else None
        self.enforced = domain.mode == "enforce"
        self.selective = bool(domain.exempt)
        self.histories: dict[bytes, array[float]] = {}
        self.sweep: Iterator[bytes] = iter(())
        self.totals = Totals()


class Master:
    """Applies the rules of `domains` to accounting messages, in whatever order they arrive.

    At most `max_identifiers` histories are kept over all domains; when one more is needed, those that can no longer
    hold anybody go first, then the oldest (counted in `evicted`: "a fail-permissive design"). Raises
    `ConfigurationError` for two domains of one name.
    """

    def __init__(self, domains: Iterable[Domain], *, max_identifiers: int = 1_000_000) -> None:
        self.domains: dict[str, Domain] = {}
        """The domains by name."""
        self.unknown = 0
        """Messages dropped because their domain is none of ours."""
        self.evicted = 0
        """Histories dropped for want of room while they could still hold somebody."""
        self.shadowed = 0
        """Releases worked out for domains in shadow mode, and not published."""
        self._max_identifiers = max_identifiers
        self._size = 0
        self._books: dict[str, _Book] = {}
        for domain in domains:
            self.domains[domain.name] = domain
            self._books[domain.name] = _Book(domain)
        self.totals: dict[str, Totals] = {name: book.totals for name, book in self._books.items()}
        """How many requests of each domain met each verdict."""

    def __len__(self) -> int:
        """The number of histories kept."""
        return self._size

    def account(self, accounting: Accounting, now: float) -> DelayUntil | None:
        """Take one accounting message that arrives at `now`; give the control to publish, or None."""
        moment = accounting.received if accounting.status is _ACCEPTED else accounting.release
        release = self.weigh(accounting.domain, accounting.status, accounting.identifier, moment, now)
        return None if release == ASAP else DelayUntil(accounting.domain, accounting.identifier, release)

    def weigh(self, domain: str, status: Status, identifier: bytes, moment: float, now: float) -> float:
        """Take one accounting message in pieces; give the release time to publish, `ASAP` for none.

        `moment` is "the received timestamp for accepted requests, and the delayed timestamp for delayed requests";
        for a rejected one it is not looked at. `now` is when the message arrives. All in seconds since 1970.
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
        algorithm = book.algorithm
        if algorithm is None or (book.selective and book.domain.exempts(identifier)):
            return ASAP
        try:
            history = book.histories[identifier]
        except KeyError:
            history = self._open(book, identifier, now)
        release = algorithm.record(history, moment, now)
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
        book = self._books.get(domain)
        if book is not None and book.enforced:
            for identifier, history in list(book.histories.items()):
                if history[PUBLISHED] > now:
                    yield DelayUntil(domain, identifier, history[PUBLISHED])

    def adopt(self, other: "Master") -> None:
        """Take over what another master knows: its totals, and the histories of each domain that is the same in both.

        For rules that change while requests come in; the other one is not to be used any more.
        """
        self.unknown, self.evicted, self.shadowed = other.unknown, other.evicted, other.shadowed
        for name, book in self._books.items():
            old = other._books.get(name)  # noqa: SLF001 - another one of this class
            if old is not None:
                self.totals[name] = book.totals = old.totals
            if old is not None and old.domain == book.domain:
                self._size += len(old.histories) - len(book.histories)
                book.histories = old.histories

    def forget(self, *, now: float, most: int | None = None) -> int:
        """Drop histories that can no longer hold anybody; give how many.

        With `most`, look at no more than that many a domain, and go on from there the next time: a shell that
        calls this from an event loop never stops it for long.
        """
        return sum(self._forget(book, now, most) for book in self._books.values())

    def _forget(self, book: _Book, now: float, most: int | None) -> int:
        algorithm, histories = book.algorithm, book.histories
        if algorithm is None or not histories:
            return 0
        names = list(islice(book.sweep, most)) if most is not None else list(histories)
        if not names:
            book.sweep = iter(list(histories))
            names = list(islice(book.sweep, most))
        before = len(histories)
        for name in names:
            history = histories.get(name)
            if history is not None and algorithm.spent(history, now):
                del histories[name]
        self._size -= before - len(histories)
        return before - len(histories)

    def _open(self, book: _Book, identifier: bytes, now: float) -> "array[float]":
        if self._size >= self._max_identifiers:
            self._make_room(now)
        history = opened()
        book.histories[identifier] = history
        self._size += 1
        return history

    def _make_room(self, now: float) -> None:
        """Drop what is spent, and else the oldest sixteenth of the fullest domain: one pass instead of many."""
        if self.forget(now=now) > self._max_identifiers // 64:
            return
        histories = max((book.histories for book in self._books.values()), key=len)
        oldest = list(islice(histories, len(histories) // 16 + 1))
        for identifier in oldest:
            del histories[identifier]
        self._size -= len(oldest)
        self.evicted += len(oldest)
