"""One request, its retries included: what holds it, whether it is sent again, and the one draw that it gets.

Nothing in here sleeps, locks for long or opens a socket. The transports of all libraries use it in the same way::

    attempt = courtesy.attempt(method, url)
    while True:
        while (wait := attempt.wait()) is not None:      # raises NoContact
            wait.block()                                 # or: await wait.settle()
        try:
            response = ...
        except BaseException:
            attempt.lost()                               # no response came
            raise
        if attempt.received(response.status, response.headers):
            return response
        ...                                              # close the response: the request is sent again
"""

import enum
from contextlib import suppress
from contextvars import ContextVar
from typing import Final, TypeAlias
from urllib.parse import unquote

import msgspec

from headgate.advice.decision import Advice
from headgate.agent.advice_client import PendingAdvice, StartFetch
from headgate.agent.state import CourtesyState, Hold, Holder, Retry
from headgate.agent.wait import TOO_MANY_REQUESTS, FetchWait, Pause, Wait, retry_pause
from headgate.errors import NoContact
from headgate.http.date import retry_after
from headgate.http.url import parse_url, resolve, serialised_origin, without_fragment
from headgate.release import ASAP, Status, judge
from headgate.throttle.fields import Headers, pairs_of
from headgate.throttle.target import Target

_REPEATABLE: Final = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})

_CarriedOver: TypeAlias = tuple[str, float | None, bool]

carried_over: Final[ContextVar[list[_CarriedOver] | None]] = ContextVar("headgate_carried_over", default=None)
"""The draw and the interactive flag for the next request of this thread or task, if that is for the URL beside them.

In a list, since tasks copy the context: the request that takes them empties the list for all tasks, so that a draw is
used once.
"""


class AttemptPhase(enum.IntEnum):
    """What an attempt does now."""

    WAITING = enum.auto()
    """It asks when it may be sent; `wait` is called next."""
    SENDING = enum.auto()
    """It is being sent; `received` or `lost` comes next."""
    PAUSING = enum.auto()
    """It waits until it may be sent again; `wait` is called next."""
    FINISHED = enum.auto()
    """It is over: answered, refused, or lost with its connection."""


class AttemptEvent(enum.IntEnum):
    """What happens to an attempt."""

    HELD = enum.auto()
    """`wait` returns what to wait for."""
    RELEASED = enum.auto()
    """`wait` returns None: the request is to be sent."""
    REFUSED = enum.auto()
    """`wait` raises `NoContact`."""
    LOST = enum.auto()
    """There is no response."""
    ANSWERED = enum.auto()
    """`received` returns True: the response is the caller's."""
    REPEATED = enum.auto()
    """`received` returns False: the request is to be sent again."""
    PAUSE_ENDS = enum.auto()
    """`wait` returns the last part of the pause."""


TRANSITIONS: Final[dict[tuple[AttemptPhase, AttemptEvent], AttemptPhase]] = {
    (AttemptPhase.WAITING, AttemptEvent.HELD): AttemptPhase.WAITING,
    (AttemptPhase.WAITING, AttemptEvent.RELEASED): AttemptPhase.SENDING,
    (AttemptPhase.WAITING, AttemptEvent.REFUSED): AttemptPhase.FINISHED,
    (AttemptPhase.SENDING, AttemptEvent.LOST): AttemptPhase.FINISHED,
    (AttemptPhase.SENDING, AttemptEvent.ANSWERED): AttemptPhase.FINISHED,
    (AttemptPhase.SENDING, AttemptEvent.REPEATED): AttemptPhase.PAUSING,
    (AttemptPhase.PAUSING, AttemptEvent.HELD): AttemptPhase.PAUSING,
    (AttemptPhase.PAUSING, AttemptEvent.PAUSE_ENDS): AttemptPhase.WAITING,
}
"""The phase of an attempt after each event; an event in a phase that is not here is a mistake of the transport."""


class _PhaseAfter(dict[AttemptPhase, AttemptPhase]):
    """The phase after one event, by the phase before it."""

    def __init__(self, event: AttemptEvent) -> None:
        super().__init__({before: after for (before, what), after in TRANSITIONS.items() if what is event})
        self.event = event

    def __missing__(self, phase: AttemptPhase) -> AttemptPhase:
        raise RuntimeError(
            f"a request that is {phase.name} cannot be {self.event.name}; call wait, send, then received"
        )


_HELD, _RELEASED, _REFUSED, _LOST, _ANSWERED, _REPEATED, _PAUSE_ENDS = map(_PhaseAfter, AttemptEvent)


class Attempt(msgspec.Struct, eq=False):
    """One request; made by `Courtesy.attempt`, which says what its arguments mean."""

    _state: CourtesyState
    _method: str
    _url: str
    interactive: bool
    """Whether a user waits for it."""
    _repeatable: bool
    _refusal: type[NoContact]
    _start_fetch: StartFetch | None
    _target: Target | str
    """The target of the throttle, or the URL where it has none."""
    phase: AttemptPhase = AttemptPhase.WAITING
    """What it does now."""
    _origin: str | None = None
    _draw: float | None = None
    _retry_in: float = 0.0
    """Seconds of the pause that are left: an instant would change with a clock that is set."""
    _since: float | None = None
    """When it was held first; None while nothing has held it."""
    _sent: float = ASAP
    _waited: float = 0.0
    _waited_for_advice: float = 0.0
    _tries: int = 0

    def take_over(self) -> None:
        """Take the draw and the interactive flag that the last request left, if they are for this URL."""
        left = carried_over.get()
        carried_over.set(None)
        if left and left[0][0] == _plain(parse_url(self._url)):
            with suppress(IndexError):  # another thread with the same list has taken them
                _, self._draw, interactive = left.pop()
                self.interactive |= interactive

    def wait(self) -> Wait | None:
        """Return what to wait for before asking this again; None when the request is to be sent now.

        Raises `NoContact`, or the `refusal` in its place, when its release is later than it may wait for, and
        `RuntimeError` when the courtesy is closed.
        """
        state = self._state
        if state.is_closed:
            raise RuntimeError("this Courtesy is closed; make another one")
        if self._retry_in > 0:
            return self._next_pause()
        state.lock.acquire()  # `with` takes twice as long, which is seen here and where a response is received
        try:
            now = state.clock()  # inside, so that the throttle's instants come in the order of the clock's
            release = state.throttle.release_time(self._target, now=now, interactive=self.interactive)
        finally:
            state.lock.release()
        if release > now or state.advice is not None:
            wait = self._hold(release, now)
            if wait is not None:
                self.phase = _HELD[self.phase]
                return wait
        if self._tries and not state.spend_retry(self._url):
            raise self._refuse(Holder(now, "retry_budget", self._target_name()), now)
        self.phase = _RELEASED[self.phase]
        self._tries += 1
        self._sent = now
        return None

    def received(self, status: int, headers: Headers) -> bool:
        """Count the response; return True where it is the caller's, and False where the request is to be sent again."""
        state = self._state
        state.lock.acquire()
        try:
            now = state.clock()
            state.throttle.response_received(self._target, status, headers, now=now, sent=self._sent)
        finally:
            state.lock.release()
        if status in REDIRECTS:
            self._redirected(headers)
        if self._tries <= state.retry and self._is_repeatable(status):
            self._retry_in = self._pause_before_retry(status, headers, now)
            if self._retry_in <= state.max_delay:
                self.phase = _REPEATED[self.phase]
                self._since, self._waited, self._waited_for_advice = None, 0.0, 0.0
                state.report_retry(Retry(self._url, status, self._tries, self._retry_in))
                return False
        self.phase = _ANSWERED[self.phase]
        return True

    def lost(self) -> None:
        """End without a response; the draw is kept for the next request, if it is the same one sent again."""
        self.phase = _LOST[self.phase]
        carried_over.set([(_plain(parse_url(self._url)), self._draw, self.interactive)])

    def _next_pause(self) -> Pause:
        """Return the rest of the pause before a retry, or as much of it as one wait may be long."""
        pause = Pause(self._retry_in)
        self._retry_in -= pause.seconds
        self.phase = (_HELD if self._retry_in > 0 else _PAUSE_ENDS)[self.phase]
        return pause

    def _is_repeatable(self, status: int) -> bool:
        """Return whether a request with a response like this may be sent again at all."""
        failed = status == TOO_MANY_REQUESTS or status in self._state.throttle.policy.failure_statuses
        return failed and self._repeatable and self._method.upper() in _REPEATABLE

    def _pause_before_retry(self, status: int, headers: Headers, now: float) -> float:
        """Return the seconds that a retry waits: the longest of its pause, its Retry-After and the throttle's hold.

        The first two count even if the throttle allows the retry earlier.
        """
        release = self._state.retry_release_time(self._url, now=now, interactive=self.interactive)
        pause = retry_pause(status, retries=self._tries - 1, draw=self._state.throttle.draw())
        asked = (retry_after(value, now=now) for value in _lines(headers, "retry-after"))
        return max([pause, release - now, *(instant - now for instant in asked)])

    def _hold(self, release: float, now: float) -> Wait | None:
        """Return what the throttle and the advice make the request wait for; raise the refusal if that is too long."""
        holders = []
        throttled = None
        if release > now:
            throttled = self._state.explain(self._url, now=now)
            holders.append(Holder(release, throttled.reason, throttled.target or self._url))
        if self._origin is None:
            self._origin = serialised_origin(self._url) or ""
        advice = self._state.ask_advice(self._origin, throttled, now=now, start=self._start_fetch)
        if isinstance(advice, Advice):
            holders.append(advice_holder(advice, self._chance()))
        elif advice is not None and not self._is_too_late(release, now):
            return self._fetch_wait(advice, now)
        holder = max(holders, default=None)
        return None if holder is None or holder.release_time <= now else self._pause(holder, now)

    def _fetch_wait(self, pending: PendingAdvice, now: float) -> FetchWait:
        """Return the wait for advice that is not known yet; raise the refusal when it has taken too long."""
        longest = self._state.max_advice_delay
        if self._since is None:
            self._since = now
        left = min(longest - (now - self._since), longest)
        # A fetch under way may end at any time; one that may not be started yet is not worth a shorter wait. The sum is
        # for a clock that is set back while a request waits.
        hopeless = not pending.is_under_way and pending.until - now > left
        holder = Holder(pending.until, "advice_pending", self._origin or "")
        if left <= 0 or hopeless or self._waited_for_advice > 2 * longest:
            raise self._refuse(holder, now)
        wait = FetchWait(pending.finished, min(left, pending.until - now))
        self._waited_for_advice += wait.seconds
        # Not reported as a hold: the wait usually ends after milliseconds, and nothing has held the request yet.
        self._state.log_advice_wait(self._url, self._origin or "", wait.seconds)
        return wait

    def _chance(self) -> float:
        """Return the one draw of the request."""
        if self._draw is None:
            # "If r is less than or equal to the result's fraction": from (0, 1], so that 0 permits nothing.
            self._draw = 1.0 - self._state.draw()
        return self._draw

    def _redirected(self, headers: Headers) -> None:
        """Pass the interactive flag to the request that follows a redirect, and within the origin also the draw."""
        target = redirect_target(self._url, headers)
        if target is not None:
            draw = self._draw if serialised_origin(target) == self._origin else None
            carried_over.set([(_plain(target), draw, self.interactive)])

    def _target_name(self) -> str:
        """Return the name of the target, for a hold of this request alone."""
        return self._state.explain(self._url, now=self._sent).target or self._url

    def _pause(self, holder: Holder, now: float) -> Pause:
        """Return the wait until a release time; raise the refusal where that is too late."""
        release = holder.release_time
        if self._is_too_late(release, now):
            raise self._refuse(holder, now)
        if self._since is None:
            self._since = now
        pause = Pause(min(release - now, self._state.max_delay))
        self._waited += pause.seconds
        self._report_hold(holder, now, pause.seconds)
        return pause

    def _is_too_late(self, release: float, now: float) -> bool:
        """Return whether a request that waits for this release would wait for longer than it may."""
        longest = self._state.max_delay
        since = now if self._since is None else self._since
        # The sum is for a clock that is set back while a request waits.
        return judge(release, now=since, max_delay=longest) is Status.REJECTED or self._waited > 2 * longest

    def _refuse(self, holder: Holder, now: float) -> NoContact:
        """Return what is raised for a request that is not sent."""
        self.phase = _REFUSED[self.phase]
        self._report_hold(holder, now, 0.0)
        return self._refusal(*holder, now)

    def _report_hold(self, holder: Holder, now: float, delay: float) -> None:
        release, reason, target = holder
        self._state.report_hold(Hold(self._url, reason, target, release, now, delay))


def redirect_target(url: str, headers: Headers) -> str | None:
    """Return the URL that a redirect of `url` leads to; None where its Location is missing or malformed."""
    base, locations = parse_url(url), _lines(headers, "location")
    return resolve(_in_unicode(locations[0]), base) if base is not None and locations else None


def advice_holder(advice: Advice, draw: float) -> Holder:
    """Return why and until when an advice holds a request with this draw; until `ASAP` if it does not."""
    release = advice.release_time(draw)
    reason = "advice_unreachable"
    if advice.entry is not None and release >= advice.fresh_until:
        reason = "advice_disallowed" if advice.entry.disallowed else "advice_fraction"
    return Holder(release, reason, advice.origin)


def _lines(headers: Headers, name: str) -> list[str]:
    pairs = pairs_of(headers)
    return [_text(value) for given, value in pairs if len(given) == len(name) and _text(given).lower() == name]


def _text(given: str | bytes) -> str:
    return given if isinstance(given, str) else given.decode("latin-1")


def _plain(url: str | None) -> str:
    """Return a URL without percent-encoding: each library quotes the location of a redirect in its own way."""
    return unquote(without_fragment(url or ""))


def _in_unicode(location: str) -> str:
    """Decode a field from UTF-8 that was read as Latin-1; return any other field unchanged."""
    try:
        return location.encode("latin-1").decode()
    except UnicodeError:
        return location
