"""What a gate, its workers, and two gates behind a master admit of three clients under one rule: one that sends as fast
as it can, one at exactly the rate, and one above it. Counts are compared with rate x measured time + burst."""

import asyncio
import time
from contextlib import ExitStack

import pytest

from headgate.limit import Rule
from headgate.limit.history import OfflineGate
from tests import servers
from tests.e2e import programs
from tests.e2e.fault_load import GateClient
from tests.e2e.fault_system import ORIGIN, ORIGIN_HTTP

pytestmark = pytest.mark.needs("nginx")

SECONDS = 5.0
FAST_CONNECTIONS = 8
RULES = ["5/s burst 20", "10/s burst 20", "50/s burst 50", "200/s burst 50"]
SHAPES = {"one worker": (1, 1), "four workers": (1, 4), "two gates": (2, 1), "two gates with two workers": (2, 2)}
"""The numbers of gates and of workers of each."""
CONFIGURATION = """
[gate]
identify = "header:x-client"
max_delay = {delay}
[[domain]]
name = "default"
rules = ["{rule}"]
"""


def running_gates(stack, folder, rule, shape, delay=0):
    """Run gates, with a master if there are two; return their ports."""
    origin = stack.enter_context(servers.nginx(folder, server=ORIGIN, http=ORIGIN_HTTP))
    gates, workers = SHAPES[shape]
    file = folder / "shared.toml"
    file.write_text(CONFIGURATION.format(rule=rule, delay=delay))
    words = ["--config", file, "--origin", origin.url, "--workers", workers]
    if gates > 1:
        command = ("master", "--config", file, "--listen", "127.0.0.1:0")
        words += ["--master", stack.enter_context(programs.headgate(folder, *command)).ready["address"]]
    return [stack.enter_context(programs.gate(folder, *words)).port for _ in range(gates)]


class Client:
    """One identifier, which uses all gates in turn."""

    def __init__(self, name, ports):
        self.request = f"GET / HTTP/1.1\r\nHost: a\r\nX-Client: {name}\r\n\r\n".encode()
        self.gates = [GateClient(port, FAST_CONNECTIONS) for port in ports]
        self.statuses = []
        self.times = [time.monotonic()]

    async def send(self, number):
        self.statuses.append(await self.gates[number % len(self.gates)].send(self.request))
        self.times.append(time.monotonic())

    async def as_fast_as_it_can(self, index):
        while time.monotonic() < self.times[0] + SECONDS:
            await self.send(index)

    async def at(self, rate, requests):
        for number in range(int(rate * SECONDS)):
            await asyncio.sleep(self.times[0] + number / rate - time.monotonic())
            requests.create_task(self.send(number))

    def check(self, rule):
        """Check that it was admitted what the rule permits in the measured time, to the next request.

        At least that is what one gatekeeper admits of requests at the times of the responses, also on a busy machine.
        """
        admitted, total = self.statuses.count(200), len(self.statuses)
        permitted = int((self.times[-1] - self.times[0]) / rule.interval + rule.burst)
        print(f"  {admitted} admitted of {total}: {admitted / permitted:.3f} of the rule")
        assert 0.98 * (total - self.rejected_by(rule)) - 1 <= admitted <= 1.1 * permitted

    def rejected_by(self, rule):
        """Return how many requests at the times of the responses one gatekeeper rejects: none at exactly the rate."""
        return OfflineGate((rule,), "gcra", max_delay=0).judge_all(self.times[1:]).rejected


async def measure(rule, ports):
    fast, even, above = (Client(name, ports) for name in ("fast", "even", "above"))
    async with asyncio.TaskGroup() as requests:
        for index in range(FAST_CONNECTIONS):
            requests.create_task(fast.as_fast_as_it_can(index))
        for client, rate in ((even, 1 / rule.interval), (above, 1.5 / rule.interval + rule.burst / SECONDS)):
            requests.create_task(client.at(rate, requests))
    for gate in (*fast.gates, *even.gates, *above.gates):
        gate.close()
    return fast, above, even


def rows():
    for shape in SHAPES:
        for rule in RULES:
            everyday = rule == "10/s burst 20" and shape in {"four workers", "two gates"}
            yield pytest.param(rule, shape, marks=[] if everyday else pytest.mark.deep)


@pytest.mark.parametrize(("rule", "shape"), [*rows()])
def test_clients_get_the_rule_and_no_more(tmp_path, rule, shape):
    with ExitStack() as stack:
        ports = running_gates(stack, tmp_path, rule, shape)
        clients = asyncio.run(measure(Rule.parse(rule), ports))
    print(f"{shape}, {rule}: as fast as it can, above the rate, at the rate")
    for client in clients:
        client.check(Rule.parse(rule))
    even = clients[2]
    assert even.statuses.count(503) <= even.rejected_by(Rule.parse(rule))
