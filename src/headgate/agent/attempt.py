"""One request, its retries included: what holds it, and whether it is sent again.

Nothing in here sleeps, locks for long or opens a socket. The transports of all libraries use it in the same way::

    attempt = courtesy.attempt(method, url)
    while True:
        while (wait := attempt.wait()) is not None:      # raises RetryLater
            wait.block()                                 # or: await wait.settle()
        try:
            response = ...
        except BaseException as error:
            if attempt.lost(error, "broken"):            # True: it is not sent again
                raise
        else:
            if attempt.received(response.status, response.headers):
                return response

A retry is decided when a response is received. If its hold grows until it may be sent, `wait` raises `RetryLater`, and
the response before, which is kept open until then, is the result: `transport.send_politely` does all this.
"""

import logging
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import unquote

import msgspec

from headgate.advice.decision import Advice
from headgate.agent.advice_client import PendingAdvice, StartFetch
from headgate.agent.retry import TOO_MANY_REQUESTS, retry_pause
from headgate.agent.state import CourtesyState, EventKind, Holder
from headgate.agent.wait import FetchWait, Pause, Wait
from headgate.errors import RetryLater
from headgate.http.date import retry_after
from headgate.http.fields import lines_of
from headgate.http.url import parse_url, resolve, serialised_origin, without_fragment
from headgate.release import ASAP, Status, judge
from headgate.throttle.fields import Headers, text_pairs
from headgate.throttle.target import Target
from headgate.throttle.throttle import REDIRECTS

if TYPE_CHECKING:  # imported when there is a pace
    from headgate.agent.pace import OriginPace, OriginState, PaceWait

_logger = logging.getLogger("headgate.agent")

interactive_redirect: Final[ContextVar[list[str] | None]] = ContextVar("headgate_interactive_redirect", default=None)
"""Where a redirect of the last request of this thread or task leads, if a user waits for it.

In a list, since tasks copy the context: the request that takes it empties the list for all tasks.
"""


_UNKNOWN: Final = 1.0
"""Seconds after which a request should be repeated that was refused since others are in flight: until when, is unknown.
"""
_LONGEST_REFRESH: Final = 1.0
"""Seconds that a request waits for advice whose predecessor is known, if a fetch takes longer."""

Failure: TypeAlias = Literal["ours", "unsent", "broken"]
"""Why no response came: this machine failed or gave up; no connection was made, so nothing was sent; or it broke."""

_SHOWN: Final[dict[int, "OriginState"]] = {TOO_MANY_REQUESTS: "limiting", 500: "unknown", 509: "unknown"}
"""What a failure shows of the origin: 500 and 509 concern the path. Others show that it is down."""

AttemptPhase: TypeAlias = Literal["WAITING", "SENDING", "FINISHED"]
"""What an attempt does now.

WAITING: it asks when it may be sent, at first or again; `wait` is called next. SENDING: it is being sent; `received` or
`lost` comes next. FINISHED: it is over: answered, refused, or lost with its connection.
"""


class Attempt(msgspec.Struct, eq=False):
    """One request; made by `Courtesy.attempt`, which says what its arguments mean.

    A `Struct`, since one is made for each request: in a quarter of the time of another class.
    """

    _state: CourtesyState
    _method: str
    _url: str
    _target: Target | str
    """The target of the throttle, or the URL where it has none."""
    interactive: bool
    """Whether a user waits for it."""
    _repeatable: bool
    _idempotent: bool
    _refusal: type[RetryLater]
    _start_fetch: StartFetch | None
    adds_fields: bool
    """Whether the agent sets fields of its own."""
    phase: AttemptPhase = "WAITING"
    """What it does now."""
    ends_with_body: bool = False
    """Whether the transport calls `ended` at the end of a body; else a request is in flight until its head."""
    asks_for_signature: bool = False
    """Whether the response asks for a signature, and the request had none: it may be sent again once, with one."""
    is_unsigned: bool = False
    """Whether it is sent without a signature by an agent that has a key."""
    place: "OriginPace | None" = None
    """Where it waits for its turn, or is in flight."""
    _sent: float = ASAP
    _began: float = ASAP
    _tries: int = 0
    _retry_in: float = 0.0
    """Seconds of the pause before a retry that are left: an instant would change with a clock that is set."""
    _since: float | None = None
    """When it was held first; None while nothing has held it."""
    _waited: float = 0.0
    _waited_for_advice: float = 0.0

    def wait(self) -> Wait | None:
        """Return what to wait for before asking this again; None when the request is to be sent now.

        Raises `RetryLater`, or the `refusal` in its place, when its release is later than it may wait for, and
        `RuntimeError` when the courtesy is closed.
        """
        if self.phase != "WAITING":
            raise self._misuse()
        state = self._state
        if state.is_closed:
            raise RuntimeError("this Courtesy is closed; make another one")
        if self._retry_in > 0:
            pause = Pause(self._retry_in, state.pass_time)
            self._retry_in -= pause.seconds
            return pause
        with state.lock:
            now = state.clock()  # inside, so that the throttle's instants come in the order of the clock's
            release = state.throttle.release_time(self._target, now=now, interactive=self.interactive)
            is_free = release <= now and not state.sources
            turn = self._enter(now) if is_free and state.pace is not None else None
        if not is_free:
            wait = self._hold(release, now)
            if wait is not None:
                return wait
            if state.pace is not None:
                with state.lock:
                    turn = self._enter(now)
        if turn is not None:
            return self._turn(turn, now)
        self.phase = "SENDING"
        self._tries += 1
        self._sent = now
        if self._tries == 1:
            self._began = now
        if state.tells_all:
            state.tell("sent", self._url, method=self._method, now=now, number=self._tries - 1)
        return None

    @property
    def _origin(self) -> str:
        target = self._target
        return target.origin if isinstance(target, Target) else serialised_origin(target) or ""

    def own_fields(self, user_agent: str | None) -> dict[str, str]:
        """Return these fields for a request that is sent now, and has this User-Agent so far."""
        fields = self._state.own_fields(self._method, self._url, user_agent)
        self.is_unsigned = self._state.signer is not None and "Signature" not in fields
        return fields

    def received(self, status: int, headers: Headers) -> bool:
        """Count the response; return True where it is the caller's, and False where the request is to be sent again."""
        if self.phase != "SENDING":
            raise self._misuse()
        self.phase = "FINISHED"
        state = self._state
        with state.lock:
            now = state.clock()
            fields = state.throttle.response_received(
                self._target, status, headers, now=now, sent=self._sent, method=self._method
            )
            if self.place is not None:
                policy = state.throttle.policy
                shown: OriginState = "up"
                if status in policy.failure_statuses:
                    shown = _SHOWN.get(status, "down")
                self.place.answered(shown, sent=self._sent, now=now)
                if fields is not None and policy.scope == "origin":
                    self.place.learn(fields, now=now)
            state.answered += 1
        if state.tells_all:
            state.tell("answered", self._url, method=self._method, now=now, status=status, headers=headers)
        if self.interactive and status in REDIRECTS:
            target = redirect_target(self._url, headers)
            interactive_redirect.set(None if target is None else [_plain(target)])
        asked = max((retry_after(value, now=now) for value in fields.retry_after), default=ASAP) if fields else ASAP
        must_sign = self.is_unsigned and state.is_asked_to_sign(self._url, status, headers)
        self.asks_for_signature = must_sign and self._is_idempotent
        repeats = status in state.retry.statuses and self._is_idempotent and self._repeats(status, asked, now)
        if self.asks_for_signature and self._repeatable and not repeats and asked - now <= state.max_delay:
            self._repeat(status, max(asked - now, 0.0))
            repeats = True
        if repeats or not self.ends_with_body:
            self.ended()
        return not repeats

    def lost(self, error: BaseException | None = None, failure: Failure = "ours") -> bool:
        """End without a response; return True where `error` is the caller's, False where it is to be sent again.

        It may also be called while the request waits, for one that is cancelled.
        """
        phase, self.phase = self.phase, "FINISHED"
        if phase != "SENDING":
            if phase == "WAITING":
                self.ended()
            return True
        state = self._state
        with state.lock:
            now = state.clock()
            is_down = failure == "unsent"  # a connection that breaks may have been idle for too long
            if is_down:
                state.throttle.request_lost(self._target, now=now, sent=self._sent)
            if self.place is not None:
                self.place.answered("down" if is_down else "unknown", sent=self._sent, now=now)
        self.ended()
        self._report("lost", now=now)
        may_repeat = failure != "ours" or isinstance(error, state.retry.exceptions)
        return not (may_repeat and (self._is_idempotent or failure == "unsent") and self._repeats(0, ASAP, now))

    def _repeats(self, status: int, asked: float, now: float) -> bool:
        """Decide whether the request is sent again, and charge it to the retry budget.

        It waits for the longest of its pause, its Retry-After and the throttle's hold. The first two count even if the
        throttle allows the retry earlier.
        """
        state = self._state
        if not self._repeatable or self._tries > state.retry.attempts:
            return False
        with state.lock:
            release = state.throttle.release_time(self._target, now=now, interactive=self.interactive)
            retries = 0 if asked > now else self._tries - 1  # a server that says when needs no longer pauses
            pause = retry_pause(status, retries=retries, draw=state.throttle.draw())
            self._retry_in = max(pause, release - now, asked - now)
            longest = min(state.max_delay, self._began + state.retry.total_time - now)
            if self._retry_in > longest or not state.throttle.spend_retry(self._url, now=now, sent=self._sent):
                return False
        self._repeat(status, self._retry_in)
        return True

    def _repeat(self, status: int, pause: float) -> None:
        self.phase, self._retry_in = "WAITING", pause
        self._since, self._waited, self._waited_for_advice = None, 0.0, 0.0
        self._report("retried", status=status, number=self._tries, delay=pause)

    @property
    def _is_idempotent(self) -> bool:
        return self._idempotent or self._method in self._state.retry.methods

    def _misuse(self) -> RuntimeError:
        return RuntimeError(f"this request is {self.phase}; call wait, send, then received or lost, in turn")

    def _hold(self, release: float, now: float) -> Wait | None:
        """Return what the throttle and the advice make the request wait for; raise the refusal if that is too long."""
        state, holders = self._state, []
        if release > now:
            throttled = state.explain(self._url, now=now)
            holders.append(Holder(release, throttled.reason, throttled.target or self._url))
        pending = []
        for answer in state.ask(self._origin, is_held=release > now, now=now, start=self._start_fetch):
            if isinstance(answer, Advice):
                holders.append(state.holder(answer, self._method, self._url))
            elif answer.last is not None and self._waited_for_advice >= _LONGEST_REFRESH:
                holders.append(self._stale_holder(answer.last, answer.until))
            else:
                pending.append(answer)
        if pending and not self._is_too_late(release, now):
            return self._fetch_wait(pending[0], now)
        holder = max(holders, default=None)
        return None if holder is None or holder.release_time <= now else self._pause(holder, now)

    def _stale_holder(self, advice: Advice, until: float) -> Holder:
        """Return what advice that takes too long to be renewed means; it ends no hold."""
        release, reason, target = self._state.holder(advice, self._method, self._url)
        return Holder(release if release == ASAP else max(release, until), reason, target)

    def _fetch_wait(self, pending: PendingAdvice, now: float) -> FetchWait:
        """Return the wait for advice that is not known yet; raise the refusal when it has taken too long."""
        longest = self._state.max_advice_delay
        if self._since is None:
            self._since = now
        left = min(longest - (now - self._since), longest)
        # A fetch under way may end at any time. If the next one may start only after `left`, there is nothing to wait
        # for. The sum limits the wait if the clock is set back meanwhile.
        hopeless = not pending.is_under_way and pending.until - now > left
        if left <= 0 or hopeless or self._waited_for_advice > 2 * longest:
            raise self._refuse(Holder(pending.until, "advice_pending", self._origin), now)
        if pending.last is not None:
            left = min(left, _LONGEST_REFRESH - self._waited_for_advice)
        wait = FetchWait(pending.finished, min(left, pending.until - now))
        self._waited_for_advice += wait.seconds
        # Not reported as a hold: the wait usually ends after milliseconds, and nothing has held the request yet.
        _logger.debug("%s waits up to %.1f s for the traffic advice of %s", self._url, wait.seconds, self._origin)
        return wait

    def _pause(self, holder: Holder, now: float) -> Pause:
        """Return the wait until a release time; raise the refusal where that is too late."""
        if self._is_too_late(holder.release_time, now):
            raise self._refuse(holder, now)
        if self._since is None:
            self._since = now
        self.ended()  # a request that is held lets others go first
        pause = Pause(min(holder.release_time - now, self._state.max_delay), self._state.pass_time)
        self._waited, self._waited_for_advice = self._waited + pause.seconds, 0.0
        self._report_hold("waits", holder, now, pause.seconds)
        return pause

    def _enter(self, now: float) -> "PaceWait | None":
        if self.place is None:
            assert self._state.pace is not None
            self.place = self._state.pace.of(self._origin)
        return self.place.enter(self, now=now)

    def _turn(self, turn: "PaceWait", now: float) -> Wait:
        """Return the wait for this request's turn at its origin; raise the refusal if that takes too long."""
        state = self._state
        is_first, self._since = self._since is None, now if self._since is None else min(self._since, now)
        holder = Holder(max(turn.release, now if turn.is_next else now + _UNKNOWN), "pace", self._origin)
        left = state.max_pace_delay - (now - self._since)
        if turn.release - now > left or left <= 0:
            raise self._refuse(holder, now)
        if is_first:
            self._report_hold("waits", holder, now, turn.release - now)
        if turn.is_next:
            return Pause(turn.release - now, state.pass_time)
        return FetchWait(turn.ready, left)

    def ended(self) -> None:
        """Give up the place among the requests of the origin; may be called again."""
        if self.place is not None:
            with self._state.lock:
                place, self.place = self.place, None
                if place is not None:  # no other thread was first
                    place.leave(self)

    def _is_too_late(self, release: float, now: float) -> bool:
        """Return whether a request that waits for this release would wait for longer than it may."""
        longest = self._state.max_delay
        since = now if self._since is None else self._since
        # The sum is for a clock that is set back while a request waits.
        return judge(release, now=since, max_delay=longest) is Status.REJECTED or self._waited > 2 * longest

    def _refuse(self, holder: Holder, now: float) -> RetryLater:
        """Return what is raised for a request that is not sent."""
        self.phase = "FINISHED"
        self.ended()
        self._report_hold("held", holder, now, 0.0)
        return self._refusal(*holder, now, self._url)

    def _report_hold(self, kind: EventKind, holder: Holder, now: float, delay: float) -> None:
        release, reason, target = holder
        self._report(kind, reason=reason, target=target, release_time=release, now=now, delay=delay)

    def _report(self, kind: EventKind, **details: Any) -> None:
        self._state.report(kind, self._url, method=self._method, **details)


def redirect_target(url: str, headers: Headers) -> str | None:
    """Return the URL that a redirect of `url` leads to; None where its Location is missing or malformed."""
    base, locations = parse_url(url), lines_of(text_pairs(headers), "location")
    return resolve(_in_unicode(locations[0]), base) if base is not None and locations else None


def follows_interactive(url: str) -> bool:
    """Return whether the last request of this thread or task was interactive, and was redirected to this URL."""
    left = interactive_redirect.get()
    if left is None:
        return False
    interactive_redirect.set(None)
    with suppress(IndexError):  # another thread with the same list has taken it
        return left.pop() == _plain(parse_url(url))
    return False


def _plain(url: str | None) -> str:
    """Return a URL without percent-encoding: each library quotes the location of a redirect in its own way."""
    return unquote(without_fragment(url or ""))


def _in_unicode(location: str) -> str:
    """Decode a field from UTF-8 that was read as Latin-1; return any other field unchanged."""
    try:
        return location.encode("latin-1").decode()
    except UnicodeError:
        return location
