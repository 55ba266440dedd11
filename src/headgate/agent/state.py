"""What all requests of one `Courtesy` share: its settings, its throttle behind a lock, and the traffic advice.

This file knows nothing of HTTP libraries, and nothing of the order in which a request asks for what is in here.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from headgate.advice import AgentIdentity
from headgate.advice.cache import REPORT_TIMEOUT
from headgate.advice.decision import Advice, derived_draw
from headgate.advice.freshness import MIN_FRESHNESS
from headgate.agent.advice_client import AdviceClient, PendingAdvice, StartFetch
from headgate.agent.fork_hooks import FORK_HOOKS
from headgate.agent.retry import Retry
from headgate.errors import ConfigurationError, check_count, check_seconds
from headgate.http.url import serialised_origin
from headgate.release import ASAP
from headgate.throttle import Explanation, Throttle
from headgate.throttle.fields import Headers

if TYPE_CHECKING:  # imported when there is a pace
    from headgate.agent.pace import Concurrency, Pace

EventKind: TypeAlias = Literal["sent", "answered", "lost", "waits", "held", "retried", "advice"]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to a request, as plain data; fields that do not belong to its kind have their defaults.

    * "sent", "answered", "lost": a request is sent, its response's head has come, or none came.
    * "waits": it is held, and waits `delay` seconds. "held": it is held and not sent, and `RetryLater` is raised; a
      retry results in the response before it. A request that waits while its traffic advice is fetched is not held; it
      is if the fetch takes too long.
    * "retried": after an answer with `status`, or 0 for none, it is sent again in `delay` seconds, as retry `number`.
    * "advice": the traffic advice of the origin `url` was fetched; `reason` describes the result.
    """

    kind: EventKind
    url: str
    now: float
    """Seconds since 1970."""
    method: str = ""
    status: int = 0
    """The status of the response; 0 without one."""
    number: int = 0
    """1 for the first retry of a request."""
    reason: str = ""
    """As in `RetryLater`: "backoff", "retry-after", "advice_…" and so on."""
    target: str = ""
    """What is held: a throttling target, a bucket with `*` behind its path, or an origin."""
    release_time: float = ASAP
    """When the request may go at the earliest."""
    delay: float = 0.0
    """Seconds that the request waits now."""
    headers: Headers = ()
    """The fields of an answer, as the HTTP library has them."""
    advice: Advice | None = None
    """The advice that was fetched."""

    def __str__(self) -> str:
        return _TEXTS[self.kind].format(self)


_TEXTS: Final[dict[EventKind, str]] = {
    "sent": "{0.method} {0.url}",
    "answered": "{0.method} {0.url}: {0.status}",
    "lost": "{0.method} {0.url}: no response",
    "waits": "{0.url} waits {0.delay:.1f} s: {0.reason} of {0.target}",
    "held": "{0.url} is not sent: {0.reason} of {0.target}",
    "retried": "retry {0.number} of {0.url} after status {0.status} in {0.delay:.1f} s",
    "advice": "{0.url}: {0.reason}",
}
_NOTABLE: Final = frozenset({"waits", "held", "retried"})
"""Logged at INFO; others at DEBUG."""

_WAIT_OF_RETRIES: Final = 5.0
"""Seconds: the default of `wait` with `retry`. A retry always waits, so with 0 there would be none."""
_UNLIMITED: Final = 1e9
"""Seconds that a request waits with `wait=True`: finite, so that it does not wait for `NEVER`."""
_LONGEST_SPREAD: Final = 60.0
"""Seconds between two requests at most by RateLimit fields, for requests that do not wait for holds."""
_RETRIES_OF_WAIT: Final = 3
"""The default of `retry` with `wait=True`: what a server rejects is not lost."""

_logger = logging.getLogger("headgate.agent")


class Holder(NamedTuple):
    """One reason to hold a request; the greatest of several is the one that holds it longest."""

    release_time: float
    reason: str
    target: str


def advice_holder(advice: Advice, draw: float) -> Holder:
    """Return why and until when an advice holds a request with this draw; until `ASAP` if it does not."""
    release = advice.release_time(draw)
    reason = "advice_unreachable"
    if advice.entry is not None and release >= advice.fresh_until:
        reason = "advice_disallowed" if advice.entry.disallowed else "advice_fraction"
    return Holder(release, reason, advice.origin)


class CourtesyState:
    """What the requests of one courtesy share, for any number of threads and event loops.

    The arguments are those of `Courtesy`. `start_fetch` starts the advice fetches of requests without an HTTP client.
    Raises `ConfigurationError` for a number that is out of range.
    """

    def __init__(
        self,
        throttle: Throttle,
        identity: AgentIdentity | None,
        *,
        user_agent: str = "",
        wait: bool | float | None = None,
        retry: int | Retry | None = None,
        rate: str | None = None,
        concurrency: "Concurrency | None" = None,
        min_freshness: float = MIN_FRESHNESS,
        on_event: Callable[[Event], object] | None = None,
        start_fetch: StartFetch,
        clock: Callable[[], float],
        draw: Callable[[], float],
    ) -> None:
        if not isinstance(retry, Retry):
            check_count("retry", retry or 0)
            retry = Retry((_RETRIES_OF_WAIT if wait is True else 0) if retry is None else retry)
        if wait is not True and wait is not False and wait is not None:
            check_seconds("wait", wait)
        if on_event is not None and not callable(on_event):
            raise ConfigurationError(f"on_event must be a function of one argument, got {on_event!r:.80}")
        self.throttle = throttle
        """The throttle; used by one thread at a time, which holds `lock`."""
        self.lock = threading.Lock()
        self.clock = clock
        self.secret = repr(draw()).encode()
        """What the draws of requests are derived from."""
        self.retry = retry
        """Which requests are sent again."""
        default = _WAIT_OF_RETRIES if retry.attempts else 0.0
        self.max_delay = default if wait is None else _UNLIMITED if wait is True else float(wait)
        """Seconds that a held request may wait at most."""
        self.max_advice_delay = REPORT_TIMEOUT if wait is None or wait is True else float(wait)
        """Seconds that a request may wait at most until its origin's advice is known."""
        self.pace: Pace | None = None
        """What spreads the requests to each origin; None without a rate, a concurrency and a wait."""
        if rate is not None or concurrency is not None or (wait and self.max_delay):
            from headgate.agent import pace

            self.pace = pace.Pace(rate, concurrency, self.max_delay or _LONGEST_SPREAD)
        self.max_pace_delay = _UNLIMITED if wait is None else self.max_delay
        """Seconds that a request may wait at most for its turn."""
        self.advice: AdviceClient | None = None
        """What fetches traffic advice; None where none is asked for."""
        if identity is not None:
            self.advice = AdviceClient(
                identity,
                clock=clock,
                on_advice=self._on_advice,
                default=start_fetch,
                min_freshness=min_freshness,
                user_agent=user_agent,
            )
        self.is_closed = False
        self.pass_time: Callable[[float], None] | None = None
        """Called with the seconds of a wait in its place, in tests."""
        self.counters: Counter[str] = Counter()
        """The number of events of each kind."""
        self._on_event = on_event
        FORK_HOOKS.register(self)

    def explain(self, url: str, *, now: float | None = None) -> Explanation:
        """Return what the throttle knows of a URL."""
        with self.lock:
            return self.throttle.explain(url, now=self.clock() if now is None else now)

    def explain_all(self, url: str) -> Explanation:
        """Return the same; if the throttle does not hold a GET of a URL, what its origin's known advice says."""
        found, now = self.explain(url), self.clock()
        origin = serialised_origin(url) or ""
        advice = self.ask_advice(origin, is_held=True, now=now)
        if not isinstance(advice, Advice):
            return found
        release, reason, _ = advice_holder(advice, self.draw(advice, "GET", url))
        if found.held or release <= now:
            return found
        return msgspec.structs.replace(found, target=origin, retry_after=release, held=True, reason=reason)

    def draw(self, advice: Advice, method: str, url: str) -> float:
        """Return the one draw of a request, however often a program repeats it, while the advice is fresh."""
        if advice.entry is None or not 0 < advice.entry.fraction < 1:
            return 1.0
        request = f"{method} {url}".encode("utf-8", "surrogatepass")
        return derived_draw(self.secret, request, repr(advice.fresh_until).encode())

    def ask_advice(
        self, origin: str, *, is_held: bool, now: float, start: StartFetch | None = None
    ) -> Advice | PendingAdvice | None:
        """Return the advice of an origin, or what to wait for until it is known; None if it is not fetched now.

        For a request that the throttle holds, advice is not fetched.
        """
        if self.advice is None or not origin:
            return None
        return self.advice.known(origin, now=now) if is_held else self.advice.ask(origin, now=now, start=start)

    def report(self, kind: EventKind, url: str, **details: Any) -> None:
        """Count and log an event, and call the hook; its errors are logged, and the request goes on."""
        with self.lock:
            self.counters[kind] += 1
        level = logging.INFO if kind in _NOTABLE else logging.DEBUG
        if self._on_event is None and not _logger.isEnabledFor(level):
            return
        event = Event(kind=kind, url=url, **{"now": self.clock(), **details})
        _logger.log(level, "%s", event)
        if self._on_event is not None:
            try:
                self._on_event(event)
            except Exception:
                _logger.exception("the hook %r failed", self._on_event)

    @contextmanager
    def scripted(self, clock: Callable[[], float], pass_time: Callable[[float], None]) -> Iterator[None]:
        """Use another clock, call `pass_time` in place of waits, and fetch nothing."""
        saved = self.clock, self.advice
        self.clock, self.advice, self.pass_time = clock, None, pass_time
        try:
            yield
        finally:
            self.clock, self.advice, self.pass_time = *saved, None

    def close(self) -> None:
        """Fetch no more advice; requests that wait for some raise `RuntimeError`."""
        self.is_closed = True
        if self.advice is not None:
            self.advice.close()

    def _on_advice(self, advice: Advice) -> None:
        self.report("advice", advice.origin, reason=advice.reason, release_time=advice.fresh_until, advice=advice)

    def before_fork(self) -> None:
        """Keep all threads out of the throttle and the advice while the process is forked."""
        self.lock.acquire()
        if self.advice is not None:
            self.advice.before_fork()

    def after_fork(self, *, is_child: bool) -> None:
        """Go on after a fork; the parent's threads do not exist in the child."""
        if self.advice is not None:
            self.advice.after_fork(is_child=is_child)
        if is_child:  # also of a fork that Python did not make, before which nothing was locked
            self.lock = threading.Lock()
            if self.pace is not None:
                self.pace.reset()  # the requests are the parent's
        else:
            self.lock.release()
