"""One origin in the cache: what is known of its advice, and whether it is being asked.

A record is in one of four states, and every question is answered from one of them:

    fresh       its advice is known, until an instant               Advice
    in flight   a caller fetches, and has not reported yet          Wait, until the fetch counts as abandoned
    abandoned   the last fetch failed for a reason of our own       Wait, until it may be made again
    stale       none of these                                       Fetch, and the record is in flight
"""

from typing import Final

from headgate.advice.answer import Advice, Answer, Fetch, Wait
from headgate.advice.fetching import NETWORK_ERROR, TIMEOUT, AdviceRequest, AdviceResponse, interpret_fully
from headgate.advice.freshness import MAX_FRESHNESS, UNREACHABLE_FOR, fresh_for, retry_release
from headgate.advice.identity import AgentIdentity
from headgate.advice.result import UNREACHABLE
from headgate.advice.stored import MAX_STALENESS, Stored
from headgate.release import ASAP

REPORT_TIMEOUT: Final = TIMEOUT + 1.0
"""Seconds that a report on a fetch is waited for. Without one by then, the fetch counts as abandoned: every fetch ends
within `TIMEOUT`, so it is the reporter that is missing, which is not the origin's fault."""


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
        """OriginRecord the response to a fetch, however late, and return what is known by it."""
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
