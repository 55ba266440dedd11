"""The processes of `bench.bench_middleware`: two applications, bare and limited, two that reject, and the master.

`uvicorn --factory bench.middleware_app:starlette` serves a Starlette application of one route, and `…:raw` the cheapest
application there is, written against ASGI itself; both answer the same. `…:limited_starlette` and `…:limited_raw` are
the same behind the middleware.
`…:rejecting` is `raw` behind a middleware that rejects nearly every request, and `…:rejecting_with_limits` does the
same with the library `limits`. `python -m bench.middleware_app ADDRESS` is the master; each line on its standard input
makes it print how many messages it has accounted, as JSON.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from limits import RateLimitItemPerHour
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headgate.limit import Domain, Gatekeeper, Master, Rule
from headgate.link import GatekeeperLink, MasterLink
from headgate.origin.asgi import GatekeeperMiddleware
from headgate.origin.asgi_concurrency import App, Scope, Send
from headgate.origin.read_ahead import Receive

if TYPE_CHECKING:
    pass

ADDRESS = "HEADGATE_BENCH_MASTER"
"""The environment variable with the master's address, for the limited application."""

DOMAIN = Domain("default", (Rule.parse("1000/s burst 2000"),))
"""A rule that is worked out for every request and holds none of the 1000 identifiers of the load."""

BODY = b"x" * 130 + b"\n"
START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(BODY))],
}


Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def nothing(_app: Any) -> AsyncIterator[None]:
    """Neither start nor stop anything."""
    yield


def raw(lifespan: Lifespan = nothing) -> App:
    """Make the application written against ASGI itself."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await send(START)
            await send({"type": "http.response.body", "body": BODY})
            return
        await receive()
        async with lifespan(app):
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    return app


def starlette(lifespan: Lifespan = nothing) -> App:
    """Make the application of one route."""

    async def text(_request: Request) -> Response:
        return Response(BODY, media_type="text/plain")

    return Starlette(routes=[Route("/shop/item/{item}/details", text)], lifespan=lifespan)


def limited(make: Callable[[Lifespan], App]) -> App:
    """Make an application behind the middleware, its gatekeeper on the bus to a master in another process."""
    link = GatekeeperLink(os.environ[ADDRESS], [DOMAIN.name])
    gatekeeper = Gatekeeper(link.account)
    link.attach(gatekeeper)

    @asynccontextmanager
    async def lifespan(_app: Any) -> AsyncIterator[None]:
        link.start(asyncio.get_running_loop())
        yield
        link.close()

    return GatekeeperMiddleware(make(lifespan), gatekeeper=gatekeeper, identify="header:X-Api-Key")


def limited_raw() -> App:
    """Make `raw` behind the middleware."""
    return limited(raw)


def limited_starlette() -> App:
    """Make `starlette` behind the middleware."""
    return limited(starlette)


def rejecting() -> App:
    """Make `raw` behind the middleware, with a rule that lets one request an hour through."""
    gatekeeper = Gatekeeper.embedded([Domain("default", (Rule.parse("1/h burst 1"),))])
    return GatekeeperMiddleware(raw(), gatekeeper=gatekeeper, identify="header:X-Api-Key")


def rejecting_with_limits() -> App:
    """Make `raw` behind a middleware such as an application would write with `limits`, with the same rule."""
    limiter, rule, app = MovingWindowRateLimiter(MemoryStorage()), RateLimitItemPerHour(1), raw()

    async def limited_app(scope: Scope, receive: Receive, send: Send) -> None:
        key = dict(scope["headers"])[b"x-api-key"].decode() if scope["type"] == "http" else ""
        if not key or limiter.hit(rule, key):
            await app(scope, receive, send)
            return
        reset = limiter.get_window_stats(rule, key).reset_time
        body = b"Too many requests.\n"
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"%d" % len(body)),
            (b"retry-after", b"%d" % max(1, reset - time.time())),
        ]
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return limited_app


def main(address: str) -> None:
    """Be the master, until standard input ends."""
    master = Master([DOMAIN])
    link = MasterLink(master, address)
    print(link.endpoints.accounting, flush=True)

    def count() -> None:
        for _ in sys.stdin:
            totals = master.totals[DOMAIN.name]
            print(json.dumps([totals.accepted, totals.delayed, totals.rejected]), flush=True)

    async def serve() -> None:
        link.start(asyncio.get_running_loop())
        await asyncio.to_thread(count)
        link.close()

    asyncio.run(serve())


if __name__ == "__main__":
    main(sys.argv[1])
