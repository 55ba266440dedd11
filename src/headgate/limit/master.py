"""The master: it computes release times from accounting messages.

This module knows neither frames, sockets nor clocks. "When the master receives an accounting message, it applies the
throttling logic to determine when the next request for the given identifier is allowed on the given domain […]
otherwise it publishes a control message" (smockron.txt, Protocol). The caller publishes the result.
"""

import math
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter

from headgate.errors import check_count, check_seconds, fail_if
from headgate.limit.clock import SteadyClock
from headgate.limit.domain import MAX_NAME, Domain, check_domains
from headgate.limit.history import ALGORITHMS, MAX_LATENESS, PUBLISHED, Algorithm, Conversion, new_history
from headgate.limit.messages import Accounting, DelayUntil, Totals
from headgate.limit.shares import Allowance, allowance
from headgate.limit.table import SHARDS, Table, Tables
from headgate.release import ASAP, Status

_ACCEPTED, _REJECTED = Status.ACCEPTED, Status.REJECTED

_MAX_CLOCK_LEAD = 1.0
"""Seconds; messages from senders whose clock is further ahead are counted."""

MAX_LAG = 5.0
"""Seconds; older messages are counted: the clock of their sender is behind, or a network or a process has stopped."""

_MAX_AGE = 60.0
"""Seconds; an older message counts as one of this age."""

_MAX_DELAY = 3_600.0
"""Seconds; the default of the longest delay that counts."""

_MAX_UNKNOWN_NAMES = 32
"""Names of unknown domains that are kept."""

_EXPORTED_AT_ONCE = 32_768
"""Size of the histories copied at once: their numbers, and `_HISTORY_OVERHEAD` for each; one or two milliseconds."""

_HISTORY_OVERHEAD = 16

_CONVERTED_AT_ONCE = 128
"""Histories converted to other rules at once; a millisecond."""

_CONVERSION_STEPS = 4
"""How many times as many are converted by `Master.forget`."""

_LATEST = 1e15
"""Seconds or milliseconds; the maximum of a number in a history that is restored."""


_TICKS_PER_WINDOW = 64
"""Resolution of the order in which the histories of a domain expire."""


class DomainState:
    """The histories of one domain by identifier, and its totals."""

    __slots__ = (
        "algorithm",
        "converting",
        "counts",
        "domain",
        "enforced",
        "histories",
        "holds_exempt",
        "inherited",
        "record",
        "selective",
        "totals",
        "window",
    )

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        # These are set if the domain has rules, and does more than count requests.
        self.histories: Table[array[float]] | None = None
        self.algorithm: Algorithm
        self.record: Callable[[array[float], float, float], float]
        self.window = domain.window
        if domain.rules and domain.mode != "off":
            self.algorithm = algorithm = ALGORITHMS[domain.algorithm](domain.rules)
            held_until = itemgetter(PUBLISHED) if domain.mode == "enforce" else None
            self.histories = Table(algorithm.expiry, self.window / _TICKS_PER_WINDOW, held_until)
            self.record = algorithm.record
        self.enforced = domain.mode == "enforce"
        self.selective = bool(domain.exempt)
        # Whether a history of before may be that of an identifier that is exempt now.
        self.holds_exempt = False
        self.totals = Totals()
        self.counts: dict[bytes, int] = {}
        # Histories of the rules before a reload, and of those before that: each is converted when it is needed, or in
        # its turn.
        self.inherited: list[tuple[Table[array[float]], tuple[Conversion, ...]]] = []
        self.converting: Iterator[None] = iter(())

    def allowance(self, identifier: bytes, instant: float) -> Allowance | None:
        """Return what the rules permit to `identifier`; None if they do not limit it."""
        if self.histories is None or not self.enforced or (self.selective and self.domain.exempts(identifier)):
            return None
        history = self.histories.get(identifier) or new_history()
        available = self.algorithm.available(history, instant)
        return allowance(self.domain.rules, available, max(0.0, history[PUBLISHED] - instant))


class Master:
    """Applies the rules of `domains` to accounting messages, in any order.

    At most `max_identifiers` histories are stored over all domains. A new one replaces an expired one or, if none has
    expired, one that holds no request: the one that expires next in the domain that has the most of them (counted in
    `evicted`: "a fail-permissive design"). A history whose hold is in force is dropped only if all are such. A
    message counts at most `max_delay` seconds after and a minute before its arrival, whatever the clock of the sender.
    Raises `ConfigurationError` for two domains with one name, and numbers that are out of range.
    """

    def __init__(
        self, domains: Iterable[Domain], *, max_identifiers: int = 1_000_000, max_delay: float = _MAX_DELAY
    ) -> None:
        check_seconds("max_delay", max_delay)
        check_count("max_identifiers", max_identifiers, 1)
        self.domains: dict[str, Domain] = {}
        """The domains by name."""
        self.unknown = 0
        """Messages dropped because their domain is unknown."""
        self.unknown_names: dict[str, int] = {}
        """How often unknown domains were used since the caller cleared this, at most `_MAX_UNKNOWN_NAMES` names."""
        self.shadowed = 0
        """Release times computed for domains in shadow mode, and not published."""
        self.ahead = 0
        """Messages from senders whose clock is ahead by more than a second."""
        self.late = 0
        """Messages received more than `MAX_LAG` seconds before they arrived, by the clock of their sender."""
        self.shortened = 0
        """Messages with a delay of more than `max_delay`."""
        self.clock = SteadyClock()
        """The clock of the instants in histories; it continues when the wall clock is set back."""
        self.max_delay = max_delay
        """The longest delay that counts, in seconds."""
        self._max_identifiers = max_identifiers
        self._tables: Tables[array[float]] = Tables(max_identifiers)
        self._states: dict[str, DomainState] = {}
        for domain in check_domains(domains):
            fail_if(domain.name in self.domains, f"domain {domain.name!r} appears twice; give one domain all its rules")
            self.domains[domain.name] = domain
            self._states[domain.name] = DomainState(domain)
        for state in self._states.values():
            if state.histories is not None:
                self._tables.include(state.histories)
        self.totals: dict[str, Totals] = {name: state.totals for name, state in self._states.items()}
        """The number of requests by domain and verdict."""

    def __len__(self) -> int:
        """The number of histories."""
        return self._tables.size

    def identifiers(self, domain: str) -> int:
        """Return the number of histories of a known domain."""
        histories = self._states[domain].histories
        return 0 if histories is None else histories.size

    @property
    def evicted(self) -> int:
        """Histories dropped before they expired, to make room."""
        return self._tables.evicted

    def account(self, accounting: Accounting, now: float) -> DelayUntil | None:
        """Record an accounting message that arrives at `now`; return the control to publish, or None."""
        instant, behind = self.clock.read(now), self.clock.behind
        timestamp = self.timestamp(accounting.received, accounting.release, now) + behind
        release = self.record(accounting.domain, accounting.status, accounting.identifier, timestamp, instant)
        return None if release == ASAP else DelayUntil(accounting.domain, accounting.identifier, release - behind)

    def timestamp(self, received: float, release: float, now: float) -> float:
        """Return the timestamp of a request whose message arrives at `now`; all in seconds since 1970.

        That is "the received timestamp for accepted requests, and the delayed timestamp for delayed requests":
        `release`, which for an accepted one is `received`. No request is received after its message, so if
        `received` is later, the clock of the sender is ahead, and the delay counts from `now`. The result is at most
        `_MAX_AGE` seconds before `now`, and at most `max_delay` seconds after it.
        """
        release = max(received, release)
        if received > now:
            self.ahead += received - now > _MAX_CLOCK_LEAD
            release = now + (release - received)
        elif now - received > MAX_LAG:
            self.late += 1
            release = max(release, now - _MAX_AGE)
        if release - now > self.max_delay:
            self.shortened += 1
            release = now + self.max_delay
        return release

    def note_unknown(self, name: str) -> None:
        """Count the use of an unknown domain, as long as there is room for its name."""
        name, names = name[:MAX_NAME], self.unknown_names
        if name in names or len(names) < _MAX_UNKNOWN_NAMES:
            names[name] = names.get(name, 0) + 1

    def record(self, domain: str, status: Status, identifier: bytes, timestamp: float, now: float) -> float:
        """Record an accounting message by its parts; return the release time to publish, `ASAP` for none.

        `timestamp` is the result of the method of that name; it is ignored for rejected requests. `now` is the arrival
        of the message. Both are instants of `clock`.
        """
        try:
            state = self._states[domain]
        except KeyError:
            self.unknown += 1
            self.note_unknown(domain)
            return ASAP
        if status is _ACCEPTED:
            state.totals.accepted += 1
        elif status is _REJECTED:
            state.totals.rejected += 1
            return ASAP
        else:
            state.totals.delayed += 1
        histories = state.histories
        if histories is None or (state.selective and state.domain.exempts(identifier)):
            return ASAP
        if state.counts and identifier in state.counts:
            state.counts[identifier] += 1
        if timestamp < now - MAX_LATENESS:
            return self._record_many(state, identifier, 1, timestamp, now) if timestamp > now - state.window else ASAP
        history = histories.shards[hash(identifier) % SHARDS].get(identifier)
        if history is None and state.inherited:
            history = self._inherit(state, identifier, now)
        if history is None:
            history = new_history()
            release = state.record(history, timestamp, now)
            self._tables.add(histories, identifier, history, now)
        else:
            release = state.record(history, timestamp, now)
        # A hold is published once; only a later one changes anything.
        if release <= now or release <= history[PUBLISHED]:
            return ASAP
        return self._publish(state, history, release)

    def record_many(
        self, domain: str, identifier: bytes, *, accepted: int, rejected: int, start: float, now: float, owed: int = 0
    ) -> float:
        """Record requests that a gatekeeper reports together; return the release time as `record` does.

        They came evenly from `start` to `now`, and count as far as the rule permits. If `owed` is 1, the first
        counts as in `record`, also if others have had requests since. Both times are instants of `clock`.
        """
        state = self._states.get(domain)
        if state is None:
            self.unknown += accepted + rejected
            self.note_unknown(domain)
            return ASAP
        state.totals.accepted += accepted
        state.totals.rejected += rejected
        histories = state.histories
        if histories is None or not accepted or (state.selective and state.domain.exempts(identifier)):
            return ASAP
        return self._record_many(state, identifier, accepted, start, now, owed=owed)

    def _record_many(
        self, state: DomainState, identifier: bytes, count: int, start: float, now: float, *, owed: int = 0
    ) -> float:
        histories = state.histories
        assert histories is not None
        known = histories.get(identifier) or self._inherit(state, identifier, now)
        history = new_history() if known is None else known
        release = state.algorithm.record(history, start, start) if owed else ASAP
        if count > owed:
            release = state.algorithm.record_many(history, count - owed, start, now)
        if known is None:
            self._tables.add(histories, identifier, history, now)
        return self._publish(state, history, release) if release > max(now, history[PUBLISHED]) else ASAP

    def allowance(self, domain: str, identifier: bytes, now: float) -> Allowance | None:
        """Return what the rules permit to `identifier` at the wall-clock time `now`; None if they do not limit it."""
        state, instant = self._states.get(domain), self.clock.read(now)
        if state is None:
            return None
        self._inherit(state, identifier, instant)
        return state.allowance(identifier, instant)

    def history(self, domain: str, identifier: bytes) -> "array[float] | None":
        """Return what is recorded of an identifier in a known domain with rules; None for nothing."""
        histories = self._states[domain].histories
        return None if histories is None else histories.shards[hash(identifier) % SHARDS].get(identifier)

    def count(self, domain: str, identifier: bytes) -> int:
        """Return the requests of `identifier` that `record` has recorded since the last call; count them from now on.

        `stop_counting` ends that.
        """
        state = self._states.get(domain)
        if state is None:
            return 0
        number = state.counts.get(identifier, 0)
        state.counts[identifier] = 0
        return number

    def stop_counting(self, domain: str, identifier: bytes) -> None:
        """Stop to count the requests of `identifier` for `count`."""
        state = self._states.get(domain)
        if state is not None:
            state.counts.pop(identifier, None)

    def _publish(self, state: DomainState, history: "array[float]", release: float) -> float:
        """Store a release time as published; return it, or `ASAP` if the domain is in shadow mode."""
        history[PUBLISHED] = release
        if state.enforced:
            return release
        self.shadowed += 1
        return ASAP

    def learn(self, domain: str, identifier: bytes, release: float, now: float) -> bool:
        """Adopt a hold computed elsewhere, at `now`; return whether it has to be published.

        That is a hold in force that is later than the one published, for a domain that is limited.
        """
        state = self._states.get(domain)
        if state is None or state.histories is None:
            return False
        instant = self.clock.read(now)
        release += self.clock.behind
        history = state.histories.get(identifier) or self._inherit(state, identifier, instant)
        if release <= instant or (history is not None and release <= history[PUBLISHED]):
            return False
        if history is None:
            history = new_history()
            history[PUBLISHED] = release
            self._tables.add(state.histories, identifier, history, instant)
        history[PUBLISHED] = release
        return state.enforced

    def reset(self, domain: str, identifier: bytes) -> None:
        """Forget the history of an identifier, and until when it is held."""
        state = self._states.get(domain)
        if state is not None and state.histories is not None:
            history = state.histories.get(identifier) or self._inherit(state, identifier, self.clock.latest)
            if history is not None:
                history[:] = new_history()

    def held(self, domain: str, identifier: bytes, instant: float) -> float:
        """Return the release that was published for `identifier`, also that of a reload; both are instants of `clock`.

        `ASAP` if there is none.
        """
        state = self._states.get(domain)
        if state is None or state.histories is None or not state.enforced or state.domain.exempts(identifier):
            return ASAP
        history = state.histories.get(identifier) or self._inherit(state, identifier, instant)
        return ASAP if history is None else history[PUBLISHED]

    def holds(self, domain: str, *, now: float) -> Iterator[DelayUntil]:
        """Yield the controls in force for `domain`, which a gatekeeper needs when it (re)connects."""
        for batch, _ in self.hold_batches(domain, now=now, limit=sys.maxsize):
            yield from batch

    def hold_batches(self, domain: str, *, now: float, limit: int) -> Iterator[tuple[list[DelayUntil], bool]]:
        """Yield the controls of `holds` in lists of at most `limit`, each after a limited number of histories.

        Each list comes with whether more may follow. A list may be empty, and the histories may change between two.
        """
        state = self._states.get(domain)
        if state is None or state.histories is None or not state.enforced:
            return
        behind = self.clock.behind
        instant = now + behind
        for _ in state.converting:
            yield [], True
        controls: list[DelayUntil] = []
        for entries, more in state.histories.batches():
            controls += [
                DelayUntil(domain, identifier, history[PUBLISHED] - behind)
                for identifier, history in entries
                if history[PUBLISHED] > instant and not (state.holds_exempt and state.domain.exempts(identifier))
            ]
            while more or len(controls) > limit:
                yield controls[:limit], True
                controls = controls[limit:]
                if not controls:
                    break
        yield controls, False

    def export(self, domain: str) -> Iterator[list[bytes]]:
        """Yield the histories of a known domain in lists of limited size; they may change between two lists.

        A list has identifiers and histories alternately, the latter as doubles in the byte order of this machine. Their
        instants are those of `clock`, so a master that restores them needs its state, too.
        """
        histories = self._states[domain].histories
        # Only bytes: a tuple for each history would make the garbage collector examine all of them several times, which
        # takes 0.3 s for a million.
        exported: list[bytes] = []
        size = 0
        for _ in self._states[domain].converting:
            yield []
        for shard in histories.shards if histories is not None else ():
            for identifier in list(shard):
                history = shard.get(identifier)
                if history is None:
                    continue  # dropped since the last list
                exported += identifier, history.tobytes()
                size += len(history) + _HISTORY_OVERHEAD
                if size >= _EXPORTED_AT_ONCE:
                    yield exported
                    exported, size = [], 0
        yield exported

    def restore(self, domain: str, exported: Sequence[bytes], now: float) -> int:
        """Add the histories of a list that a master with the same rules for `domain` exported; return their number.

        Expired ones, and identifiers that are known already, are left out. Raises `ValueError` for a history that the
        algorithm of the domain cannot have.
        """
        state, instant, added = self._states[domain], self.clock.read(now), 0
        table = state.histories
        state.holds_exempt = state.selective
        if table is None:
            return 0
        for identifier, numbers in zip(exported[::2], exported[1::2], strict=True):
            history = array("d", numbers)
            if len(history) not in state.algorithm.sizes:
                raise ValueError(f"{len(history)} numbers are not a history of the algorithm {state.domain.algorithm}")
            if max(history) > _LATEST or math.isnan(sum(history)):
                raise ValueError(f"a history has a number above {_LATEST:.0e}, or one that is undefined")
            if state.algorithm.expiry(history) > instant and table.get(identifier) is None:
                self._tables.add(table, identifier, history, instant)
                added += 1
        return added

    def adopt(self, other: "Master", *, now: float | None = None) -> None:
        """Take over the totals of another master, and its histories of each domain that both limit.

        For a reload, at `now`, by default the time of its last message. Under other rules, a request that counts goes
        on counting (see `Conversion`). The other master must not be used afterwards. If it has more histories than this
        one allows, they are dropped as new ones are added.
        """
        self.unknown, self.shadowed = other.unknown, other.shadowed
        self.ahead, self.late, self.shortened = other.ahead, other.late, other.shortened
        self.clock = other.clock
        if now is not None:
            self.clock.read(now)  # `latest` is the instant of the change
        self._tables = Tables(self._max_identifiers, evicted=other.evicted)
        for name, state in self._states.items():
            old = other._states.get(name)  # noqa: SLF001 - another one of this class
            if old is not None:
                self.totals[name] = state.totals = old.totals
            if state.histories is None:
                continue
            if old is None or old.histories is None:
                self._tables.include(state.histories)
                continue
            state.holds_exempt = old.holds_exempt or old.domain.exempt != state.domain.exempt
            if _limits(old.domain) == _limits(state.domain):
                state.histories, state.inherited = self._tables.include(old.histories), old.inherited
            else:
                self._tables.include(state.histories)
                convert = Conversion(old.algorithm, old.domain.rules, state.algorithm, state.domain.rules)
                before = [(old.histories, ()), *old.inherited]
                state.inherited = [(table, (*earlier, convert)) for table, earlier in before]
            state.converting = self._convert(state)

    def _convert(self, state: DomainState) -> Iterator[None]:
        """Convert all inherited histories, in steps of `_CONVERTED_AT_ONCE`."""
        for table, _ in state.inherited:
            for entries, _ in table.batches():
                for number, (identifier, _) in enumerate(entries, start=1):
                    self._inherit(state, identifier, self.clock.latest)
                    if number % _CONVERTED_AT_ONCE == 0:
                        yield
        state.inherited = []

    def _inherit(self, state: DomainState, identifier: bytes, now: float) -> "array[float] | None":
        """Return the history of an identifier that is still under the rules before a reload, converted; or None."""
        for table, conversions in state.inherited:
            history = table.shards[hash(identifier) % SHARDS].pop(identifier, None)
            if history is not None:
                for convert in conversions:
                    history = convert(history, now)
                assert state.histories is not None
                self._tables.add(state.histories, identifier, history, now)
                return history
        return None

    def forget(self, *, now: float, most: int | None = None) -> int:
        """Drop expired histories; return their number.

        With `most`, at most that many are examined, in the order of expiry, so that an event loop is not blocked.
        After a reload, some inherited histories are converted, too.
        """
        steps = (step for state in self._states.values() for step in state.converting)
        for _ in islice(steps, _CONVERSION_STEPS):
            pass
        return self._tables.forget(self.clock.read(now), most)


def _limits(domain: Domain) -> tuple[object, ...]:
    """Return what gives a history its meaning."""
    return domain.rules, domain.algorithm, domain.mode
