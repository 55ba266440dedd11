"""Asking origins for their traffic advice on behalf of many threads and event loops at once.

The core's cache says when an origin has to be asked. Here are the lock around it and the fetches under way: one for an
origin, so that a hundred first requests make one fetch, and so many in all.

A fetch that fails for a reason of this machine is made again after a pause. The origin does not count as unreachable
then, for requests may go to an origin that is unreachable.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Final, NamedTuple

from headgate.advice import AdviceCache, AgentIdentity
from headgate.advice.answer import Advice, Fetch
from headgate.advice.fetching import NETWORK_ERROR, AdviceResponse, too_late
from headgate.agent.advice.start import Outcome, StartFetch

__all__ = ["MAX_FETCHES", "RETRY_PAUSE", "AdviceClient", "PendingAdvice"]

MAX_FETCHES: Final = 128
"""Fetches that are under way at once, threads included that a hostile server keeps for longer than a fetch may take."""

RETRY_PAUSE: Final = 1.0
"""Seconds until a fetch that failed for a reason of this machine is made again."""

_logger = logging.getLogger("headgate.agent.advice")


class PendingAdvice(NamedTuple):
    """Advice that is not known yet."""

    finished: "Future[None]"
    """Done when it is worth asking again."""
    until: float
    """The instant from which it is worth asking again in any case: seconds since 1970."""
    is_under_way: bool
    """Whether it is being fetched; else it may not be fetched before `until`."""


class _Running:
    """A fetch under way."""

    def __init__(self, fetch: Fetch) -> None:
        self.fetch = fetch
        self.finished: Future[None] = Future()
        self.runner: object = None

    @property
    def is_stuck(self) -> bool:
        """Whether its thread still runs, which is all there is to know of a blocking client."""
        return isinstance(self.runner, threading.Thread) and self.runner.is_alive()


class AdviceClient:
    """What each origin advises, fetched when it has to be.

    `on_advice` is called with the result of each fetch, `default` starts the fetches of requests that have no client of
    their own, and `clock` gives seconds since 1970.
    """

    def __init__(
        self,
        identity: AgentIdentity,
        *,
        clock: Callable[[], float],
        on_advice: Callable[[Advice], None],
        default: StartFetch,
    ) -> None:
        self._cache = AdviceCache(identity)
        self._clock = clock
        self._on_advice = on_advice
        self._default = default
        self._running: dict[str, _Running] = {}
        self._lock = threading.Lock()

    def ask(self, origin: str, *, now: float, start: StartFetch | None = None) -> Advice | PendingAdvice:
        """Return at once what a serialised origin advises; where that is not known, `start` fetches it."""
        with self._lock:
            answer = self._cache.ask(origin, now=now)
            if isinstance(answer, Advice):
                return answer
            running = self._running.get(origin)
            if not isinstance(answer, Fetch):
                finished = Future() if running is None else running.finished
                return PendingAdvice(finished, answer.until, running is not None)
            if running is not None and running.is_stuck:
                # The origin has had all the time that a fetch has; it is not asked by a second thread.
                return self._cache.received(answer, NETWORK_ERROR._replace(failure=too_late()), now=now)
            if len(self._running) >= MAX_FETCHES:
                self._cache.abandoned(answer, retry_at=now + RETRY_PAUSE)
                return PendingAdvice(Future(), now + RETRY_PAUSE, is_under_way=False)
            running = self._running[origin] = _Running(answer)
        try:
            running.runner = (start or self._default)(answer.request, partial(self._report, running))
        except Exception as error:  # such as that no thread can be started
            self._report(running, error)
        return PendingAdvice(running.finished, answer.give_up, is_under_way=True)

    def known(self, origin: str, *, now: float) -> Advice | None:
        """Return the fresh advice of a serialised origin without asking it, None where there is none."""
        with self._lock:
            return self._cache.known(origin, now=now)

    def pause(self) -> None:
        """Keep every thread out of the cache while the process is forked."""
        self._lock.acquire()

    def resume(self, *, is_child: bool) -> None:
        """Go on after a fork. The fetches under way are the parent's; in the child the next to ask fetches."""
        if not is_child:
            self._lock.release()
            return
        self._lock = threading.Lock()  # the fork may not have been Python's, and then nothing took it
        for running in self._running.values():
            self._cache.abandoned(running.fetch)
        self._running.clear()

    def _report(self, running: _Running, outcome: Outcome) -> None:
        advice = None
        try:
            with self._lock:
                now = self._clock()
                if self._running.get(running.fetch.origin) is running:
                    del self._running[running.fetch.origin]
                if isinstance(outcome, AdviceResponse):
                    advice = self._cache.received(running.fetch, outcome, now=now)
                else:
                    self._cache.abandoned(running.fetch, retry_at=now + RETRY_PAUSE)
            if advice is None:
                _logger.warning("the traffic advice of %s was not fetched: %r", running.fetch.origin, outcome)
            else:
                self._on_advice(advice)
        finally:
            running.finished.set_result(None)
