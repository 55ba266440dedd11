"""What it costs the gate to compute its traffic advice: processor time per proxied request.

As in `bench_concurrency`: wrk sends the heads of a browser over kept connections to two gates with the same rule, in
turns. One counts all requests for the controller, those of people first, then those of an agent that has fetched the
advice from the same address.
"""

import json
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.bench_concurrency import RULE, gate, in_turns, microseconds_each, row
from bench.bench_gateway import BODY, LASTING, ORIGIN, Side, fetch
from bench.browser_load import write_script
from bench.measure import Absent, Row, verify
from headgate.advice import PATH
from tests import servers

ADVICE = '[advice]\nmode = "adaptive"\ncapacity = "1000000/s"\nperiod = 4\n'
TARGET = 1.03


def run(rounds: int) -> list[Row]:
    """Measure requests of people, and of an agent."""
    for program in ("nginx", "wrk"):
        if servers.find_program(program) is None:
            raise Absent(f"{program} is not installed")
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        (folder / "origin").mkdir()
        directives = ORIGIN.format(body=BODY.replace("\n", "\\n"))
        origin = running.enter_context(servers.nginx(folder / "origin", server=directives, http=LASTING)).port
        without = running.enter_context(gate(folder, origin, RULE, "without"))
        computed = running.enter_context(gate(folder, origin, RULE + ADVICE, "computed"))
        script = write_script(folder / "load.lua")

        def cost(side: Side) -> float:
            verify("the origin's body arrives", right=fetch(side.port)[:2] == (200, BODY))
            return microseconds_each(side, script, expect_refusals=False)

        sides: dict[str, Callable[[], float]] = {"without": partial(cost, without), "computed": partial(cost, computed)}
        people = in_turns(sides, rounds)
        check(computed, counts_agents=False)
        # The brand is in the User-Agent of all browsers, so from now on all requests are those of this agent.
        request = urllib.request.Request(f"http://127.0.0.1:{computed.port}{PATH}", headers={"User-Agent": "Gecko"})
        with urllib.request.urlopen(request) as response:
            verify("the advice is served", right=response.status == 200)
        time.sleep(2)  # the agent is known after a report
        agents = in_turns(sides, rounds)
        check(computed, counts_agents=True)
    peer = ("the gate without", "without")
    return [
        row("gate with computed advice, CPU per request of people", peer, "computed", people, TARGET),
        row("gate with computed advice, CPU per request of an agent", peer, "computed", agents, TARGET),
    ]


def check(side: Side, *, counts_agents: bool) -> None:
    """Verify whose requests the gate has counted."""
    classes = json.loads(fetch(side.admin, "/api/state")[1])["advice"]
    arrivals = sum(each["arrivals"] for each in classes)
    verify("requests are counted in their class", right=(arrivals > 0) == counts_agents)
