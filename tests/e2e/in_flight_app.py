"""Applications behind a concurrency limit of 3: `asgi`, and `wsgi` for a server of 8 threads.

A request of /work takes a tenth of a second, of /hang until /release is requested. /state and /release need no permit;
/state tells how many requests the application works on, and how many at most so far, beside the state of the limit.
"""

import asyncio
import json
import threading
import time
from typing import TYPE_CHECKING, Any

from headgate.limit import ConcurrencyLimit, ConcurrencySettings
from headgate.origin.asgi import GatekeeperMiddleware
from headgate.origin.wsgi import GatekeeperMiddleware as WsgiMiddleware

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

EXEMPT = ("/state", "/release")
SETTINGS = ConcurrencySettings(max=3, queue=4)
WORK = 0.1
limit = ConcurrencyLimit(SETTINGS, lambda: 0.5)
guard = threading.Lock()
counts = {"working": 0, "most": 0, "worked": 0}
released = threading.Event()
released_async = asyncio.Event()


def begin() -> None:
    """Count a request that the application works on."""
    with guard:
        counts["working"] += 1
        counts["most"] = max(counts["most"], counts["working"])


def end() -> None:
    """Count its end."""
    with guard:
        counts["working"] -= 1
        counts["worked"] += 1


def content(in_flight: int, queued: int) -> bytes:
    """Write the response to /state."""
    return json.dumps({**counts, "in_flight": in_flight, "queued": queued}).encode()


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """Serve one request of the ASGI application."""
    if scope["type"] != "http":
        return
    if scope["path"] not in EXEMPT:
        begin()
        try:
            await (released_async.wait() if scope["path"] == "/hang" else asyncio.sleep(WORK))
        finally:
            end()
    elif scope["path"] == "/release":
        released_async.set()
    body = content(limit.state.in_flight, limit.state.queued)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": body})


def answer_wsgi(environ: "WSGIEnvironment", start_response: "StartResponse") -> list[bytes]:
    """Serve one request of the WSGI application."""
    path = environ["PATH_INFO"]
    if path not in EXEMPT:
        begin()
        try:
            if path == "/hang":
                released.wait(20)
            else:
                time.sleep(WORK)
        finally:
            end()
    elif path == "/release":
        released.set()
    assert wsgi.concurrency is not None
    state = wsgi.concurrency.state
    start_response("200 OK", [("Content-Type", "application/json")])
    return [content(state.in_flight, state.queued)]


asgi = GatekeeperMiddleware(
    answer, concurrency=limit, priority=lambda scope: None if scope["path"] in EXEMPT else "people"
)
wsgi = WsgiMiddleware(
    answer_wsgi,
    concurrency=SETTINGS,
    threads=8,
    priority=lambda environ: None if environ["PATH_INFO"] in EXEMPT else "people",
)
