"""One request on its way: what holds it, whether it is sent again, and the one draw it gets.

Nothing in here sleeps, locks for long or opens a socket. A transport of any library goes through it alike::

    passage = courtesy.passage(method, url)
    while True:
        while (wait := passage.wait()) is not None:      # raises NoContact
            wait.block()                                 # or: await wait.settle()
        with passage:
            response = ...
        if passage.received(response.status, response.headers):
            return response
        ...                                              # let go of the response: the request is sent again
"""

from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import unquote

import msgspec

from headgate.advice.answer import Advice
from headgate.agent.advice import PendingAdvice, StartFetch
from headgate.agent.retry_pause import TOO_MANY_REQUESTS, retry_pause
from headgate.agent.wait import FetchWait, Pause, Wait
from headgate.errors import NoContact
from headgate.http.origin import serialised_origin
from headgate.http.retry_after import retry_after
from headgate.http.url import parse_url, resolve, without_fragment
from headgate.release import ASAP, Status, judge
from headgate.throttle.fields import Headers, pairs_of

if TYPE_CHECKING:
    from headgate.agent.courtesy import Courtesy

__all__ = ["Passage", "carried_over"]

_REPEATABLE: Final = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})

_CarriedOver: TypeAlias = tuple[str, float | None, bool]

carried_over: Final[ContextVar[list[_CarriedOver] | None]] = ContextVar("headgate_carried_over", default=None)
"""The draw and the interactive flag for the next request of this thread or task, if it is for the URL beside them.

In a list, which the request that takes them empties: tasks begun in the meantime have a copy of the context and with it
the same list, and a draw is for one request.
"""


class Passage(msgspec.Struct, eq=False):
    """The way of one request; made by `Courtesy.passage`, where its arguments are told of."""

    _courtesy: "Courtesy"
    _method: str
    _url: str
    interactive: bool
    """Whether a user waits for it."""
    _repeatable: bool
    _refusal: type[NoContact]
    _start_fetch: StartFetch | None
    _origin: str | None = None
    _draw: float | None = None
    _retry_in: float = 0.0
    _since: float | None = None
    _sent: float = ASAP
    _waited: float = 0.0
    _waited_for_advice: float = 0.0
    _tries: int = 0

    def __enter__(self) -> None:
        """Begin to send the request."""

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        """Keep the draw for the next request, if it is the same one sent again because no response came."""
        if error is not None:
            carried_over.set([(_plain(parse_url(self._url)), self._draw, self.interactive)])

    def take_over(self) -> None:
        """Take the draw and the interactive flag that the last request left, if they are for this URL."""
        left = carried_over.get()
        carried_over.set(None)
        if left and left[0][0] == _plain(parse_url(self._url)):
            with suppress(IndexError):  # another thread with the same list has taken them
                _, self._draw, interactive = left.pop()
                self.interactive |= interactive

    def wait(self) -> Wait | None:
        """Give what to wait for before asking this again; None when the request is to be sent now.

        Raises `NoContact`, or the `refusal` that stands for it, when its release is later than it may wait for.
        """
        if self._retry_in > 0:
            # Seconds, not an instant: neither a clock that is set nor one that stands still changes them.
            pause = Pause(self._retry_in)
            self._retry_in -= pause.seconds
            return pause
        courtesy = self._courtesy
        courtesy.lock.acquire()  # `with` takes twice as long, which is seen here and where a response is received
        try:
            # Inside of the lock, so that the throttle's instants come in the order of the clock's.
            now = courtesy.clock()
            release = courtesy.throttle.release_time(self._url, now=now, interactive=self.interactive)
        finally:
            courtesy.lock.release()
        if release > now or courtesy.advice is not None:
            wait = self._hold(release, now)
            if wait is not None:
                return wait
        if self._tries and not self._spend():
            raise self._refusal(now, "retry_budget", self._target(), now)
        self._tries += 1
        self._sent = now
        return None

    def received(self, status: int, headers: Headers) -> bool:
        """Take note of the response; True when it is the last word, False when the request is to be sent again."""
        courtesy, url = self._courtesy, self._url
        throttle = courtesy.throttle
        courtesy.lock.acquire()
        try:
            now = courtesy.clock()
            throttle.response_received(url, status, headers, now=now, sent=self._sent)
        finally:
            courtesy.lock.release()
        if status in _REDIRECTS:
            self._redirected(headers)
        if self._tries > courtesy.retry or not self._is_worth_another(status):
            return True
        with courtesy.lock:
            if throttle.retries_left(url) < 1:
                return True
            release = throttle.release_time(url, now=now, interactive=self.interactive)
        # Whatever the throttle allows, a repeated request waits for its own pause and the response's Retry-After.
        pause = retry_pause(status, retries=self._tries - 1, draw=throttle.draw())
        asked = (retry_after(value, now=now) for value in _lines(headers, "retry-after"))
        self._retry_in = max([pause, release - now, *(instant - now for instant in asked)])
        self._since, self._waited = None, 0.0
        self._waited_for_advice = 0.0
        return self._retry_in > courtesy.max_delay

    def _is_worth_another(self, status: int) -> bool:
        failed = status == TOO_MANY_REQUESTS or status in self._courtesy.throttle.policy.failure_statuses
        return failed and self._repeatable and self._method.upper() in _REPEATABLE

    def _hold(self, release: float, now: float) -> Wait | None:
        """Give what to wait for, of the throttle and the advice."""
        holds = []
        may_ask = True
        if release > now:
            with self._courtesy.lock:
                throttled = self._courtesy.throttle.explain(self._url, now=now)
            holds.append((release, str(throttled.reason), throttled.target or self._url))
            # What only the backoff holds the advice may clear. A Retry-After forbids to ask, even for that.
            may_ask = self._courtesy.advice_clears_backoff and throttled.retry_after <= now
        advice = self._advice(now, may_ask=may_ask)
        if isinstance(advice, Advice):
            advised = advice.release_time(self._chance())
            holds.append((advised, _said(advice, advised), advice.origin))
        elif advice is not None and not self._is_too_late(release, now):
            return self._fetch_wait(advice, now)
        release, reason, target = max(holds, default=(ASAP, "", ""))
        return self._pause(release, reason, target, now) if release > now else None

    def _advice(self, now: float, *, may_ask: bool) -> Advice | PendingAdvice | None:
        """Return what the origin advises, as far as that is known; None where it is not to be asked."""
        client = self._courtesy.advice
        if client is None:
            return None
        if self._origin is None:
            self._origin = serialised_origin(self._url) or ""
        if not self._origin:
            return None
        if not may_ask:
            return client.known(self._origin, now=now)
        return client.ask(self._origin, now=now, start=self._start_fetch)

    def _fetch_wait(self, pending: PendingAdvice, now: float) -> FetchWait:
        """Return the wait for advice that is not known yet; raises the refusal when it has taken too long."""
        longest = self._courtesy.advice_wait
        if self._since is None:
            self._since = now
        left = min(longest - (now - self._since), longest)
        # A fetch under way may end at any time; one that may not be started yet is not worth a shorter wait. The sum is
        # for a clock that is set back while a request waits.
        hopeless = not pending.is_under_way and pending.until - now > left
        if left <= 0 or hopeless or self._waited_for_advice > 2 * longest:
            raise self._refusal(pending.until, "advice_pending", self._origin or "", now)
        wait = FetchWait(pending.finished, min(left, pending.until - now))
        self._waited_for_advice += wait.seconds
        return wait

    def _chance(self) -> float:
        """Give the one draw of the request."""
        if self._draw is None:
            # "If r is less than or equal to the result's fraction": from (0, 1], so that 0 permits nobody.
            self._draw = 1.0 - self._courtesy.draw()
        return self._draw

    def _redirected(self, headers: Headers) -> None:
        """Leave to the request that follows a redirect the user, and within the origin the draw."""
        base = parse_url(self._url)
        locations = _lines(headers, "location")
        target = resolve(_in_unicode(locations[0]), base) if base is not None and locations else None
        if target is not None:
            draw = self._draw if serialised_origin(target) == self._origin else None
            carried_over.set([(_plain(target), draw, self.interactive)])

    def _target(self) -> str:
        """Name what is held where nothing but this request is."""
        with self._courtesy.lock:
            return self._courtesy.throttle.explain(self._url, now=self._sent).target or self._url

    def _pause(self, release: float, reason: str, target: str, now: float) -> Pause:
        most = self._courtesy.max_delay
        if self._is_too_late(release, now):
            raise self._refusal(release, reason, target, now)
        if self._since is None:
            self._since = now
        pause = Pause(min(release - now, most))
        self._waited += pause.seconds
        return pause

    def _is_too_late(self, release: float, now: float) -> bool:
        """Return whether a request that waits for this release would wait for longer than it may."""
        longest = self._courtesy.max_delay
        since = now if self._since is None else self._since
        # The sum is for a clock that is set back while a request waits.
        return judge(release, now=since, max_delay=longest) is Status.REJECTED or self._waited > 2 * longest

    def _spend(self) -> bool:
        with self._courtesy.lock:
            return self._courtesy.throttle.spend_retry(self._url)


def _said(advice: Advice, release: float) -> str:
    """Name what of an advice holds a request until `release`."""
    if advice.entry is not None and release >= advice.fresh_until:
        return "advice_disallowed" if advice.entry.disallowed else "advice_fraction"
    return "advice_unreachable"


def _lines(headers: Headers, name: str) -> list[str]:
    pairs = pairs_of(headers)
    return [_text(value) for given, value in pairs if len(given) == len(name) and _text(given).lower() == name]


def _text(given: str | bytes) -> str:
    return given if isinstance(given, str) else given.decode("latin-1")


def _plain(url: str | None) -> str:
    """Give a URL as it is before it is quoted: each library quotes the places it is redirected to in its own way."""
    return unquote(without_fragment(url or ""))


def _in_unicode(location: str) -> str:
    """Give a field in UTF-8 that was read as bytes are, or the field as it is."""
    try:
        return location.encode("latin-1").decode()
    except UnicodeError:
        return location
