"""WSGI middleware: rules and the concurrency limit in front of an application, one thread per request.

A gatekeeper does not lock, so every admission happens under a lock here. By default, a request that comes too early is
rejected: to delay it would occupy its worker thread, and WSGI does not report that its client has left.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from headgate.errors import check_seconds
from headgate.limit import DelayUntil, Gatekeeper
from headgate.limit.concurrency import ConcurrencySettings
from headgate.origin.admission import Admission, DomainBy, IdentifyBy, PriorityBy, RequestAdapter
from headgate.origin.request_info import RequestInfo
from headgate.origin.response import Rejections
from headgate.origin.wsgi_concurrency import WsgiConcurrency, accept_of, fit_threads, raw, send_response
from headgate.release import Status

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

    from headgate.origin.agents import AgentVerifier

__all__ = ["GatekeeperMiddleware"]

_CONTENT = frozenset({"CONTENT_TYPE", "CONTENT_LENGTH"})
"""The fields without `HTTP_` (PEP 3333), empty when absent. With it, another one was sent, such as `Content_Type`."""


class GatekeeperMiddleware:
    """Passes a request to `app` when the gatekeeper allows it, and the concurrency limit has a permit for it.

    The arguments are those of the ASGI middleware, with the environ in place of the scope; callables run outside the
    lock, in any worker thread. `lock` guards the gatekeeper: give the same one to every middleware that uses the same
    gatekeeper. A link that works from a thread of its own is attached to the middleware, whose `obey` takes the lock.

    A request is delayed for at most `max_delay` seconds, and at most the gatekeeper's: by default 0, since a delayed
    request sleeps in its worker thread, and a client that exceeds its rule could occupy all of them. With more, choose
    the gatekeeper's `max_delayed` below the number of threads. With `concurrency`, the settings of a limit, `threads`
    is the number of threads of the server: at most so many requests are in flight or wait that one thread is left for
    rejections. Raises `ConfigurationError` for a `max_delay` that is not a number of seconds.
    """

    def __init__(
        self,
        app: "WSGIApplication",
        *,
        gatekeeper: Gatekeeper | None = None,
        identify: "IdentifyBy[WSGIEnvironment]" = "client-address",
        domain: "DomainBy[WSGIEnvironment] | None" = None,
        rejections: Rejections | None = None,
        lock: "threading.Lock | None" = None,
        concurrency: ConcurrencySettings | None = None,
        priority: "PriorityBy[WSGIEnvironment] | None" = None,
        threads: int | None = None,
        max_delay: float = 0.0,
        agents: "AgentVerifier | None" = None,
    ) -> None:
        check_seconds("max_delay", max_delay)
        self.app = app
        self._max_delay = max_delay
        self._lock = lock or threading.Lock()
        self._admission = Admission(
            RequestAdapter(peer=_peer, field=_field, info=_info),
            gatekeeper=gatekeeper,
            identify=identify,
            domain=domain,
            rejections=rejections,
            concurrency=concurrency if concurrency is None else fit_threads(concurrency, threads),
            priority=priority,
            agents=agents,
        )
        self.concurrency = None if self._admission.limit is None else WsgiConcurrency(app, self._admission)
        """The requests in flight, with the `state` of their limit; None without a limit."""

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        """Serve one request; sleeps here while it is delayed, or waits for a permit."""
        admission = self._admission
        limited = None if admission.gatekeeper is None else admission.classify(environ)
        if limited is not None:
            with self._lock:
                accounting = admission.admit(limited, now=time.time(), max_delay=self._max_delay)
            if accounting.status is Status.REJECTED:
                response = admission.rejections(accounting, now=accounting.received, accept=accept_of(environ))
                return send_response(response, environ, start_response)
            if accounting.status is Status.DELAYED:
                time.sleep(accounting.wait)
        if self.concurrency is None:
            return self.app(environ, start_response)
        return self.concurrency.serve(environ, start_response, limited)

    def obey(self, control: DelayUntil, *, now: float | None = None) -> None:
        """Pass a control to the gatekeeper, from any thread; a link that has its own thread is attached to this."""
        if self._admission.gatekeeper is not None:
            with self._lock:
                self._admission.gatekeeper.obey(control, now=now)


def _peer(environ: "WSGIEnvironment") -> str:
    return str(environ.get("REMOTE_ADDR") or "")


def _field(name: bytes) -> "Callable[[WSGIEnvironment], bytes | None]":
    variable = name.decode("latin-1").upper().replace("-", "_")
    variable = variable if variable in _CONTENT else "HTTP_" + variable

    def read(environ: "WSGIEnvironment") -> bytes | None:
        value = environ.get(variable)
        # Servers join the lines of a repeated field with a comma, so a value with a comma may be of several lines.
        return None if not value or "," in value else raw(value)

    return read


def _info(environ: "WSGIEnvironment") -> RequestInfo:
    return RequestInfo(
        method=raw(environ["REQUEST_METHOD"]),
        # A path that the server has decoded must not be decoded a second time.
        path=raw(environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")).replace(b"%", b"%25"),
        host=raw(environ.get("HTTP_HOST", "")),
        fields=[
            (raw(name.removeprefix("HTTP_").replace("_", "-").lower()), raw(value))
            for name, value in environ.items()
            if (value if name in _CONTENT else name.startswith("HTTP_") and name[5:] not in _CONTENT)
        ],
        peer=_peer(environ),
        query=raw(environ.get("QUERY_STRING", "")),
    )
