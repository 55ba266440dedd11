"""Fetches that nobody blocks for: each in a thread, so many at once, and each called back for when it is through.

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
"""Fetches that are made at once, each in a thread."""

MOST_WAITING: Final = 1024
"""Fetches that wait for a thread. Each gets one in its turn, and its time passes meanwhile; as all have the same time,
nobody is over it before whoever is in front."""


def begin_fetch(
    request: AdviceRequest,
    *,
    tls: ssl.SSLContext | None = None,
    done: Callable[[AdviceResponse], None],
) -> None:
    """Begin what `fetch_advice` does, and return at once; `done` is called once with what came, within `TIMEOUT`.

    It is called in another thread, where others wait for it to return, and what it raises goes to
    `threading.excepthook`. Where no thread can be had, since the program is ending or the system has no more of them,
    and where `MOST_WAITING` others wait, it is called with a failure before this returns: hold no lock meanwhile. In a
    process that is forked in the meantime it is not called.
    """
    _Fetches.now.begin(_Fetch(request, tls, done, Deadline(TIMEOUT)))


class _Fetch:
    def __init__(
        self,
        request: AdviceRequest,
        tls: ssl.SSLContext | None,
        done: Callable[[AdviceResponse], None],
        deadline: Deadline,
    ) -> None:
        self._request = request
        self._tls = tls
        self._done = done
        self._deadline = deadline

    def finish(self, failure: str = "") -> None:
        """Fetch, unless it has failed already, and call back, come what may."""
        came = NETWORK_ERROR._replace(failure=failure or "the fetch broke off")
        try:
            try:
                if not failure:
                    came = fetch_until(self._deadline, self._request, tls=self._tls)
            finally:
                self._done(came)
        except BaseException:
            # As if this were all that the thread is for; it goes on with the next.
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))


class _Fetches:
    """The fetches of this process: threads are bounded for all that is in it."""

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
            fetch.finish("too many others wait")

    def _start(self, fetch: _Fetch) -> None:
        try:
            # Before Python 3.12 a thread that is started now would be waited for for good.
            if sys.is_finalizing():
                raise RuntimeError("the program is ending")
            threading.Thread(target=self._work, args=(fetch,), name="headgate-advice", daemon=True).start()
        except RuntimeError as error:
            self._work(fetch, str(error))

    def _work(self, first: _Fetch, failure: str = "") -> None:
        """Finish a fetch, and those that wait, one after the other."""
        fetch: _Fetch | None = first
        while fetch is not None:
            fetch.finish(failure)
            with self._lock:
                fetch = self._waiting.popleft() if self._waiting else None
                if fetch is None:
                    self._running -= 1


def _begin_anew() -> None:
    _Fetches.now = _Fetches()


_begin_anew()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
