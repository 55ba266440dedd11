"""What each origin advises, and when its advice has to be fetched (traffic-advice.txt, section 7).

The cache sends nothing. `AdviceCache.ask` returns the advice, a fetch to make, or a time to wait for a fetch that
another caller makes; the caller that fetched reports the response. So an origin is asked once, however many callers ask
at the same time. The cache is not thread-safe: a shell with several threads locks it.

An `OriginRecord` has four states:

    fresh       the advice is known, until an instant              returns the Advice
    in flight   a caller fetches, and has not reported yet         returns a Wait, until the fetch counts as abandoned
    abandoned   the last fetch failed on this side                 returns a Wait, until the fetch may be made again
    stale       none of these                                      returns a Fetch; the record is then in flight
"""

from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice
from typing import Final, TypeAlias

import msgspec

from headgate.advice.decision import Advice
from headgate.advice.fetching import (
    NETWORK_ERROR,
    TIMEOUT,
    AdviceRequest,
    AdviceResponse,
    advice_request,
    interpret_fully,
)
from headgate.advice.freshness import MAX_FRESHNESS, MAX_STALENESS, UNREACHABLE_FOR, Stored, fresh_for, retry_release
from headgate.advice.identity import AgentIdentity
from headgate.advice.parser import UNREACHABLE
from headgate.errors import ConfigurationError
from headgate.http.url import serialised_origin
from headgate.release import ASAP, NEVER

REPORT_TIMEOUT: Final = TIMEOUT + 1.0
"""Seconds that a report on a fetch is waited for. Without one by then, the fetch counts as abandoned: every fetch ends
within `TIMEOUT`, so it is the reporter that is missing, which is not the origin's fault."""


class Fetch(msgspec.Struct, frozen=True):
    """An order to make one request and to report what came of it, with `AdviceCache.received` or `.abandoned`."""

    origin: str
    request: AdviceRequest
    give_up: float
    """The instant from which the fetch counts as abandoned."""


class Wait(msgspec.Struct, frozen=True):
    """The advice is being fetched, or may not be fetched yet. Ask again after the report, at the latest at `until`."""

    until: float


Answer: TypeAlias = Advice | Fetch | Wait


class OriginRecord:
    """What is known of one origin, for the agent of one identity.

    `request` is the one that asks the origin without conditions.
    """

    __slots__ = ("_advice", "_identity", "_origin", "_pending", "_request", "_retry_at", "_stored", "_unreachable_for")

    def __init__(
        self, origin: str, request: AdviceRequest, identity: AgentIdentity, *, unreachable_for: float = UNREACHABLE_FOR
    ) -> None:
        self._origin = origin
        self._request = request
        self._identity = identity
        self._unreachable_for = unreachable_for
        self._advice: Advice | None = None
        self._stored: Stored | None = None
        self._pending: Fetch | None = None
        self._retry_at = ASAP

    def fresh(self, now: float) -> Advice | None:
        """Return the advice where it is fresh."""
        advice = self._advice
        # A clock that was set back makes nothing fresh for longer than anything is.
        return advice if advice is not None and 0 < advice.fresh_until - now <= MAX_FRESHNESS else None

    def ask(self, now: float) -> Answer:
        """Answer the question for the advice."""
        if (advice := self.fresh(now)) is not None:
            return advice
        if self._is_waited_for(now):
            assert self._pending is not None
            return Wait(self._pending.give_up)
        if 0 < self._retry_at - now <= REPORT_TIMEOUT:
            return Wait(self._retry_at)
        self._drop_what_is_too_old(now)
        self._pending = Fetch(self._origin, self._next_request(), now + REPORT_TIMEOUT)
        return self._pending

    def received(self, fetch: Fetch, response: AdviceResponse, now: float) -> Advice:
        """Record the response to a fetch, however late, and return what is known by it."""
        is_late = fetch != self._pending
        if not is_late:
            self._pending = None
        self._drop_what_is_too_old(now)
        if response.status == 304 and fetch.request.is_conditional:
            return self._renew(fetch, response, now)
        result, reason = interpret_fully(response, self._identity)
        fresh_until = now + fresh_for(response, result, now=now, unreachable_for=self._unreachable_for)
        if result is not UNREACHABLE:
            self._advice = Advice(self._origin, result, reason, fresh_until)
            self._stored = Stored.of(self._advice, response, now=now)
            return self._advice
        hold_until = ASAP if retry_release(response.fields, now=now) == ASAP else fresh_until
        last = None if self._stored is None else self._stored.last_known
        advice = Advice(self._origin, result, reason, fresh_until, hold_until, last)
        if self._is_no_news(response, now, is_late=is_late):
            return self._advice or advice
        self._advice = advice
        return advice

    def abandoned(self, fetch: Fetch, retry_at: float) -> None:
        """Let the next to ask fetch, from an instant on."""
        if self._pending == fetch:
            self._pending = None
            self._retry_at = retry_at

    def is_of_use(self, now: float) -> bool:
        """Return whether anything in it can still affect a decision."""
        self._drop_what_is_too_old(now)
        return self.fresh(now) is not None or self._stored is not None or self._is_waited_for(now)

    def _renew(self, fetch: Fetch, response: AdviceResponse, now: float) -> Advice:
        """Take a 304 (RFC 9111, section 4.3.3)."""
        if self._stored is None or fetch.request != self._next_request():
            # What it would renew was dropped meanwhile: the next to ask fetches it whole.
            return Advice(self._origin, None, "what was not modified is no longer known", now)
        self._stored = self._stored.renewed(response.fields, now=now)
        self._advice = self._stored.advice
        return self._advice

    def _is_no_news(self, response: AdviceResponse, now: float, *, is_late: bool) -> bool:
        """Return whether a failure says nothing: a late one, or that nothing came while another report is fresh."""
        nothing_came = response.status == NETWORK_ERROR.status
        return (is_late and (nothing_came or self._advice is not None)) or (
            nothing_came and self.fresh(now) is not None
        )

    def _is_waited_for(self, now: float) -> bool:
        return self._pending is not None and 0 < self._pending.give_up - now <= REPORT_TIMEOUT

    def _next_request(self) -> AdviceRequest:
        validators = () if self._stored is None else self._stored.validators
        return AdviceRequest(self._request.url, self._request.fields + validators)

    def _drop_what_is_too_old(self, now: float) -> None:
        if self._stored is not None and not 0 < self._stored.kept_until - now <= MAX_FRESHNESS + MAX_STALENESS:
            self._stored = None


MAX_ORIGINS: Final = 10_000
"""Origins that are known at most, unless more are allowed."""

_LOOKS: Final = 2
"""Origins looked at for each fetch that was made: more are dropped than come."""

_LONGEST_ORIGIN: Final = 300
"""Characters: a name of DNS has 253, and with scheme and port no origin has more than this."""


class AdviceCache:
    """The advice of at most `most_origins` origins; of more, those that were asked about least recently are dropped.

    Each report of a fetch also looks at the two that were asked about least recently, and drops those of no more use.

    `unreachable_for` is how many seconds an origin that was not reached is left alone, unless it says how many.
    Raises `ConfigurationError` for a bound that leaves no room.
    """

    def __init__(
        self,
        identity: Iterable[str],
        *,
        most_origins: int = MAX_ORIGINS,
        unreachable_for: float = UNREACHABLE_FOR,
    ) -> None:
        if most_origins < 1:
            raise ConfigurationError(f"most_origins must be at least 1, got {most_origins}")
        self.identity = AgentIdentity(identity)
        self.evicted = 0
        """Origins that were dropped to make room."""
        self._most_origins = most_origins
        self._unreachable_for = unreachable_for
        self._records: OrderedDict[str, OriginRecord] = OrderedDict()

    @property
    def origins(self) -> int:
        """How many origins are known, or are being asked."""
        return len(self._records)

    def ask(self, origin: str, *, now: float) -> Answer:
        """Return what is known of an origin's advice, or say what to do to know it.

        `origin` is any URL, of which its origin alone counts; a serialised origin is the fastest.
        """
        if (record := self._records.get(origin)) is not None:
            self._records.move_to_end(origin)
            return record.ask(now)
        serialised = serialised_origin(origin)
        record = None if serialised is None else self._record(serialised)
        if record is None:
            return Advice(origin[:_LONGEST_ORIGIN], None, "the origin may not be asked", NEVER)
        return record.ask(now)

    def known(self, origin: str, *, now: float) -> Advice | None:
        """Return the fresh advice of a serialised origin, and None where there is none; no fetch is ordered."""
        record = self._records.get(origin)
        return None if record is None else record.fresh(now)

    def received(self, fetch: Fetch, response: AdviceResponse, *, now: float) -> Advice:
        """Record the response to a fetch, `NETWORK_ERROR` where none came, and return what is known by it.

        A late report counts as one in time does, unless it is that no response came.
        """
        self._forget_oldest(now)
        record = self._record(fetch.origin)
        assert record is not None  # it could be asked
        return record.received(fetch, response, now)

    def abandoned(self, fetch: Fetch, *, retry_at: float = ASAP) -> None:
        """Record that a fetch was not completed for a reason that is not the origin's, such as a full queue.

        The next question orders it again; one before `retry_at`, a few seconds from now at most, is answered with a
        wait.
        """
        if (record := self._records.get(fetch.origin)) is not None:
            record.abandoned(fetch, retry_at)

    def forget(self, *, now: float) -> None:
        """Drop every origin of which nothing known can bear on a decision any more."""
        for origin in [origin for origin, record in self._records.items() if not record.is_of_use(now)]:
            del self._records[origin]

    def _forget_oldest(self, now: float) -> None:
        """Look at the origins that were asked about least recently, and drop those of no more use."""
        for origin in list(islice(self._records, _LOOKS)):
            if not self._records[origin].is_of_use(now):
                del self._records[origin]

    def _record(self, origin: str) -> OriginRecord | None:
        """Return the record of a serialised origin, a new one if need be; None where it may not be asked."""
        record = self._records.get(origin)
        if record is None:
            request = advice_request(origin, self.identity)
            if request is None or len(origin) > _LONGEST_ORIGIN:
                return None
            record = OriginRecord(origin, request, self.identity, unreachable_for=self._unreachable_for)
            while len(self._records) >= self._most_origins:
                self._records.popitem(last=False)
                self.evicted += 1
            self._records[origin] = record
        self._records.move_to_end(origin)
        return record
