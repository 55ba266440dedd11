"""What all requests of one `Courtesy` share: its settings, its throttle behind a lock, and the traffic advice.

This file knows nothing of HTTP libraries, and nothing of the order in which a request asks for what is in here.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from headgate.advice import AgentIdentity
from headgate.advice.cache import REPORT_TIMEOUT
from headgate.advice.decision import Advice
from headgate.advice.freshness import MIN_FRESHNESS
from headgate.agent.advice_client import AdviceClient, PendingAdvice, StartFetch
from headgate.agent.fork_hooks import FORK_HOOKS
from headgate.errors import ConfigurationError, check_count, check_seconds
from headgate.release import NEVER
from headgate.throttle import Explanation, Throttle


class Hold(NamedTuple):
    """A request is held: it waits, or `NoContact` is raised. Instants are seconds since 1970.

    A request that waits while its traffic advice is fetched is not held; it is if the fetch takes too long.
    """

    url: str
    reason: str
    """As in `NoContact`: "backoff", "retry-after", "shared", "retry_budget", or "advice_…"."""
    target: str
    """What is held: a throttling target, a bucket with `*` behind its path, or an origin."""
    release_time: float
    """When the request may go at the earliest."""
    now: float
    delay: float
    """Seconds that the request waits now; 0 where `NoContact` is raised."""


class Retry(NamedTuple):
    """A request is going to be sent again."""

    url: str
    status: int
    """The status of the response that is the reason."""
    number: int
    """1 for the first retry of a request."""
    delay: float
    """Seconds until it is sent, if nothing else holds it then."""


_FORK_TIMEOUT: Final = 5.0
"""Seconds that a fork waits for a request that uses the throttle; more only where the thread that forks holds it."""

_MAX_DELAY_OF_RETRIES: Final = 5.0
"""Seconds: the default of `max_delay` with `retry`. A retry always waits, so with 0 there would be none."""

_Event = TypeVar("_Event")

_logger = logging.getLogger("headgate.agent")


class Holder(NamedTuple):
    """One reason to hold a request; the greatest of several is the one that holds it longest."""

    release_time: float
    reason: str
    target: str


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
        max_delay: float | None = None,
        retry: int = 0,
        min_freshness: float = MIN_FRESHNESS,
        on_hold: Callable[[Hold], object] | None = None,
        on_retry: Callable[[Retry], object] | None = None,
        on_advice: Callable[[Advice], object] | None = None,
        start_fetch: StartFetch,
        clock: Callable[[], float],
        draw: Callable[[], float],
    ) -> None:
        check_count("retry", retry)
        if max_delay is not None:
            check_seconds("max_delay", max_delay)
        for name, hook in (("on_hold", on_hold), ("on_retry", on_retry), ("on_advice", on_advice)):
            if hook is not None and not callable(hook):
                raise ConfigurationError(f"{name} must be a function of one argument, got {hook!r:.80}")
        self.throttle = throttle
        """The throttle; used by one thread at a time, which holds `lock`."""
        self.lock = threading.Lock()
        self.clock = clock
        self.draw = draw
        self.retry = retry
        """How often a request may be sent again at most."""
        default = _MAX_DELAY_OF_RETRIES if retry else 0.0
        self.max_delay = default if max_delay is None else max_delay
        """Seconds that a held request may wait at most."""
        self.max_advice_delay = REPORT_TIMEOUT if max_delay is None else max_delay
        """Seconds that a request may wait at most until its origin's advice is known."""
        self.advice: AdviceClient | None = None
        """What fetches traffic advice; None where none is asked for."""
        if identity is not None:
            self.advice = AdviceClient(
                identity, clock=clock, on_advice=self._on_advice, default=start_fetch, min_freshness=min_freshness
            )
        self.is_closed = False
        self._on_hold, self._on_retry, self._on_advice_hook = on_hold, on_retry, on_advice
        self._is_locked_for_fork = False
        FORK_HOOKS.register(self, CourtesyState._before_fork, CourtesyState._after_fork)

    def explain(self, url: str, *, now: float | None = None) -> Explanation:
        """Return what the throttle knows of a URL."""
        with self.lock:
            return self.throttle.explain(url, now=self.clock() if now is None else now)

    def retry_release_time(self, url: str, *, now: float, interactive: bool) -> float:
        """Return when a retry may be sent by the throttle: `NEVER` where the retry budget is spent."""
        with self.lock:
            if self.throttle.retries_left(url) < 1:
                return NEVER
            return self.throttle.release_time(url, now=now, interactive=interactive)

    def spend_retry(self, url: str) -> bool:
        """Charge the retry budget for a retry; False where it is spent."""
        with self.lock:
            return self.throttle.spend_retry(url)

    def ask_advice(
        self, origin: str, *, is_held: bool, now: float, start: StartFetch | None = None
    ) -> Advice | PendingAdvice | None:
        """Return the advice of an origin, or what to wait for until it is known; None if it is not fetched now.

        For a request that the throttle holds, advice is not fetched.
        """
        if self.advice is None or not origin:
            return None
        return self.advice.known(origin, now=now) if is_held else self.advice.ask(origin, now=now, start=start)

    def report_hold(self, hold: Hold) -> None:
        """Log that a request is held, and call the hook."""
        if _logger.isEnabledFor(logging.INFO):
            what = f"waits {hold.delay:.1f} s" if hold.delay else "is not sent"
            _logger.info("%s %s: %s of %s", hold.url, what, hold.reason, hold.target)
        _call(self._on_hold, hold)

    def report_retry(self, retry: Retry) -> None:
        """Log that a request is going to be sent again, and call the hook."""
        _logger.info("retry %d of %s after status %d in %.1f s", retry.number, retry.url, retry.status, retry.delay)
        _call(self._on_retry, retry)

    def close(self) -> None:
        """Fetch no more advice; requests that wait for some raise `RuntimeError`."""
        self.is_closed = True
        if self.advice is not None:
            self.advice.close()

    def _on_advice(self, advice: Advice) -> None:
        _logger.debug("%s: %s", advice.origin, advice.reason)
        _call(self._on_advice_hook, advice)

    def _before_fork(self) -> None:
        """Keep all threads out of the throttle and the advice while the process is forked."""
        self._is_locked_for_fork = self.lock.acquire(timeout=_FORK_TIMEOUT)
        if self.advice is not None:
            self.advice.before_fork()

    def _after_fork(self, is_child: bool) -> None:  # noqa: FBT001 - called by FORK_HOOKS alone
        """Go on after a fork; the parent's threads do not exist in the child."""
        if self.advice is not None:
            self.advice.after_fork(is_child=is_child)
        if is_child:  # also of a fork that Python did not make, before which nothing was locked
            self.lock = threading.Lock()
        elif self._is_locked_for_fork:
            self.lock.release()


def _call(hook: Callable[[_Event], object] | None, event: _Event) -> None:
    """Call a hook; its errors are logged, and the request goes on."""
    if hook is not None:
        try:
            hook(event)
        except Exception:
            _logger.exception("the hook %r failed", hook)
