"""Applications behind both middlewares, with all that routes say about requests."""

from typing import Any

from headgate.http.conditions import Conditions
from headgate.limit import Domain, Gatekeeper, Rule
from headgate.origin import Route, Routes
from headgate.origin.asgi import GatekeeperMiddleware
from headgate.origin.wsgi import GatekeeperMiddleware as WsgiMiddleware

rules = {"search": "1/min burst 4", "all": "1/min burst 5"}
gatekeeper = Gatekeeper.embedded([Domain(name, (Rule.parse(rule),)) for name, rule in rules.items()], max_delay=0)
search = Route(
    "search",
    path_prefix=("/search", "/find"),
    methods=("GET",),
    clients=("127.0.0.0/8",),
    header="X-Key",
    regex="^[a-z]$",
    unless=Conditions(user_agent="ExampleBot"),
    identify=("header:X-Key", "cookie:sid", "path:2"),
    also=("all",),
    cost=2,
)
domain = Routes([search, Route("all", identify="cookie:user")])


async def answer(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


def answer_wsgi(_environ: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [("Content-Length", "0")])
    return [b""]


app = GatekeeperMiddleware(answer, gatekeeper=gatekeeper, domain=domain)
wsgi = WsgiMiddleware(answer_wsgi, gatekeeper=gatekeeper, domain=domain)
