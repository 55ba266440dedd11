"""What each origin says in a well-known resource, and when that has to be fetched (traffic-advice.txt, section 7).

Traffic advice and robots.txt are such resources; here, "advice" is either. The cache sends nothing. Its `ask` returns
the advice, a fetch to make, or a time to wait for a fetch that another caller makes; the caller that fetched reports
the response. So an origin is asked once, however many callers ask at the same time. The cache is not thread-safe: a
shell with several threads locks it.

An `OriginRecord` has four states, each with its answer:

    fresh       the advice is known, until an instant         Advice; near its end also a Fetch, from `refresh`
    in flight   a caller fetches, and has not reported yet    FetchPending, until the fetch counts as abandoned
    abandoned   the last fetch failed on this side            FetchPending, until the fetch may be made again
    stale       none of these                                 Fetch; the record is then in flight
"""

from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from headgate.advice.decision import Advice
from headgate.advice.fetching import (
    ADVICE_TIMEOUT,
    NETWORK_ERROR,
    AdviceRequest,
    AdviceResponse,
    Interpretation,
    advice_request,
    interpret_fully,
)
from headgate.advice.freshness import (
    MAX_FRESHNESS,
    MAX_STALENESS,
    MIN_FRESHNESS,
    UNREACHABLE_FOR,
    StoredAdvice,
    fresh_for,
    retry_release,
)
from headgate.advice.identity import AgentIdentity
from headgate.advice.parser import UNREACHABLE
from headgate.errors import check_seconds, fail_if
from headgate.http.url import serialised_origin
from headgate.release import ASAP, NEVER

REPORT_TIMEOUT: Final = ADVICE_TIMEOUT + 1.0
"""Seconds after which a fetch without a report counts as abandoned. Every fetch ends within `ADVICE_TIMEOUT`, so the
caller that should report has failed, not the origin."""


class Fetch(msgspec.Struct, frozen=True):
    """A request to make, and to report with `AdviceCache.received` or `AdviceCache.abandoned`."""

    origin: str
    request: AdviceRequest
    give_up: float
    """The instant from which the fetch counts as abandoned."""


class FetchPending(msgspec.Struct, frozen=True):
    """Another caller fetches the advice, or a fetch failed a moment ago. Ask again after its report, or at `until`."""

    until: float


Answer: TypeAlias = Advice | Fetch | FetchPending

MAX_ORIGINS: Final = 10_000
"""Default maximum of origins in a cache."""

_REFRESH: Final = 0.1
"""The last part of the freshness, in which advice is fetched again in the background."""

_ORIGINS_EXAMINED: Final = 2
"""Origins examined per report: more than one, so that expired ones do not accumulate."""

_MAX_ORIGIN_SIZE: Final = 300
"""Characters of an origin: a name in DNS has at most 253, with scheme and port no origin has more than 300."""


class WellKnownResource(Protocol):
    """How one kind of well-known resource is requested and interpreted, such as traffic advice and robots.txt."""

    kind: str
    """As in `Advice`."""
    min_freshness: float

    def key(self, url: str) -> str | None:
        """Return what identifies the resource of a URL, such as its origin; None for one that must not be asked."""

    def request(self, origin: str) -> AdviceRequest | None:
        """Return the request for the resource of an origin; None for one that must not be asked."""

    def interpret(self, response: AdviceResponse) -> Interpretation:
        """Return the result, `UNREACHABLE` if the origin is, and its reason."""

    def fresh_for(self, response: AdviceResponse, result: Any, *, now: float) -> float:
        """Return the seconds for which a result stays fresh."""


class OriginRecord:
    """The resource of one origin, such as its advice; `request` is its unconditional request."""

    __slots__ = (
        "_advice", "_fetched", "_origin", "_pending", "_request", "_resource", "_retry_at", "_stored",
    )  # fmt: skip

    def __init__(self, origin: str, request: AdviceRequest, resource: WellKnownResource) -> None:
        self._origin = origin
        self._request = request
        self._resource = resource
        self._advice: Advice | None = None
        self._stored: StoredAdvice | None = None
        self._pending: Fetch | None = None
        self._retry_at = self._fetched = ASAP

    def fresh(self, now: float) -> Advice | None:
        """Return the advice if it is fresh."""
        advice = self._advice
        # The second comparison: after the clock was set back, nothing is fresh for longer than the maximum.
        return advice if advice is not None and 0 < advice.fresh_until - now <= MAX_FRESHNESS else None

    def last(self, now: float) -> Advice | None:
        """Return the last known advice, if it is not older than stored advice may be."""
        advice = self._advice
        return advice if advice is not None and now < advice.fresh_until + MAX_STALENESS else None

    def ask(self, now: float) -> Answer:
        """Return the advice, or what to do to get it."""
        if (advice := self.fresh(now)) is not None:
            return advice
        if self._is_in_flight(now):
            assert self._pending is not None
            return FetchPending(self._pending.give_up)
        if 0 < self._retry_at - now <= REPORT_TIMEOUT:
            return FetchPending(self._retry_at)
        self._drop_expired(now)
        self._pending = Fetch(self._origin, self._next_request(), now + REPORT_TIMEOUT)
        return self._pending

    def refresh(self, now: float) -> Fetch | None:
        """Return a fetch to make in the background: in the last tenth of the freshness, if none is in flight."""
        advice = self._advice
        if advice is None or advice.fresh_until - now > _REFRESH * (advice.fresh_until - self._fetched):
            return None
        if self._is_in_flight(now) or 0 < self._retry_at - now <= REPORT_TIMEOUT or self.fresh(now) is None:
            return None
        self._pending = Fetch(self._origin, self._next_request(), now + REPORT_TIMEOUT)
        return self._pending

    def received(self, fetch: Fetch, response: AdviceResponse, now: float) -> Advice:
        """Record the response to a fetch, however late; return the advice that follows from it.

        An incomplete body is a failure of the network, so that the advice before it stays.
        """
        is_wanted = response.status > 0 and fetch.request.needs_body(response.status, response.fields)
        if response.body is None and is_wanted:
            response = NETWORK_ERROR._replace(failure=response.failure or "the body is incomplete")
        is_late = fetch != self._pending
        self._fetched = now
        if not is_late:
            self._pending = None
        self._drop_expired(now)
        if response.status == 304 and fetch.request.is_conditional:
            return self._renew(fetch, response, now)
        result, reason = self._resource.interpret(response)
        fresh_until = now + self._resource.fresh_for(response, result, now=now)
        if result is not UNREACHABLE:
            self._advice = Advice(self._origin, result, reason, fresh_until, kind=self._resource.kind)
            # A 304 cannot confirm an incomplete body.
            self._stored = StoredAdvice.of(self._advice, response, now=now) if is_wanted else None
            return self._advice
        hold_until = ASAP if retry_release(response.fields, now=now) == ASAP else fresh_until
        previous = None if self._stored is None else self._stored.last_known
        advice = Advice(self._origin, result, reason, fresh_until, hold_until, previous, self._resource.kind)
        if self._is_ignored(response, now, is_late=is_late):
            return self._advice or advice
        self._advice = advice
        return advice

    def abandoned(self, fetch: Fetch, retry_at: float) -> None:
        """Let the next caller fetch from `retry_at` on."""
        if self._pending == fetch:
            self._pending = None
            self._retry_at = retry_at

    def is_of_use(self, now: float) -> bool:
        """Return whether the record can still affect a decision."""
        self._drop_expired(now)
        return self.fresh(now) is not None or self._stored is not None or self._is_in_flight(now)

    def _renew(self, fetch: Fetch, response: AdviceResponse, now: float) -> Advice:
        """Renew the stored advice after a 304 (RFC 9111, section 4.3.3)."""
        if self._stored is None or fetch.request != self._next_request():
            # The advice that it renews was dropped or replaced: the next caller fetches without conditions.
            return Advice(self._origin, None, "the advice that was not modified is no longer stored", now)
        self._stored = self._stored.renewed(response.fields, now=now, min_freshness=self._resource.min_freshness)
        self._advice = self._stored.advice
        return self._advice

    def _is_ignored(self, response: AdviceResponse, now: float, *, is_late: bool) -> bool:
        """Return whether a failure is ignored: a late one, or a network error while another report is fresh."""
        if response.status == NETWORK_ERROR.status:
            return is_late or self.fresh(now) is not None
        return is_late and self._advice is not None

    def _is_in_flight(self, now: float) -> bool:
        return self._pending is not None and 0 < self._pending.give_up - now <= REPORT_TIMEOUT

    def _next_request(self) -> AdviceRequest:
        validators = () if self._stored is None else self._stored.validators
        return msgspec.structs.replace(self._request, fields=self._request.fields + validators)

    def _drop_expired(self, now: float) -> None:
        if self._stored is not None and not 0 < self._stored.kept_until - now <= MAX_FRESHNESS + MAX_STALENESS:
            self._stored = None


class AdviceResource:
    """How traffic advice is requested and interpreted, for one agent."""

    kind = "advice"
    key = staticmethod(serialised_origin)

    def __init__(self, identity: AgentIdentity, *, unreachable_for: float, min_freshness: float) -> None:
        self.min_freshness = min_freshness
        self._identity = identity
        self._unreachable_for = unreachable_for

    def request(self, origin: str) -> AdviceRequest | None:
        """Return the request for the advice of an origin; None for one that must not be asked."""
        return advice_request(origin, self._identity)

    def interpret(self, response: AdviceResponse) -> Interpretation:
        """Return the result and its reason."""
        return interpret_fully(response, self._identity)

    def fresh_for(self, response: AdviceResponse, result: Any, *, now: float) -> float:
        """Return the seconds for which a result stays fresh."""
        return fresh_for(
            response, result, now=now, unreachable_for=self._unreachable_for, min_freshness=self.min_freshness
        )


class WellKnownCache:
    """A well-known resource of at most `most_origins` origins; a new one replaces the least recently used.

    Each report also drops expired records among the two least recently used. Raises `ConfigurationError` for
    `most_origins` below 1.
    """

    def __init__(self, resource: WellKnownResource, *, most_origins: int = MAX_ORIGINS) -> None:
        fail_if(most_origins < 1, f"most_origins must be at least 1, got {most_origins}")
        self.evicted = 0
        """The number of origins dropped to make room."""
        self._most_origins = most_origins
        self._resource = resource
        self._records: OrderedDict[str, OriginRecord] = OrderedDict()

    @property
    def origins(self) -> int:
        """The number of origins in the cache."""
        return len(self._records)

    def ask(self, origin: str, *, now: float) -> Answer:
        """Return the advice of an origin, a fetch to make, or a time to wait for a fetch in progress.

        `origin` may be any URL; only its origin is used. A serialised origin is looked up fastest.
        """
        if (record := self._records.get(origin)) is not None:
            self._records.move_to_end(origin)
            return record.ask(now)
        serialised = self._resource.key(origin)
        record = None if serialised is None else self._record(serialised)
        if record is None:
            return Advice(origin[:_MAX_ORIGIN_SIZE], None, "the origin must not be asked", NEVER)
        return record.ask(now)

    def known(self, origin: str, *, now: float) -> Advice | None:
        """Return the fresh advice of a serialised origin, otherwise None; never starts a fetch."""
        record = self._records.get(origin)
        return None if record is None else record.fresh(now)

    def refresh(self, origin: str, *, now: float) -> Fetch | None:
        """Return a fetch for fresh advice that ends soon, to make in the background and to report; None before that."""
        record = self._records.get(origin)
        return None if record is None else record.refresh(now)

    def last(self, origin: str, *, now: float) -> Advice | None:
        """Return the last known advice of a serialised origin, fresh or not."""
        record = self._records.get(origin)
        return None if record is None else record.last(now)

    def received(self, fetch: Fetch, response: AdviceResponse, *, now: float) -> Advice:
        """Record the response to a fetch, `NETWORK_ERROR` without one; return the advice that follows from it.

        A report after `give_up` counts too, except for a failure.
        """
        self._forget(list(islice(self._records, _ORIGINS_EXAMINED)), now)
        record = self._record(fetch.origin)
        assert record is not None  # a fetch is only made for an origin that may be asked
        return record.received(fetch, response, now)

    def abandoned(self, fetch: Fetch, *, retry_at: float = ASAP) -> None:
        """Record that a fetch failed on this side, for example because a queue was full.

        The next call of `ask` from `retry_at` on, a few seconds from now at most, returns a fetch again.
        """
        if (record := self._records.get(fetch.origin)) is not None:
            record.abandoned(fetch, retry_at)

    def forget(self, *, now: float) -> None:
        """Drop every record that cannot affect a decision any more."""
        self._forget(list(self._records), now)

    def _forget(self, origins: Iterable[str], now: float) -> None:
        for origin in origins:
            if not self._records[origin].is_of_use(now):
                del self._records[origin]

    def _record(self, origin: str) -> OriginRecord | None:
        """Return the record of a serialised origin, a new one if necessary; None if it must not be asked."""
        record = self._records.get(origin)
        if record is None:
            request = self._resource.request(origin)
            if request is None or len(origin) > _MAX_ORIGIN_SIZE:
                return None
            record = OriginRecord(origin, request, self._resource)
            while len(self._records) >= self._most_origins:
                self._records.popitem(last=False)
                self.evicted += 1
            self._records[origin] = record
        self._records.move_to_end(origin)
        return record


class AdviceCache(WellKnownCache):
    """The traffic advice of origins.

    `unreachable_for` is the number of seconds before an unreachable origin without Retry-After is asked again; other
    results stay fresh for at least `min_freshness` seconds. Raises `ConfigurationError` for a `min_freshness` of 0.
    """

    def __init__(
        self,
        identity: Iterable[str],
        *,
        most_origins: int = MAX_ORIGINS,
        unreachable_for: float = UNREACHABLE_FOR,
        min_freshness: float = MIN_FRESHNESS,
    ) -> None:
        check_seconds("min_freshness", min_freshness)
        fail_if(
            not 0 < min_freshness <= MAX_FRESHNESS,
            f"min_freshness must be above 0 and at most {MAX_FRESHNESS:g} seconds, got {min_freshness!r}",
        )
        self.identity = AgentIdentity(identity)
        resource = AdviceResource(self.identity, unreachable_for=unreachable_for, min_freshness=min_freshness)
        super().__init__(resource, most_origins=most_origins)
