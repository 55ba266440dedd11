"""The sample origin of `headgate serve --demo` and `headgate demo`; for the first also rules and commands."""

import asyncio
import heapq
import json
from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import Receive, Scope, Send

from headgate.advice import PATH
from headgate.config import Address, Configuration, DomainSection, Gate
from headgate.runtime.asgi_server import AsgiServer

_ANY: Final = Address("127.0.0.1", 0)
_MAX_WAIT: Final = 30.0
_PAGE = """\
<!doctype html>
<meta charset="utf-8">
<title>Behind the gate</title>
<style>body {{ font: 16px/1.5 system-ui; max-width: 42em; margin: 3em auto; padding: 0 1em }}</style>
<h1>You are through</h1>
<p>This page comes from a sample origin behind a gate. Reload it six times within a minute, and the gate rejects your
request: 10 requests a minute are accepted, 5 of them at once.</p>
<p>What reached the origin:</p>
<pre>{echo}</pre>
"""


def demo_configuration() -> Configuration:
    """Return the configuration of the demonstration, all but the origin's address."""
    domains = (
        DomainSection(name="queue", rules=("2/s burst 2",), path_prefix="/queue"),
        DomainSection(name="default", rules=("10/min burst 5",)),
    )
    return Configuration(gate=Gate(listen="127.0.0.1:8080", admin="127.0.0.1:8090"), domain=domains)


def demo_banner(gate: str, admin: str, origin: str) -> str:
    """Return what to try, given the URLs of the three listeners."""
    return f"""\
headgate: a gate before a sample origin
  gate    {gate}    10 requests a minute, 5 at once; under /queue 2 a second
  admin   {admin}    the dashboard, /livez, /readyz, /metrics and /api/state
  origin  {origin}    shows what reached it

Try, from another terminal:
  curl -s -o /dev/null -w '%{{http_code}} after %{{time_total}} s\\n' '{gate}/queue?[1-6]'
  curl -sI '{gate}/?[1-6]'
  curl {admin}/api/state
The first is delayed, the second is rejected from the sixth request on, the third shows both. Ctrl-C stops all.
"""


class DemoOrigin:
    """Answers every request with what it was: as JSON, or as a page for browsers.

    With `workers`, so many requests are served at once, each for `service_time` seconds, in the order of arrival. Those
    whose clients have given up are served all the same. One that would wait for half a minute fails.
    """

    def __init__(self, *, workers: int = 0, service_time: float = 0.0) -> None:
        self._server = AsgiServer()
        self._free_at = [0.0] * workers
        """When each worker is free, a heap."""
        self._service_time = service_time

    async def start(self, address: Address = _ANY) -> str:
        """Listen, by default on a free port of loopback; returns the URL."""
        await self._server.bind(*address)
        await self._server.start(self._answer)
        return f"http://{Address(*self._server.addresses[0])}"

    async def close(self) -> None:
        """Stop listening, and close all connections."""
        await self._server.close()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if scope["path"] == PATH:
            await Response(status_code=404)(scope, receive, send)
            return
        if self._free_at and not await self._serve():
            await Response(status_code=503)(scope, receive, send)
            return
        size = 0
        async for chunk in request.stream():
            size += len(chunk)
        await _echo(request, size)(scope, receive, send)

    async def _serve(self) -> bool:
        """Wait until a worker has finished the request; return False at once if its wait is too long."""
        now = asyncio.get_running_loop().time()
        begin = max(now, self._free_at[0])
        if begin - now > _MAX_WAIT:
            return False
        heapq.heapreplace(self._free_at, begin + self._service_time)
        await asyncio.sleep(begin + self._service_time - now)
        return True


def _echo(request: Request, size: int) -> Response:
    path, query = request.scope["raw_path"].decode("latin-1"), request.scope["query_string"].decode("latin-1")
    target = f"{path}?{query}" if query else path
    echo = {"method": request.method, "target": target, "fields": dict(request.headers), "body_bytes": size}
    text = json.dumps(echo, indent=2, ensure_ascii=False)
    if "text/html" in request.headers.get("accept", ""):
        return HTMLResponse(_PAGE.format(echo=text.replace("&", "&amp;").replace("<", "&lt;")))
    return Response(f"{text}\n", media_type="application/json")
