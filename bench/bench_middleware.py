"""An ASGI application with the middleware against the same application bare: accepted requests, and rejected ones.

The application does nothing but answer, which makes the middleware's share as large as it can be. Each is served by
uvicorn, one worker: `uvicorn --factory bench.bench_middleware:bare`. wrk sends the heads of a browser (`browser_load`)
as 1000 identifiers.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from bench.browser_load import BODY, CONNECTIONS, Side, fetch, load, verify_answer, write_script
from bench.measure import Row, compared, in_turns, need
from headgate.limit import Domain, Gatekeeper, Rule
from headgate.origin.asgi import GatekeeperMiddleware
from headgate.origin.asgi_concurrency import App
from headgate.origin.read_ahead import Receive, Scope, Send
from tests import servers

IDENTIFIERS = 1_000
KEY = f'"X-Api-Key: identifier-" .. (number % {IDENTIFIERS}) .. "\\r\\n"'
HEADERS = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(BODY))]


def bare() -> App:
    """Make the application, written against ASGI itself."""

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await send({"type": "http.response.body", "body": BODY.encode()})

    return app


def limited(rule: str = "1000000/s burst 1000000") -> App:
    """Make it behind the middleware, with a rule that is worked out for every request and holds none."""
    gatekeeper = Gatekeeper.embedded([Domain("default", (Rule.parse(rule),))])
    return GatekeeperMiddleware(bare(), gatekeeper=gatekeeper, identify="header:X-Api-Key")


def rejecting() -> App:
    """Make it behind the middleware, with a rule that lets one request an hour through."""
    return limited("1/h burst 1")


@contextmanager
def serving(app: str, folder: Path) -> Iterator[Side]:
    """Serve an application of this module."""
    port = servers.free_port()
    flags = ["--loop=uvloop", "--http=httptools", "--lifespan=off", "--no-access-log", "--log-level=error", "--factory"]
    command = [sys.executable, "-m", "uvicorn", f"--port={port}", *flags, f"{__name__}:{app}"]
    with servers.started(command, port, folder) as server:
        yield Side(port, server.process.pid)


def cost(side: Side, script: Path, *, refused: bool) -> float:
    """Return the microseconds of processor time that one request costs."""
    fetch(side.port, **{"X-Api-Key": "first"})  # the only one of this identifier that is not rejected
    verify_answer(side, refused=refused, **{"X-Api-Key": "first"})
    return load(side, script, refused=refused, passed=IDENTIFIERS + CONNECTIONS)[1]


def run(rounds: int) -> list[Row]:
    """Give a row for accepted and one for rejected requests."""
    need("wrk", "uvicorn")
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        script = write_script(folder / "load.lua", more=KEY)
        sides = {app: running.enter_context(serving(app, folder)) for app in ("bare", "limited", "rejecting")}
        found = in_turns(
            {app: partial(cost, side, script, refused=app == "rejecting") for app, side in sides.items()}, rounds
        )
    peer = "an answer of the bare app", found["bare"]
    return [
        compared("middleware, CPU per accepted request", found["limited"], ("≤", 1.25), peer, "µs"),
        compared("middleware, CPU per rejected request", found["rejecting"], ("≤", 1.2), peer, "µs"),
    ]
