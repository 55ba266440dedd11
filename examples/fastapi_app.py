"""A FastAPI application behind the gatekeeper: `python examples/fastapi_app.py`, or any ASGI server with `app`.

Everything under /api/ is limited to 2 requests a second for each address, after a burst of 5; WebSockets to /chat have
a tighter rule. A request that comes up to a second too early waits; one that comes earlier is told when to come back.
/state fits no route, so it is not limited: it tells what happened. For Starlette, replace `FastAPI` and the
decorators; the middleware is the same.
"""

import os
from collections import Counter

import uvicorn
from fastapi import FastAPI, WebSocket

from headgate.limit import Domain, Gatekeeper, Rule
from headgate.origin import Route, Routes
from headgate.origin.asgi import GatekeeperMiddleware

gatekeeper = Gatekeeper.embedded(
    [Domain("api", (Rule.parse("2/s burst 5"),)), Domain("chat", (Rule.parse("2/min"),))], max_delay=1.0
)
domain = Routes([Route("api", path_prefix="/api/"), Route("chat", path_prefix="/chat")])
calls: Counter[str] = Counter()

app = FastAPI()
app.add_middleware(GatekeeperMiddleware, gatekeeper=gatekeeper, domain=domain)


@app.get("/api/hello")
async def hello() -> dict[str, str]:
    calls["hello"] += 1
    return {"hello": "world"}


@app.post("/api/echo")
async def echo(words: list[str]) -> list[str]:
    return words


@app.websocket("/chat")
async def chat(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text(await websocket.receive_text())
    await websocket.close()


@app.get("/state")
async def state() -> dict[str, int]:
    totals = gatekeeper.totals.get("api")
    counts = {name: getattr(totals, name, 0) for name in ("accepted", "delayed", "rejected")}
    return {**counts, "waiting": gatekeeper.delayed, "calls": calls["hello"]}


if __name__ == "__main__":
    # The identifier is the address of the peer, so the server must not replace it by what a field says: where a proxy
    # stands in front, say so with identify=client_address(["the proxy's CIDR"]).
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")), proxy_headers=False)
