"""The concurrency limit in front of a WSGI application, one thread per request.

A request is in flight until the content that the application has returned is closed, or its response has become a
stream. Its place does not wait for its client: it is lent to others while the application waits for the body of the
request. The limit does not lock, so each of its calls happens under a lock here; a waiting request blocks its thread.
"""

import logging
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headgate.errors import ConfigurationError
from headgate.limit.concurrency import (
    PRIORITIES,
    ConcurrencyLimit,
    ConcurrencySettings,
    ConcurrencyState,
    Decision,
    Outcome,
    Priority,
    Waiting,
)
from headgate.limit.concurrency.long_refusals import DAY
from headgate.origin.concurrency import CLIENT_PATIENCE, LOOK_INTERVAL, RequestClasses, outcome_of
from headgate.origin.concurrency_watch import ConcurrencyWatch
from headgate.origin.refusal import Refusals
from headgate.origin.response import Response
from headgate.release import NEVER

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_MIN_THREADS: Final = 2
_WAKE_INTERVAL: Final = 0.1
"""Seconds between two looks of a waiting thread at whether the limit wants to be called."""
_MIN_TIMEOUT: Final = 0.001
_MORE_READS: Final = ("read1", "readinto", "readinto1")
"""Methods that return the bytes that were read, or their number, and that some servers' streams have."""
_WHOLE: Final = (list, tuple)
_ANSWERED: Final = Outcome.ANSWERED  # a lookup in an Enum is slow
_logger = logging.getLogger("headgate.origin")


def fit_threads(settings: ConcurrencySettings, threads: int | None) -> ConcurrencySettings:
    """Return settings for a server of so many threads, with one left that refuses while the others work or wait.

    The queue, and the ceiling of a learned limit, become smaller. Raises `ConfigurationError` for a number of threads
    with which the limit would never act.
    """
    if not isinstance(settings, ConcurrencySettings):
        raise ConfigurationError(
            f"concurrency must be ConcurrencySettings, such as ConcurrencySettings(max=8), got {settings!r:.80}"
        )
    if not isinstance(threads, int) or threads < _MIN_THREADS:
        raise ConfigurationError(
            f"threads must be the number of threads of the server, {_MIN_THREADS} or more, since a waiting request "
            f"occupies one; got {threads!r:.80}"
        )
    if settings.max == "learned":
        queue = min(settings.queue, threads // 4)
        ceiling = min(settings.ceiling, threads - 1 - queue)
        return msgspec.structs.replace(settings, queue=queue, ceiling=ceiling, floor=min(settings.floor, ceiling))
    if settings.max >= threads:
        raise ConfigurationError(
            f"max must be below the number of threads ({threads}), got {settings.max}: no request would be refused"
        )
    return msgspec.structs.replace(settings, queue=min(settings.queue, threads - 1 - settings.max))


class WsgiConcurrency:
    """Passes requests to `app` as its limit allows: at once, from the queue, or not at all."""

    def __init__(
        self,
        app: "WSGIApplication",
        limit: ConcurrencyLimit,
        classes: "RequestClasses[WSGIEnvironment]",
        status: int,
    ) -> None:
        self._app = app
        self._limit = limit
        self._classes = classes
        self._only = classes.only
        self._refusals = Refusals(status=status)
        self._lock = threading.Lock()
        self._places: set[_Place] = set()  # those of the requests in flight
        self._lines: list[str] = []
        self._admitted = dict.fromkeys(PRIORITIES, 0)
        self._watch = ConcurrencyWatch(self._lines.append, warn_after=DAY)
        self._look_at = 0.0

    @property
    def state(self) -> ConcurrencyState:
        """What the limit is and does now."""
        with self._lock:
            return self._limit.state

    @property
    def refused_for(self) -> Mapping[Priority, float]:
        """For how many seconds most requests of each class have been refused."""
        with self._lock:
            return self._watch.refused_for(monotonic())

    def serve(
        self, environ: "WSGIEnvironment", start_response: "StartResponse", limited: tuple[str, bytes] | None
    ) -> Iterable[bytes]:
        """Serve a request, whose domain and identifier may be known; waits here while it is in the queue."""
        domain, priority = self._only or self._classes.of(environ, limited)
        if priority is None:
            return self._app(environ, start_response)
        now = monotonic()
        place = _Place(self, start_response, domain, now)
        if environ.get("CONTENT_LENGTH") or environ.get("HTTP_TRANSFER_ENCODING"):
            environ["wsgi.input"] = _RequestBody(place, environ)
        if now >= self._look_at:
            self._look(now)
        with self._lock:
            self._admitted[priority] += 1
            if starts := self._limit.start(now=now):
                self._places.add(place)
        if not starts:
            flow = limited[1] if limited is not None else self._classes.identifier_of(environ) or b""
            decision = self._wait(_Request(domain, priority, flow, now))
            if not decision.starts:
                accept = environ.get("HTTP_ACCEPT")
                response = self._refusals(
                    decision.retry_after, accept=None if accept is None else accept.encode("latin-1", "replace")
                )
                return send_response(response, environ, start_response)
            place.started = monotonic()
            with self._lock:
                self._places.add(place)
        try:
            content = place.content = self._app(environ, place.start_response)
        except BaseException as error:
            self.give_back(place, outcome_of(error))
            raise
        if type(content) in _WHOLE or _is_file(content, environ):
            # Nothing is left for the application to do, and the server knows what to do with content of these types.
            self.give_back(place, _ANSWERED)
            return content
        return place

    def _wait(self, request: "_Request") -> Decision:
        """Wait for the decision on a request; each wait of its thread has a limit."""
        try:
            self._call(lambda now: self._limit.queue(request, now=now))
            while request.decision is None:
                now = monotonic()
                request.woken.acquire(timeout=max(_MIN_TIMEOUT, min(self._limit.wakeup - now, _WAKE_INTERVAL)))
                if request.decision is None:
                    self._call(lambda now: self._limit.awake(now=now) if now >= self._limit.wakeup else ())
        except BaseException:
            self._leave(request)
            raise
        return request.decision

    def _leave(self, request: "_Request") -> None:
        """Give back what a request has that will not reach the application."""
        if request.decision is None:
            self._call(lambda now: self._limit.leave(request, now=now))
        elif request.decision.starts:
            self._call(lambda now: self._limit.end(request.domain, 0.0, Outcome.UNKNOWN, now=now))

    def give_back(self, place: "_Place", outcome: Outcome) -> None:
        """Give back the place of a request, if that has not been done."""
        with self._lock:
            now = monotonic()
            if place in self._places:
                self._end(place, outcome, now)
            place.is_lent = False

    def _end(self, place: "_Place", outcome: Outcome, now: float) -> None:
        self._places.remove(place)
        latency = place.latency
        if latency is None:
            latency = now - place.started
        else:
            outcome = _ANSWERED
        if decisions := self._limit.end(place.domain, latency, outcome, now=now):
            self._carry_out(decisions)

    def _lend(self, place: "_Place", now: float) -> None:
        """Free the place of a request whose application waits for its body, for now."""
        self._places.remove(place)
        place.is_lent = True
        self._carry_out(self._limit.end(place.domain, 0.0, Outcome.UNKNOWN, now=now))

    def body_complete(self, place: "_Place") -> None:
        """The body of a request is complete; if its place was lent, it is in flight again, whatever the limit is."""
        with self._lock:
            place.reads_since = NEVER
            if place.is_lent:
                place.is_lent = False
                self._places.add(place)
                self._limit.enter(now=monotonic())

    def _call(self, action: Callable[[float], Iterable[Decision]]) -> None:
        """Carry out the decisions of an action of the limit."""
        with self._lock:
            now = monotonic()
            self._carry_out(action(now))
        if now >= self._look_at:
            self._look(now)

    def _carry_out(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            request = decision.request
            assert isinstance(request, _Request)
            request.decision = decision
            request.woken.release()

    def _look(self, now: float) -> None:
        """Give back the places of streams, and write the log."""
        with self._lock:
            self._look_at = now + LOOK_INTERVAL
            begun = [place for place in self._places if place.begun_at <= now - CLIENT_PATIENCE]
            for place in begun:
                if place.content is not None:
                    self._end(place, _ANSWERED, now)
            for place in [place for place in self._places if place.reads_since <= now - CLIENT_PATIENCE]:
                self._lend(place, now)
            self._watch.look(self._limit.state, self._admitted, now=now)
            lines, self._lines[:] = self._lines.copy(), ()
        for line in lines:  # writing may take long
            _logger.warning(line)


class _Request(Waiting):
    """A request that waits for the decision of the limit."""

    __slots__ = ("decision", "woken")

    def __init__(self, domain: str, priority: Priority, flow: bytes, since: float) -> None:
        super().__init__(domain, priority, flow, since)
        self.decision: Decision | None = None
        self.woken = threading.Lock()
        """Held until the decision."""
        self.woken.acquire()


class _Place(msgspec.Struct, eq=False):
    """The place of a request in flight, and the content of its response."""

    owner: WsgiConcurrency
    server_start_response: "StartResponse"
    domain: str
    started: float
    """The instant at which the application was called, later by what it has waited for the request body."""
    latency: float | None = None
    """Seconds from its start to the head of its response; None before that."""
    begun_at: float = NEVER
    """The instant of the head of its response."""
    content: Iterable[bytes] | None = None
    """What the application has returned; None before that."""
    reads_since: float = NEVER
    """Since when the application has read the request body, if that is not complete."""
    is_lent: bool = False
    """Whether the rest of the request body is awaited, and another request may be in flight meanwhile."""

    def start_response(self, status: str, fields: list[tuple[str, str]], *more: Any) -> Any:
        """Pass the head of the response to the server."""
        if self.latency is None:
            self.begun_at = now = monotonic()
            self.latency = now - self.started
            for name, value in fields:
                if name.lower() == "content-type":
                    if value.startswith("text/event-stream"):
                        self.owner.give_back(self, _ANSWERED)
                    break
        return self.server_start_response(status, fields, *more)

    def __iter__(self) -> Iterator[bytes]:
        assert self.content is not None
        return iter(self.content)

    def close(self) -> None:
        """Close the content: the server has sent it, or its client has left."""
        try:
            close = getattr(self.content, "close", None)
            if close is not None:
                close()
        finally:
            self.owner.give_back(self, Outcome.UNKNOWN)


class _RequestBody:
    """The body of a request: tells its place how long the application waits for it, and when it is complete."""

    def __init__(self, place: _Place, environ: "WSGIEnvironment") -> None:
        self._place = place
        self._stream = environ["wsgi.input"]
        length = str(environ.get("CONTENT_LENGTH", ""))
        self._left = int(length) if length.isdecimal() else math.inf  # bytes
        self._is_complete = False

    def read(self, *size: int | None) -> bytes:
        """Read some bytes, or all."""
        data: bytes = self._read(self._stream.read, *size)
        if not size or size[0] is None or size[0] < 0:
            self._complete()
        return data

    def readline(self, *size: int | None) -> bytes:
        """Read a line, or some bytes of it."""
        line: bytes = self._read(self._stream.readline, *size)
        return line

    def readlines(self, hint: int | None = -1) -> list[bytes]:
        """Read all lines, or until they have as many bytes as `hint`."""
        lines, size = [], 0
        for line in self:
            lines.append(line)
            size += len(line)
            if 0 < (hint or 0) <= size:
                break
        return lines

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if line := self.readline():
            return line
        raise StopIteration

    def __getattr__(self, name: str) -> Any:
        """Return what the stream of the server has beyond PEP 3333; Werkzeug uses `readinto` if there is one."""
        found = getattr(self._stream, name)
        return partial(self._read, found) if name in _MORE_READS else found

    def _read(self, read: Callable[..., Any], *size: Any) -> Any:
        place, now = self._place, monotonic()
        if place.reads_since == NEVER and not self._is_complete:
            place.reads_since = now
        try:
            data = read(*size)
        except BaseException:
            self._complete()  # the application may go on without the rest
            raise
        finally:
            if place.latency is None:
                place.started += monotonic() - now
        number = data if isinstance(data, int) else len(data)
        self._left -= number
        if self._left <= 0 or (not number and size != (0,)):
            self._complete()
        return data

    def _complete(self) -> None:
        if not self._is_complete:
            self._is_complete = True
            self._place.owner.body_complete(self._place)


def _is_file(content: object, environ: "WSGIEnvironment") -> bool:
    wrapper = environ.get("wsgi.file_wrapper")  # a function in uWSGI, a class elsewhere
    return isinstance(wrapper, type) and isinstance(content, wrapper)


def send_response(response: Response, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
    """Send a response of the middleware."""
    fields = [(name.decode("latin-1").title(), value.decode("latin-1")) for name, value in response.fields]
    start_response(f"{response.status} {HTTPStatus(response.status).phrase}", fields)
    # RFC 9110, section 9.3.2: HEAD has the fields of GET, its length included, and no content.
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [response.body]
