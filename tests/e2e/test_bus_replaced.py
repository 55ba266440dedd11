"""Masters that are replaced without a shared store: clients get no fresh budget.

Gatekeepers send the accounting of the last burst/rate again to a master that starts without a history. The rule is 10
requests an hour in all tests, so that no budget returns meanwhile.
"""

import json
import signal
import time
import urllib.request
from contextlib import ExitStack, contextmanager
from operator import ge

import pytest

from tests.e2e import programs
from tests.e2e.fault_partition import Forwarder
from tests.e2e.router_setup import running_router
from tests.servers import free_port

BURST = 10
CONTROL_DELAY = 0.05
"""Seconds for a control to travel on loopback, after its master has counted the request."""
ADMITTED = {"log": BURST, "gcra": BURST, "smockron": BURST + 1}
"""The algorithm of the original lets one more request through."""


class System:
    """Gates and masters, each a process; a master that is replaced has a successor at its address."""

    def __init__(self, folder, stack, algorithm="log", masters=1, options=()):
        self.folder, self.algorithm, self.options = folder, algorithm, options
        self._stack = stack
        self._origin = stack.enter_context(programs.origin())
        self.masters = [self._start_master("127.0.0.1:0") for _ in range(masters)]
        self.addresses = [master.ready["address"] for master in self.masters]
        self.gates = []

    def start_gates(self, addresses=None):
        self.gates = [self.start_gate(addresses) for _ in range(2)]

    def _start_master(self, address):
        words = ["--listen", address, "--admin", "127.0.0.1:0", "--algorithm", self.algorithm]
        master = programs.headgate(self.folder, "master", *words, *self.options, "--domain", "default=10/h")
        running = self._stack.enter_context(master)
        assert running.ready
        return running

    def start_gate(self, addresses=None):
        masters = [word for address in addresses or self.addresses for word in ("--master", address)]
        words = ["--origin", self._origin.url, "--rule", "10/h", "--max-delay", "0", "--identify", "header:x-client"]
        return self._stack.enter_context(programs.gate(self.folder, *words, *masters))

    def end_master(self, index=0, number=signal.SIGKILL):
        self.masters[index].end(number)

    def start_master(self, index=0):
        """Start the successor of a master; wait until it has what the gates send again."""
        self.masters[index] = self._start_master(self.addresses[index].removeprefix("tcp://"))

    def counters(self, index=0):
        with urllib.request.urlopen(self.masters[index].ready["admin"] + "/api/state") as response:
            return json.load(response)["counters"]

    def counted(self, counting):
        """Return how many requests these masters, or all, have counted, and how many controls they have published."""
        indexes = range(len(self.masters)) if counting is None else counting
        counters = list(map(self.counters, indexes))
        requests = sum(counted["bus_accounted"] + counted["bus_resent_records"] for counted in counters)
        return requests, sum(counted["bus_controls"] for counted in counters)

    def obeyed(self):
        """Return the number of controls that each gate has obeyed."""
        return [gate.state()["counters"]["link_controls"] for gate in self.gates]

    def wait_for(self, condition, what):
        deadline = time.monotonic() + programs.PATIENCE
        while not condition():
            assert time.monotonic() < deadline, what
            time.sleep(0.02)

    def wait_for_resent(self, records, index=0):
        self.wait_for(lambda: self.counters(index)["bus_resent_records"] >= records, "records that are sent again")
        assert self.counters(index)["bus_resent_records"] == records
        time.sleep(CONTROL_DELAY)

    def admit(self, most, *, client="a", counting=None):
        """Send at most `most` requests to the gates in turn, until one is rejected; return the number admitted.

        Each waits until the masters in `counting` have counted the one before, and the gates have obeyed the controls
        that follow; None stands for all masters.
        """
        obeyed, (counted, published) = self.obeyed(), self.counted(counting)
        for number in range(most):
            gate = self.gates[number % len(self.gates)]
            if gate.get(x_client=client).status != 200:
                return number
            if counting != []:
                self.wait_for(lambda before=counted: self.counted(counting)[0] > before, "the request's accounting")
                counted, controls = self.counted(counting)
                if controls > published:
                    expected = [count + controls - published for count in obeyed]
                    self.wait_for(lambda least=expected: all(map(ge, self.obeyed(), least)), "the request's control")
        return most


@contextmanager
def running_system(folder, **options):
    with ExitStack() as stack:
        system = System(folder, stack, **options)
        system.start_gates()
        yield system


@pytest.mark.parametrize(
    ("algorithm", "number"),
    [
        ("log", signal.SIGKILL),
        pytest.param("gcra", signal.SIGTERM, marks=pytest.mark.deep),
        pytest.param("log", signal.SIGTERM, marks=pytest.mark.deep),
        pytest.param("smockron", signal.SIGKILL, marks=pytest.mark.deep),
    ],
)
def test_four_of_ten_are_spent_and_six_are_left(tmp_path, algorithm, number):
    with running_system(tmp_path, algorithm=algorithm) as system:
        assert system.admit(4) == 4
        system.end_master(number=number)
        system.start_master()
        system.wait_for_resent(4)
        assert system.admit(20) == ADMITTED[algorithm] - 4
        # Another one, with what the first successor was sent and what it counted: nothing is left.
        system.end_master(number=number)
        system.start_master()
        system.wait_for_resent(ADMITTED[algorithm])
        assert system.admit(20, client="b") == ADMITTED[algorithm]
        assert system.admit(1) == 0


def test_a_killed_master_with_a_snapshot_is_sent_what_the_snapshot_has_not(tmp_path):
    """Nothing of the snapshot counts twice, and nothing after it is lost."""
    with running_system(tmp_path, options=["--snapshot", tmp_path / "snapshot"]) as system:
        assert system.admit(4) == 4
        system.end_master(number=signal.SIGTERM)
        assert system.admit(1, counting=[]) == 1
        system.start_master()
        system.wait_for_resent(1)
        assert system.admit(2) == 2
        system.end_master(number=signal.SIGTERM)
        system.start_master()
        assert system.admit(2) == 2
        system.end_master(number=signal.SIGKILL)  # its snapshot has 7 requests
        system.start_master()
        system.wait_for_resent(9)
        assert system.admit(20) == 1


def test_masters_are_replaced_one_after_the_other_while_requests_are_sent(tmp_path):
    """The domain moves to the other master and back; each time the owner gets what it has not had."""
    with running_system(tmp_path, masters=2) as system:
        assert system.admit(4) == 4
        owner = next(index for index in range(2) if system.counters(index)["bus_accounted"])
        other = 1 - owner
        system.end_master(owner)
        system.wait_for_resent(4, other)
        assert system.admit(3, counting=[other]) == 3
        system.start_master(owner)
        system.wait_for_resent(7, owner)
        system.end_master(other)
        system.start_master(other)
        assert system.admit(20) == 3
        assert system.counters(other)["bus_resent_records"] == 0


def test_a_gate_that_was_restarted_has_forgotten_its_own_requests(tmp_path):
    with running_system(tmp_path) as system:
        assert system.admit(4) == 4
        system.gates[1].end(signal.SIGKILL)
        system.gates[1] = system.start_gate()
        system.end_master()
        system.start_master()
        system.wait_for_resent(2)
        assert system.admit(20) == 8


def test_requests_without_a_master_count_when_the_next_one_starts(tmp_path):
    """All of them are accepted ("preserving access to the underlying resource"); more than the rule give no debt."""
    with running_system(tmp_path) as system:
        assert system.admit(4) == 4
        system.end_master()
        time.sleep(5.0)
        assert system.admit(3, counting=[]) == 3
        assert system.admit(30, client="b", counting=[]) == 30
        system.start_master()
        system.wait_for_resent(37)
        assert system.admit(20) == 3
        rejected = system.gates[0].get(x_client="b")
        assert rejected.status == 503
        assert 0 < int(rejected.getheader("Retry-After")) <= 360


@pytest.mark.parametrize("shard", ["domain", pytest.param("identifier", marks=pytest.mark.deep)])
def test_masters_behind_a_router_are_replaced_one_after_the_other(tmp_path, shard):
    """Each gets what it owns: the one that owns the client gets its requests, the other one does not."""
    with ExitStack() as stack:
        system = System(tmp_path, stack, masters=2)
        router = stack.enter_context(running_router(tmp_path, system.addresses, "--shard", shard))
        system.start_gates([router.address])
        assert system.admit(4) == 4
        owner = next(index for index in range(2) if system.counters(index)["bus_accounted"])
        for index in (owner, 1 - owner):
            system.end_master(index)
            system.wait_for(lambda: len(router.up()) == 1, "loss of the master")
            system.start_master(index)
            system.wait_for(lambda: len(router.up()) == 2, "connection to the master")
        system.wait_for(lambda: router.counters()["unowned"] == 4, "records that are sent again to the other master")
        system.wait_for_resent(4, owner)
        assert system.counters(1 - owner)["bus_resent_records"] == 0
        assert system.admit(20) == 6


def test_requests_during_a_partition_count_when_it_ends(tmp_path):
    """The master is the same one, and gets what it has not had."""
    with ExitStack() as stack:
        system = System(tmp_path, stack)
        forwarder = Forwarder(free_port(), int(system.addresses[0].rpartition(":")[2]))
        stack.callback(forwarder.close)
        system.start_gates([f"tcp://127.0.0.1:{forwarder.port}"])
        assert system.admit(4) == 4
        forwarder.cut("closed")
        for gate in system.gates:
            gate.until(lambda gate=gate: gate.get(x_client="b") and unheard(gate), "accounting without a master")
        sent = sum(unheard(gate) for gate in system.gates)
        assert system.admit(3, counting=[]) == 3
        forwarder.restore()
        system.wait_for_resent(sent + 3)
        assert system.admit(20) == 3


def unheard(gate):
    return gate.state()["counters"]["link_unheard"]
