"""Fetches that nobody blocks for: each in a thread of its own, so many at once, and called back when they are through.

The threads are daemons: neither a server nor a name server can keep a program from ending. A process that is forked
begins with none, and with none waiting: what was begun before goes on in its parent alone.
"""

import os
import ssl
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from headgate.advice.fetching import NETWORK_ERROR, TIMEOUT, AdviceRequest, AdviceResponse
from headgate.agent.advice.deadline import Deadline
from headgate.agent.advice.fetching import fetch_until

__all__ = ["MOST_AT_ONCE", "MOST_WAITING", "begin_fetch"]

MOST_AT_ONCE: Final = 32
"""Fetches, and threads."""

MOST_WAITING: Final = 1024
"""Fetches that wait for a thread. They are made in their order, and their time passes meanwhile."""


def begin_fetch(
    request: AdviceRequest,
    *,
    tls: ssl.SSLContext | None = None,
    done: Callable[[AdviceResponse], None],
    timeout: float = TIMEOUT,
) -> None:
    """Begin what `fetch_advice` does, and return at once; `done` is called once with what came, within the timeout.

    It is called in another thread and is not to block. Only where there can be none, since the program is ending or
    the system has no more threads, and where `MOST_WAITING` others wait, is it called with a failure before this
    returns: hold no lock meanwhile. In a process that is forked meanwhile it is not called.
    """
    _Fetches.now.begin(_Fetch(Deadline(timeout), request, tls, done))


class _Fetch:
    def __init__(
        self,
        deadline: Deadline,
        request: AdviceRequest,
        tls: ssl.SSLContext | None,
        done: Callable[[AdviceResponse], None],
    ) -> None:
        self._deadline = deadline
        self._request = request
        self._tls = tls
        self._done = done

    def make(self) -> None:
        """Fetch, and call back, come what may."""
        came = NETWORK_ERROR._replace(failure="the fetch failed")
        try:
            came = fetch_until(self._deadline, self._request, tls=self._tls)
        finally:
            self._done(came)

    def refuse(self, failure: str) -> None:
        """Call back without a fetch."""
        self._done(NETWORK_ERROR._replace(failure=failure))


class _Fetches:
    """The fetches of this process."""

    now: "_Fetches"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._waiting: deque[_Fetch] = deque()

    def begin(self, fetch: _Fetch) -> None:
        """Start a fetch, or let it wait."""
        with self._lock:
            is_free = self._running < MOST_AT_ONCE
            is_full = len(self._waiting) >= MOST_WAITING
            if is_free:
                self._running += 1
            elif not is_full:
                self._waiting.append(fetch)
        if is_free:
            self._start(fetch)
        elif is_full:
            fetch.refuse("too many fetches of traffic advice wait")

    def _start(self, fetch: _Fetch | None) -> None:
        """Give a place that is taken to a fetch, or to one that waits if it cannot have a thread."""
        while fetch is not None:
            try:
                if sys.is_finalizing():  # before Python 3.12 a thread that is started now is waited for for good
                    raise RuntimeError("the program is ending")
                threading.Thread(target=self._make, args=(fetch,), name="headgate-advice", daemon=True).start()
            except RuntimeError as error:
                fetch.refuse(f"no thread to fetch in: {error}")
            else:
                return
            fetch = self._next()

    def _make(self, fetch: _Fetch) -> None:
        try:
            fetch.make()
        finally:
            self._start(self._next())

    def _next(self) -> _Fetch | None:
        """Give the one that has waited longest; where there is none the place is free."""
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._running -= 1
            return None


def _begin_anew() -> None:
    _Fetches.now = _Fetches()


_begin_anew()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
