"""Programs of the tests that lose all masters at once: masters in one process, and middlewares in another.

``python -m tests.e2e.lost_masters masters PLAN`` serves masters at fixed ports until it is killed, and prints how many
subscriptions they have received for each line that it reads. ``relay PLAN`` connects ports to others. ``middlewares
PLAN`` sends requests to ASGI and WSGI middlewares that list these masters until its input ends; then it prints the
statuses. A plan is a JSON object.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Coroutine
from functools import partial
from typing import Any

from headgate.limit import Domain, Gatekeeper, Master, Rule
from headgate.link import ClientKeys, GatekeeperLink, KeyPair, MasterLink, ServerKeys
from headgate.link.curve import AllowedKey
from headgate.origin import asgi, wsgi
from tests.e2e.bus_setup import serve

SCOPE = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": [], "client": ("192.0.2.1", 1)}
ENVIRON = {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "REMOTE_ADDR": "192.0.2.1"}
PAUSE = 0.05


def pair(plan: dict[str, Any], name: str) -> KeyPair:
    """Return the keys of one side."""
    return KeyPair(*(key.encode() for key in plan[name]))


async def masters(plan: dict[str, Any]) -> None:
    """Serve masters."""
    keys = ServerKeys(pair(plan, "server"), {pair(plan, "client").public: AllowedKey()}) if "server" in plan else None
    rules = [Domain("default", (Rule.parse("1000/s burst 1000"),))]
    links = [MasterLink(Master(rules), f"tcp://127.0.0.1:{port}", keys=keys) for port in plan["ports"]]
    print("ready", flush=True)
    await serve(links, lambda: sum(link.counters.subscriptions for link in links))


async def relay(plan: dict[str, Any]) -> None:
    """Relay connections."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
        except ConnectionError:
            pass
        writer.close()

    async def connect(to: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", to)
        except OSError:
            writer.close()
            return
        await asyncio.gather(copy(reader, back), copy(there, writer))

    for port, to in plan["ports"]:
        await asyncio.start_server(partial(connect, to), "127.0.0.1", port)
    print("ready", flush=True)
    await asyncio.Event().wait()


async def application(_scope: Any, _receive: Any, send: Any) -> None:
    """Answer 200."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def hello(_environ: Any, start_response: Any) -> list[bytes]:
    """Answer 200."""
    start_response("200 OK", [])
    return [b""]


class Clients:
    """Send requests to middlewares until `ended`, and count the statuses."""

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.ended = asyncio.Event()

    async def ask(self, app: Any) -> None:
        """Send requests to an ASGI application."""
        while not self.ended.is_set():
            await app(SCOPE, asyncio.Event().wait, self._send)
            await asyncio.sleep(PAUSE)

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.statuses[message["status"]] += 1

    def ask_wsgi(self, app: Any) -> None:
        """Send requests to a WSGI application."""
        while not self.ended.is_set():
            list(app(ENVIRON, lambda status, fields, error=None: self.statuses.update([int(status[:3])])))
            time.sleep(PAUSE)


async def middlewares(plan: dict[str, Any]) -> None:
    """Send requests to middlewares."""
    keys = ClientKeys(pair(plan, "client"), pair(plan, "server").public) if "server" in plan else None
    clients, loop = Clients(), asyncio.get_running_loop()
    tasks: list[Coroutine[Any, Any, None]] = []
    loop.add_reader(sys.stdin, clients.ended.set)
    for number in range(plan["count"]):
        link = GatekeeperLink([f"tcp://127.0.0.1:{port}" for port in plan["ports"]], ["default"], keys=keys)
        gatekeeper = Gatekeeper(link.account, max_delay=0.0)
        if number % 2:
            app = wsgi.GatekeeperMiddleware(hello, gatekeeper=gatekeeper)
            link.attach(app)
            link.start_thread()
            tasks.append(asyncio.to_thread(clients.ask_wsgi, app))
        else:
            link.attach(gatekeeper)
            link.start(loop)
            tasks.append(clients.ask(asgi.GatekeeperMiddleware(application, gatekeeper=gatekeeper)))
    print("ready", flush=True)
    await asyncio.gather(*tasks)
    print(json.dumps(clients.statuses), flush=True)


if __name__ == "__main__":
    run = {"masters": masters, "relay": relay, "middlewares": middlewares}[sys.argv[1]]
    asyncio.run(run(json.loads(sys.argv[2])))
