"""Fetching origins' traffic advice on behalf of many threads and event loops at once.

`AdviceCache` says when an origin has to be asked. Here are the lock around it and the fetches under way: one for each
origin, so that a hundred first requests make one fetch, and a limited number in all.

A fetch that fails for a reason of this machine is made again after a pause. The origin does not count as unreachable
then, for requests may go to an origin that is unreachable.

A transport passes a `StartFetch`, made by `in_thread` or `in_task` from a function that makes one request with its own
library. The request that causes a fetch may be cancelled or give up; the fetch goes on, since others wait for it too.
"""

import logging
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

import msgspec

from headgate.advice import WellKnownCache
from headgate.advice.cache import REPORT_TIMEOUT, Fetch
from headgate.advice.decision import Advice
from headgate.advice.fetching import NETWORK_ERROR, AdviceRequest, AdviceResponse, too_late
from headgate.agent.wait import in_asyncio
from headgate.http.fields import Pairs, lines_of
from headgate.http.url import resolve
from headgate.throttle.throttle import REDIRECTS

if TYPE_CHECKING:
    import asyncio


Outcome: TypeAlias = AdviceResponse | BaseException
"""What a fetch resulted in. An exception is a failure of this machine: it says nothing of the origin."""

Report: TypeAlias = Callable[[Outcome], None]
"""Takes the outcome, once, in any thread."""

StartFetch: TypeAlias = Callable[[AdviceRequest, Report], object]
"""Starts a fetch and returns the thread or task that runs it, which has to be kept until the report. Only a thread may
take longer than the timeout of a fetch. Raises an exception if it cannot be started; then there is no report."""


def in_thread(fetch: Callable[[AdviceRequest], AdviceResponse]) -> StartFetch:
    """Return what starts `fetch` in a daemon thread, so that no server can keep the program from ending."""

    def start(request: AdviceRequest, report: Report) -> threading.Thread:
        def run() -> None:
            outcome: Outcome
            try:
                outcome = fetch(request)
            except BaseException as error:
                outcome = error
            report(outcome)

        thread = threading.Thread(target=run, name="headgate-advice", daemon=True)
        thread.start()
        return thread

    return start


def in_task(fetch: Callable[[AdviceRequest], Coroutine[Any, Any, AdviceResponse]]) -> StartFetch:
    """Return what starts `fetch` in a task of the event loop that is running: asyncio's, or trio's.

    A task that ends with its event loop reports that as a failure of this machine.
    """

    def start(request: AdviceRequest, report: Report) -> object:
        if in_asyncio():
            import asyncio

            task = asyncio.get_running_loop().create_task(fetch(request))
            # Not in the coroutine: one that is cancelled before its first step never runs.
            task.add_done_callback(lambda task: report(_outcome(task)))
            return task
        import trio

        async def run() -> None:
            outcome: Outcome = _loop_ended()
            try:
                outcome = await fetch(request)
            except Exception as error:
                outcome = error
            finally:
                report(outcome)

        return trio.lowlevel.spawn_system_task(run)

    return start


def _outcome(task: "asyncio.Task[AdviceResponse]") -> Outcome:
    if task.cancelled():
        return _loop_ended()
    return task.exception() or task.result()


def _loop_ended() -> RuntimeError:
    return RuntimeError("the event loop of the fetch has ended")


MAX_FETCHES: Final = 128
"""Fetches that are under way at once, without those that have taken longer than they may."""

MAX_OVERDUE: Final = 1_024
"""Threads of fetches that have taken longer than they may: a blocking client cannot be stopped, and a server that sends
the head of its response byte by byte keeps it for days. With more of them, no fetch is started until some end."""

RETRY_PAUSE: Final = 1.0
"""Seconds until a fetch that failed for a reason of this machine is made again."""

_logger = logging.getLogger("headgate.agent")


class FetchedElsewhere(Exception):
    """Another process fetches at the moment."""


@runtime_checkable
class SharedResponses(Protocol):
    """Where processes share the responses to fetches; a throttle that they share may be one."""

    def claim_response(self, url: str, *, now: float) -> bytes | None:
        """Return a response, empty while another process fetches it; or None, then this process is to fetch it."""

    def keep_response(self, url: str, response: bytes, *, now: float) -> None:
        """Share a response; an empty one ends the claim."""


class PendingAdvice(NamedTuple):
    """Advice that is not known yet."""

    finished: "Future[None]"
    """Done when it is worth asking again."""
    until: float
    """The instant from which it is worth asking again in any case: seconds since 1970."""
    is_under_way: bool
    """Whether it is being fetched; else it may not be fetched before `until`."""
    last: Advice | None
    """The advice before it, which is no longer fresh."""


class _Running:
    """A fetch under way."""

    def __init__(self, fetch: Fetch, start: StartFetch) -> None:
        self.fetch = fetch
        self.start = start
        self.finished: Future[None] = Future()
        self.runner: object = None

    def is_overdue(self, now: float) -> bool:
        """Return whether it has taken longer than a fetch may, or the clock was set back since it was started."""
        return not 0 < self.fetch.give_up - now <= REPORT_TIMEOUT

    @property
    def is_stuck(self) -> bool:
        """Whether its thread still runs, which is all there is to know of a blocking client."""
        return isinstance(self.runner, threading.Thread) and self.runner.is_alive()

    @property
    def is_orphaned(self) -> bool:
        """Whether its event loop was closed before it ended, so that nothing will report it."""
        get_loop = getattr(self.runner, "get_loop", None)
        return get_loop is not None and get_loop().is_closed()

    def finish(self) -> None:
        """End all waits for it."""
        with suppress(InvalidStateError):  # the client was closed
            self.finished.set_result(None)


class AdviceClient:
    """A well-known resource of all origins, such as their traffic advice, fetched when necessary.

    `on_advice` is called with the result of each fetch. `own_fields` returns the agent's own fields for a method and a
    URL; each request for the resource is sent with them. `is_asked_to_sign` returns whether a response to a URL asks
    for a signature, which `own_fields` has from then on. `default` starts the fetches for requests without an HTTP
    client. `clock` returns seconds since 1970. With `shared`, other processes fetch for this one, and it for them.
    """

    def __init__(
        self,
        cache: WellKnownCache,
        *,
        clock: Callable[[], float],
        on_advice: Callable[[Advice], None],
        own_fields: Callable[[str, str], Mapping[str, str]],
        is_asked_to_sign: Callable[[str, int, Pairs], bool],
        default: StartFetch,
        shared: SharedResponses | None = None,
    ) -> None:
        self._shared = shared
        self._cache = cache
        self._clock = clock
        self._on_advice = on_advice
        self._own_fields = own_fields
        self._is_asked_to_sign = is_asked_to_sign
        self._default = default
        self._running: dict[str, _Running] = {}
        self._is_closed = False
        self._lock = threading.Lock()

    def ask(self, origin: str, *, now: float, start: StartFetch | None = None) -> Advice | PendingAdvice:
        """Return the advice of a serialised origin; if it is unknown or ends soon, fetch it, with `start` if given."""
        with self._lock:
            # A thread that reads the clock first may come here second. Its earlier `now` would look as if the clock had
            # been set back, and a fetch that another thread has just started would be started again.
            now = max(now, self._clock())
            running = self._running.get(origin)
            if running is not None and running.is_orphaned:
                del self._running[origin]
                self._cache.abandoned(running.fetch)
            answer = self._cache.ask(origin, now=now)
            fetch = self._cache.refresh(origin, now=now) if isinstance(answer, Advice) else answer
            running = self._running.get(origin)
            if not isinstance(fetch, Fetch):
                if isinstance(answer, Advice):
                    return answer
                assert fetch is not None
                finished = Future() if running is None else running.finished
                return PendingAdvice(finished, fetch.until, running is not None, self._cache.last(origin, now=now))
            if running is not None and running.is_stuck:
                # The origin has had all the time that a fetch has; it is not asked by a second thread.
                return self._cache.received(fetch, NETWORK_ERROR._replace(failure=too_late()), now=now)
            if self._is_closed or self._is_full(now):
                self._cache.abandoned(fetch, retry_at=now + RETRY_PAUSE)
                last = self._cache.last(origin, now=now)
                pending = PendingAdvice(Future(), now + RETRY_PAUSE, is_under_way=False, last=last)
                return answer if isinstance(answer, Advice) else pending
            running = self._running[origin] = _Running(fetch, start or self._default)
            last = self._cache.last(origin, now=now)
        self._start(running, fetch.request)
        if isinstance(answer, Advice):
            return answer
        return PendingAdvice(running.finished, fetch.give_up, is_under_way=True, last=last)

    def known(self, origin: str, *, now: float) -> Advice | None:
        """Return the advice of a serialised origin without a fetch; None if it is not known or no longer fresh."""
        with self._lock:
            return self._cache.known(origin, now=now)

    def close(self) -> None:
        """Start no more fetches, and end all waits for them."""
        with self._lock:
            self._is_closed = True
            running = list(self._running.values())
        for each in running:
            each.finish()

    def before_fork(self) -> None:
        """Keep every thread out of the cache while the process is forked."""
        self._lock.acquire()

    def after_fork(self, *, is_child: bool) -> None:
        """Go on after a fork. Fetches under way belong to the parent; the child starts its own when asked."""
        if not is_child:
            self._lock.release()
            return
        self._lock = threading.Lock()  # the fork may not have been Python's, and then nothing took it
        for running in self._running.values():
            self._cache.abandoned(running.fetch)
        self._running.clear()

    def _is_full(self, now: float) -> bool:
        """Return whether no further fetch may be started."""
        if len(self._running) < MAX_FETCHES:
            return False
        overdue = [running for running in self._running.values() if running.is_overdue(now)]
        stuck = [running for running in overdue if running.is_stuck]
        for running in overdue:
            if not running.is_stuck:  # its event loop was stopped, and nothing will report it
                del self._running[running.fetch.origin]
        return len(self._running) - len(stuck) >= MAX_FETCHES or len(stuck) >= MAX_OVERDUE

    def _start(self, running: _Running, request: AdviceRequest) -> None:
        try:
            found = None if self._shared is None else self._shared.claim_response(request.url, now=self._clock())
            if found is None:
                fields = {**dict(request.fields), **self._own_fields("GET", request.url)}
                sent = msgspec.structs.replace(request, fields=tuple(fields.items()))
                report = partial(self._share, running, request, is_unsigned="Signature" not in fields)
                running.runner = running.start(sent, report)
            else:
                response = msgspec.msgpack.decode(found, type=AdviceResponse) if found else FetchedElsewhere()
                self._receive(running, request, response)
        except Exception as error:  # such as that no thread can be started
            self._report(running, error)

    def _share(self, running: _Running, request: AdviceRequest, outcome: Outcome, *, is_unsigned: bool) -> None:
        """Share the outcome, unless it says something to this process only; then use it, or fetch with a signature."""
        answer = outcome if isinstance(outcome, AdviceResponse) else NETWORK_ERROR
        must_sign = is_unsigned and self._is_asked_to_sign(request.url, answer.status, answer.fields)
        if self._shared is not None:
            is_shared = outcome is answer and answer.status != 304 and not must_sign
            response = msgspec.msgpack.encode(answer) if is_shared else b""
            self._shared.keep_response(request.url, response, now=self._clock())
        if must_sign:
            self._start(running, request)
        else:
            self._receive(running, request, outcome)

    def _receive(self, running: _Running, request: AdviceRequest, outcome: Outcome) -> None:
        """Follow a redirect if the request does; otherwise report the outcome."""
        target = None
        if isinstance(outcome, AdviceResponse) and outcome.status in REDIRECTS and request.redirects > 0:
            target = resolve(next(iter(lines_of(outcome.fields, "location")), ""), request.url)
        if target is None or not target.startswith(("http://", "https://")) or running.is_overdue(self._clock()):
            self._report(running, outcome)
        else:
            self._start(running, msgspec.structs.replace(request, url=target, redirects=request.redirects - 1))

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
                level = logging.DEBUG if isinstance(outcome, FetchedElsewhere) else logging.WARNING
                _logger.log(level, "the traffic advice of %s was not fetched: %r", running.fetch.origin, outcome)
            else:
                self._on_advice(advice)
        finally:
            running.finish()
