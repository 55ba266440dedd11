"""Parts of a system are killed, stopped and cut off under load: no request fails, and limits return.

"It attempts to preserve access to the resources it protects, even at the cost of potentially allowing some undesired
requests to pass" (smockron.txt, Fault-Tolerance). docs/reliability.md has the figures.
"""

from itertools import permutations

import pytest

from tests.e2e.fault_cases import FAULTS, PARTS, Times, check, run_fault, run_restarts
from tests.e2e.fault_figures import ADMITTED, failed, wrongly_rejected
from tests.e2e.fault_load import LoadPlan
from tests.e2e.fault_system import BURST, Shape, running_system

PLAN = LoadPlan()


ALWAYS = {"master killed", "master stopped", "router stopped", "Redis stopped"}
"""The faults that every change is tested with; `make test-deep` has all."""
SILENT = {name for name in FAULTS if "stopped" in name}
ON_STORE = {name for name in FAULTS if "Redis" in name}


def cases(times, names, *marks):
    return [pytest.param(times, name, marks=[pytest.mark.needs(*FAULTS[name].needs), *marks]) for name in names]


@pytest.mark.parametrize(
    ("times", "name"),
    [
        *cases(Times(), sorted(ALWAYS)),
        *cases(Times(), sorted(FAULTS.keys() - ALWAYS), pytest.mark.deep),
        # What is silent or does not end at once differs when it lasts longer: heartbeats are missed after 4 s, new
        # connections are tried every 2 s, and records for a store that does not answer wait for 30 s.
        *cases(Times(during=12.0, after=5.0), sorted(SILENT - ON_STORE), pytest.mark.deep),
        *cases(Times(during=32.0, after=5.0), sorted(SILENT & ON_STORE), pytest.mark.deep),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.during:g} s",
)
def test_no_request_fails_and_limits_return(tmp_path, times, name):
    check(run_fault(FAULTS[name], tmp_path, times, PLAN), PLAN)


@pytest.mark.needs("nginx")
def test_a_gate_that_starts_before_its_master_serves_at_once_by_the_rules_of_its_own_file(tmp_path):
    with running_system(tmp_path, Shape(gates=1)) as system:
        master, gate = system.nodes["master0"], system.gates[0]
        gate.kill()
        master.kill()
        gate.start()
        assert [gate.get("/burst", "early") for _ in range(2 * BURST)] == [ADMITTED] * BURST + [429] * BURST
        master.start()
        system.check_limits()


@pytest.mark.deep
@pytest.mark.needs("nginx")
def test_a_client_above_its_rule_is_limited_as_before_when_a_stopped_master_continues(tmp_path):
    """The master could then read the accounting of all requests since it stopped; with gcra each adds half a second.

    Heartbeats end the connection in which it waits, and what arrives late extends no hold: each of the two suffices.
    """
    outcome = run_fault(FAULTS["master stopped"], tmp_path, Times(during=7.0, after=4.0))
    afterwards = [sample for sample in outcome.samples if sample.kind == "hot" and sample.sent > outcome.limited]
    admitted = [sample for sample in afterwards if sample.status == ADMITTED]
    assert len(afterwards) >= 60
    assert 4 <= len(admitted) < len(afterwards) / 2


ORDERS = list(permutations(PARTS))


@pytest.mark.parametrize(
    "orders", [ORDERS[::23], pytest.param(ORDERS, marks=pytest.mark.deep)], ids=["two orders", "every order"]
)
@pytest.mark.needs("nginx", "redis-server")
def test_a_gate_that_is_not_restarted_answers_every_request(tmp_path, orders):
    samples = run_restarts(tmp_path, orders)
    assert failed(sample for sample in samples if sample.gate == 0) == []
    assert wrongly_rejected(samples) == []
    # Requests to the other gate fail only while it does not run.
    assert {sample.error.partition(":")[0] for sample in failed(samples)} <= {
        "ConnectionRefusedError",
        "ConnectionResetError",
    }
