"""The concurrency limit of the gate: the processor time of a proxied request and of a rejection.

wrk sends the heads of a browser over 32 kept connections (`browser_load`). Proxied requests: a gate with a learned
limit that rejects nothing, against one without; nginx answers 131 bytes from memory. Rejections: a gate whose only
permit is taken, against nginx with `limit_conn 1` in the same state. Each round first proves that the origin's body, or
a rejection, arrives.
"""

import socket
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.browser_load import LASTING, Side, gate, load, origin, verify_answer, write_script
from bench.measure import Row, compared, in_turns, need, verify
from tests import servers

PAIRS_A_ROUND = 2
RULE = '[[domain]]\nname = "default"\nrules = ["1000000/s burst 1000"]\n'
LEARNED = '[limit.concurrency]\nmax = "learned"\nhealthy_latency = 1\n'
FULL = "[gate.timeouts]\nresponse = 86400\n[limit.concurrency]\nmax = 1\nqueue = 0\n"
FULL_PEER = "limit_conn all 1; location / {{ add_header Retry-After 60 always; proxy_pass http://127.0.0.1:{}; }}"
ZONE = "limit_conn_zone $server_port zone=all:1m; limit_conn_log_level info; proxy_read_timeout 1d;"


def run(rounds: int) -> list[Row]:
    """Measure proxied requests and rejections."""
    need("nginx", "wrk")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = write_script(folder / "load.lua")
        return [proxied(folder, script, rounds * PAIRS_A_ROUND), refused(folder, script, rounds * PAIRS_A_ROUND)]


def cost(side: Side, script: Path, *, refused: bool) -> float:
    """Return the microseconds of processor time that one request costs."""
    verify_answer(side, refused=refused)
    return load(side, script, refused=refused)[1]


def proxied(folder: Path, script: Path, turns: int) -> Row:
    """Measure proxied requests with and without a limit."""
    with ExitStack() as running:
        origin_port = running.enter_context(origin(folder / "origin"))
        sides = {
            name: running.enter_context(gate(folder / name, origin_port, text))
            for name, text in (("without", RULE), ("learned", LEARNED + RULE))
        }
        found = in_turns({name: partial(cost, side, script, refused=False) for name, side in sides.items()}, turns)
        state = sides["learned"].state()["concurrency"]
    rejections = sum(sum(reasons.values()) for reasons in state["rejected"].values())
    verify("the limit was in force and refused nothing", right=state["limit"] > 0 and rejections == 0)
    verify("all permits were released", right=state["in_flight"] == 0)
    what, peer = "gate with a learned limit, CPU per proxied request", ("the gate without", found["without"])
    return compared(what, found["learned"], ("≤", 1.1), peer, "µs")


def refused(folder: Path, script: Path, turns: int) -> Row:
    """Measure rejections, before an origin that never answers."""
    with ExitStack() as running:
        stuck = running.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
        server = running.enter_context(servers.nginx(folder, server=FULL_PEER.format(stuck), http=LASTING + ZONE))
        sides = {
            "gate": running.enter_context(gate(folder / "full", stuck, FULL)),
            "nginx": Side(server.port, server.process.pid),
        }
        for side in sides.values():
            holder = running.enter_context(socket.create_connection(("127.0.0.1", side.port)))
            holder.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        found = in_turns({name: partial(cost, side, script, refused=True) for name, side in sides.items()}, turns)
    return compared("gate, CPU per rejection", found["gate"], ("≤", 2.5), ("nginx, limit_conn", found["nginx"]), "µs")
