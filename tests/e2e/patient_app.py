"""An application whose requests are delayed for longer than any test runs: 1 accepted, further ones wait 50 s and more.

/state is not limited and tells how many requests wait, and how many reached the application.
"""

import json
from typing import Any

from headgate.limit import Domain, Gatekeeper, Rule
from headgate.origin import Route, Routes
from headgate.origin.asgi import GatekeeperMiddleware

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


app = GatekeeperMiddleware(answer, gatekeeper=gatekeeper, domain=Routes([Route("slow", path_prefix="/slow")]))
