"""Applications that accept one request of a client; `app` delays further ones for 50 s, longer than any test runs.

/state is not limited; it reports how many requests are delayed, and how many have reached the application.
"""

import json
from typing import Any

from headgate.limit import Domain, Gatekeeper, Rule
from headgate.origin import Route, Routes
from headgate.origin.asgi import GatekeeperMiddleware
from headgate.origin.wsgi import GatekeeperMiddleware as WsgiMiddleware

gatekeeper = Gatekeeper.embedded([Domain("slow", (Rule.parse("1/50s"),))], max_delay=1000.0)
calls: list[str] = []


async def answer(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    if scope["path"] != "/state":
        calls.append(scope["path"])
    content = {"calls": len(calls), "waiting": gatekeeper.delayed, "delayed": gatekeeper.totals["slow"].delayed}
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": json.dumps(content).encode()})


def answer_wsgi(_environ: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [])
    return [b""]


app = GatekeeperMiddleware(answer, gatekeeper=gatekeeper, domain=Routes([Route("slow", path_prefix="/slow")]))
wsgi = WsgiMiddleware(answer_wsgi, gatekeeper=gatekeeper, domain="slow")
