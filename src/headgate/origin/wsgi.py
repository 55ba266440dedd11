"""WSGI middleware: the gatekeeper in front of an application, one thread per request.

A gatekeeper does not lock, so every admission happens under a lock here. A delayed request sleeps in its worker thread;
WSGI does not report that its client has left.
"""

import threading
import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING

from headgate.limit import Accounting, DelayUntil, Gatekeeper
from headgate.origin.admission import (
    FORGET_INTERVAL,
    RequestAdapter,
    check_domain,
    check_rejections,
    forget,
    make_classifier,
)
from headgate.origin.identify import Identify
from headgate.origin.request_info import RequestInfo
from headgate.origin.response import Rejections, Response
from headgate.origin.routes import Routes
from headgate.release import Status

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

__all__ = ["GatekeeperMiddleware"]


class GatekeeperMiddleware:
    """Passes a request to `app` when the gatekeeper allows it.

    The arguments are those of the ASGI middleware, with the environ in place of the scope; callables run outside the
    lock, in any worker thread. `lock` guards the gatekeeper: give the same one to every middleware that uses the same
    gatekeeper. A link that works from a thread of its own is attached to the middleware, whose `obey` takes the lock.

    A delayed request occupies a worker thread for up to the gatekeeper's `max_delay`: choose `max_delayed` below the
    number of threads, so that some are left for accepted requests.
    """

    def __init__(
        self,
        app: "WSGIApplication",
        *,
        gatekeeper: Gatekeeper,
        identify: "Identify | Callable[[WSGIEnvironment], bytes | str | None] | str" = "client-address",
        domain: "Routes | Callable[[WSGIEnvironment], str | None] | str | None" = None,
        rejections: Rejections | None = None,
        lock: "threading.Lock | None" = None,
    ) -> None:
        self.app = app
        self._gatekeeper = gatekeeper
        adapter = RequestAdapter(peer=_peer, field=_field, info=_info)
        self._classify = make_classifier(identify, check_domain(domain, gatekeeper), adapter)
        self._rejections = check_rejections(rejections, gatekeeper)
        self._lock = lock or threading.Lock()
        self._forget_at = 0.0

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        """Serve one request; sleeps here while it is delayed."""
        limited = self._classify(environ)
        if limited is None:
            return self.app(environ, start_response)
        domain, identifier = limited
        accounting = self._admit(domain, identifier, time.time())
        if accounting.status is Status.ACCEPTED:
            return self.app(environ, start_response)
        if accounting.status is Status.DELAYED:
            time.sleep(accounting.wait)
            return self.app(environ, start_response)
        accept = environ.get("HTTP_ACCEPT")
        response = self._rejections(
            accounting, now=accounting.received, accept=None if accept is None else _raw(accept)
        )
        return _reject(response, environ, start_response)

    def obey(self, control: DelayUntil, *, now: float | None = None) -> None:
        """Pass a control to the gatekeeper, from any thread; a link that has its own thread is attached to this."""
        with self._lock:
            self._gatekeeper.obey(control, now=now)

    def _admit(self, domain: str, identifier: bytes, now: float) -> Accounting:
        with self._lock:
            accounting = self._gatekeeper.admit(domain, identifier, now=now)
            if not now < self._forget_at <= now + FORGET_INTERVAL:  # also when the clock was set back
                self._forget_at = now + FORGET_INTERVAL
                forget(self._gatekeeper, now=now)
        return accounting


def _reject(response: Response, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
    fields = [(name.decode("latin-1").title(), value.decode("latin-1")) for name, value in response.fields]
    start_response(f"{response.status} {HTTPStatus(response.status).phrase}", fields)
    # RFC 9110, section 9.3.2: HEAD has the fields of GET, its length included, and no content.
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [response.body]


def _peer(environ: "WSGIEnvironment") -> str:
    return str(environ.get("REMOTE_ADDR") or "")


def _field(name: bytes) -> "Callable[[WSGIEnvironment], bytes | None]":
    variable = "HTTP_" + name.decode("latin-1").upper().replace("-", "_")

    def read(environ: "WSGIEnvironment") -> bytes | None:
        value = environ.get(variable)
        # Servers join the lines of a repeated field with a comma, so a value with a comma may be of several lines.
        return None if value is None or "," in value else _raw(value)

    return read


def _info(environ: "WSGIEnvironment") -> RequestInfo:
    return RequestInfo(
        method=_raw(environ["REQUEST_METHOD"]),
        # A path that the server has decoded must not be decoded a second time.
        path=_raw(environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")).replace(b"%", b"%25"),
        host=_raw(environ.get("HTTP_HOST", "")),
        fields=[
            (_raw(name[5:].replace("_", "-").lower()), _raw(value))
            for name, value in environ.items()
            if name.startswith("HTTP_")
        ],
        peer=_peer(environ),
    )


def _raw(text: str) -> bytes:
    """Return the bytes that the server read: in an environ each character stands for one (PEP 3333)."""
    return text.encode("latin-1", "replace")
