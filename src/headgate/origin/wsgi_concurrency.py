"""The concurrency limit in front of a WSGI application, one thread per request.

A request is in flight until the content that the application has returned is closed; a list or a file of the server is
complete as soon as it is returned. The limit does not lock, so each of its calls happens under a lock here; a waiting
request blocks its thread. A learned limit learns from requests without a body: others may take as long as their client.
"""

import logging
import threading
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headgate.errors import ConfigurationError, fail_if
from headgate.limit.concurrency import ConcurrencySettings, ConcurrencyState
from headgate.origin.admission import Admission, Limited
from headgate.origin.permits import ConcurrencyWatch, Permit, Permits, QueuedRequest
from headgate.origin.response import Response

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_MIN_THREADS: Final = 2
_WAKE_INTERVAL: Final = 0.1
"""Seconds between two looks of a waiting thread at whether the limit wants to be called."""
_MIN_TIMEOUT: Final = 0.001
_WHOLE: Final = (list, tuple)
_logger: Final = logging.getLogger("headgate.origin")


def fit_threads(settings: ConcurrencySettings, threads: int | None) -> ConcurrencySettings:
    """Return settings for a server of so many threads, with one left that refuses while the others work or wait.

    The queue, and the ceiling of a learned limit, become smaller. Raises `ConfigurationError` for a number of threads
    with which the limit would never act.
    """
    fail_if(
        not isinstance(settings, ConcurrencySettings),
        f"concurrency must be ConcurrencySettings, such as ConcurrencySettings(max=8), got {settings!r:.80}",
    )
    if not isinstance(threads, int) or threads < _MIN_THREADS:
        raise ConfigurationError(
            f"threads must be the number of threads of the server, {_MIN_THREADS} or more, since a waiting request "
            f"occupies one; got {threads!r:.80}"
        )
    if settings.max == "learned":
        queue = min(settings.queue, threads // 4)
        ceiling = min(settings.ceiling, threads - 1 - queue)
        return msgspec.structs.replace(settings, queue=queue, ceiling=ceiling)
    fail_if(
        settings.max >= threads,
        f"max must be below the number of threads ({threads}), got {settings.max}: no request would be refused",
    )
    return msgspec.structs.replace(settings, queue=min(settings.queue, threads - 1 - settings.max))


class WsgiConcurrency:
    """Passes requests to `app` as its limit allows: at once, from the queue, or not at all."""

    def __init__(self, app: "WSGIApplication", admission: "Admission[WSGIEnvironment]") -> None:
        assert admission.limit is not None
        self._app = app
        self._admission = admission
        self._lock = threading.Lock()
        self._permits = Permits(admission.limit)
        self._watch = ConcurrencyWatch(_logger.warning)

    @property
    def state(self) -> ConcurrencyState:
        """What the limit is and does now."""
        with self._lock:
            return self._permits.limit.state

    def serve(
        self, environ: "WSGIEnvironment", start_response: "StartResponse", limited: Limited | None
    ) -> Iterable[bytes]:
        """Serve a request, whose domain and identifier may be known; waits here while it is in the queue."""
        priority = self._admission.priority_of(environ, limited)
        if priority is None:
            return self._app(environ, start_response)
        with self._lock:
            permit = self._permits.take()
        if permit is None:
            flow = limited[1] if limited is not None else self._admission.identifier_of(environ) or b""
            woken = threading.Lock()
            request = QueuedRequest(priority, flow, self._permits.clock(), woken.release)
            permit = self._wait(request, woken)
            if permit is None:
                response = self._admission.refusals(request.retry_after, accept=accept_of(environ))
                return send_response(response, environ, start_response)
        if permit.started >= self._watch.due:
            self._watch.look(self.state, now=permit.started)
        exchange = _Exchange(permit, self._lock, start_response)
        exchange.measured = environ.get("CONTENT_LENGTH") in (None, "", "0") and "HTTP_TRANSFER_ENCODING" not in environ
        try:
            content = exchange.content = self._app(environ, exchange.start_response)
        except BaseException as error:
            exchange.release(answered=isinstance(error, Exception))  # by the server, with 500
            raise
        if type(content) in _WHOLE or _is_file(content, environ):
            # Nothing is left for the application to do, and the server knows what to do with content of these types.
            exchange.release(answered=True)
            return content
        return exchange

    def _wait(self, request: QueuedRequest, woken: threading.Lock) -> Permit | None:
        """Wait for the decision on a request, which releases `woken`; each wait of its thread has a limit."""
        woken.acquire()
        try:
            with self._lock:
                self._permits.queue(request)
            while not request.is_decided:
                timeout = min(self._permits.limit.wakeup - self._permits.clock(), _WAKE_INTERVAL)
                if not woken.acquire(timeout=max(_MIN_TIMEOUT, timeout)):
                    with self._lock:
                        self._permits.wake()
        except BaseException:
            with self._lock:
                self._permits.leave(request)
            raise
        return request.permit


class _Exchange:
    """A request in flight, and the content of its response."""

    def __init__(self, permit: Permit, lock: threading.Lock, start_response: "StartResponse") -> None:
        self._permit = permit
        self._lock = lock
        self._start_response = start_response
        self.measured = True
        """Whether the time to the response is that of the application alone."""
        self.content: Iterable[bytes] = ()

    def start_response(self, status: str, fields: list[tuple[str, str]], *more: Any) -> Any:
        """Pass the head of the response to the server."""
        if self.measured:
            with self._lock:
                self._permit.responded()
        return self._start_response(status, fields, *more)

    def release(self, *, answered: bool) -> None:
        """End the exchange."""
        with self._lock:
            self._permit.release(measured=answered and self.measured)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.content)

    def close(self) -> None:
        """Close the content: the server has sent it, or its client has left."""
        try:
            close = getattr(self.content, "close", None)
            if close is not None:
                close()
        finally:
            self.release(answered=False)


def _is_file(content: object, environ: "WSGIEnvironment") -> bool:
    wrapper = environ.get("wsgi.file_wrapper")  # a function in uWSGI, a class elsewhere
    return isinstance(wrapper, type) and isinstance(content, wrapper)


def raw(text: str) -> bytes:
    """Return the bytes that the server read: in an environ each character stands for one (PEP 3333)."""
    return text.encode("latin-1", "replace")


def accept_of(environ: "WSGIEnvironment") -> bytes | None:
    """Return the value of Accept."""
    return raw(environ["HTTP_ACCEPT"]) if "HTTP_ACCEPT" in environ else None


def send_response(response: Response, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
    """Send a response of the middleware."""
    fields = [(name.decode("latin-1").title(), value.decode("latin-1")) for name, value in response.fields]
    start_response(f"{response.status} {HTTPStatus(response.status).phrase}", fields)
    # RFC 9110, section 9.3.2: HEAD has the fields of GET, its length included, and no content.
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [response.body]
