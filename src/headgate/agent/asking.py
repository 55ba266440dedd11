"""Asking origins for their traffic advice on behalf of many threads and event loops at once.

The core's cache says when an origin has to be asked; here is the lock around it, and the fetches under way: one for an
origin, in a thread of its own that nobody who waits can end. So a hundred first requests make one fetch, and one that
gives up leaves the other ninety-nine their answer.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from headgate.advice import AdviceCache, AgentIdentity
from headgate.advice.answer import Advice, Fetch
from headgate.advice.fetching import AdviceRequest, AdviceResponse
from headgate.agent.wait import Flight

__all__ = ["Asking", "BeginFetch"]


class BeginFetch(Protocol):
    """What begins fetches."""

    def __call__(self, request: AdviceRequest, *, done: Callable[[AdviceResponse], None]) -> None:
        """Begin one and return at once; call back once, from whatever thread, within the time that a fetch has."""


class Asking:
    """What each origin advises, asked for when it has to be.

    `told` is called with what each fetch made known. `clock` gives seconds since 1970.
    """

    def __init__(
        self,
        identity: AgentIdentity,
        *,
        clock: Callable[[], float],
        told: Callable[[Advice], None],
        begin_fetch: BeginFetch,
    ) -> None:
        self._cache = AdviceCache(identity)
        self._clock = clock
        self._told = told
        self._begin_fetch = begin_fetch
        self._flights: dict[str, tuple[Fetch, Future[None]]] = {}
        self._lock = threading.Lock()

    def ask(self, origin: str, *, now: float) -> Advice | Flight:
        """Give what a serialised origin advises, or the fetch to wait for before asking again."""
        with self._lock:
            answer = self._cache.ask(origin, now=now)
            if isinstance(answer, Advice):
                return answer
            if not isinstance(answer, Fetch):
                _, landed = self._flights.get(origin) or (None, Future())
                return Flight(landed, answer.until - now)
            landed = Future()
            self._flights[origin] = answer, landed
        self._begin_fetch(answer.request, done=lambda response: self._land(answer, landed, response))
        return Flight(landed, answer.give_up - now)

    def known(self, origin: str, *, now: float) -> Advice | None:
        """Give what is known of a serialised origin without asking it; None where nothing fresh is."""
        with self._lock:
            return self._cache.known(origin, now=now)

    def pause(self) -> None:
        """Let nobody be halfway through the cache while the process is forked."""
        self._lock.acquire()

    def resume(self, *, is_child: bool) -> None:
        """Go on after a fork. What was under way lands in the parent alone, so here the next to ask fetches."""
        if not is_child:
            self._lock.release()
            return
        self._lock = threading.Lock()  # which nobody took where the fork was not Python's
        for fetch, _ in self._flights.values():
            self._cache.abandoned(fetch)
        self._flights.clear()

    def _land(self, fetch: Fetch, landed: "Future[None]", response: AdviceResponse) -> None:
        try:
            with self._lock:
                advice = self._cache.received(fetch, response, now=self._clock())
                if self._flights.get(fetch.origin) == (fetch, landed):
                    del self._flights[fetch.origin]
            self._told(advice)
        finally:
            landed.set_result(None)
