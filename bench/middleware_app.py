"""The processes of `bench.bench_middleware`: the application bare, the application limited, and the master.

`uvicorn bench.middleware_app:bare` and `…:limited` serve the same raw ASGI application, the cheapest there is, so that
the middleware's share is as large as it can get. `python -m bench.middleware_app ADDRESS` is the master; each line on
its standard input makes it print how many messages it has accounted, as JSON.
"""

import asyncio
import json
import os
import sys
import threading

from headgate.limit import Domain, Gatekeeper, Master, Rule
from headgate.link import GatekeeperLink, MasterLink
from headgate.origin.asgi import App, GatekeeperMiddleware, Receive, Scope, Send

__all__ = ["ADDRESS", "DOMAIN", "bare", "limited", "main"]

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


async def bare(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer every request with one short text."""
    if scope["type"] == "http":
        await send(START)
        await send({"type": "http.response.body", "body": BODY})
        return
    for event in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{event}.complete"})


def limited() -> App:
    """Make the same application behind the middleware, its gatekeeper on the bus to a master in another process."""
    link = GatekeeperLink(os.environ[ADDRESS], [DOMAIN.name])
    gatekeeper = Gatekeeper(link.account)
    link.attach(gatekeeper)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            link.start(asyncio.get_running_loop())
        await bare(scope, receive, send)
        if scope["type"] == "lifespan":
            link.close()

    return GatekeeperMiddleware(app, gatekeeper=gatekeeper, identify="header:X-Api-Key")


def main(address: str) -> None:
    """Be the master, until standard input ends."""
    master = Master([DOMAIN])
    link = MasterLink(master, address)
    print(link.endpoints.accounting, flush=True)

    def answer() -> None:
        for _ in sys.stdin:
            totals = master.totals[DOMAIN.name]
            print(json.dumps([totals.accepted, totals.delayed, totals.rejected]), flush=True)
        link.stop()

    threading.Thread(target=answer, daemon=True).start()
    link.run()
    link.close()


if __name__ == "__main__":
    main(sys.argv[1])
