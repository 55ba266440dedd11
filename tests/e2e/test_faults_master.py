"""Gates whose master is unreachable, or has stopped for long."""

import pytest

from tests.e2e.fault_cases import FAULTS, Times, run_fault
from tests.e2e.fault_figures import ADMITTED
from tests.e2e.fault_system import BURST, Shape, running_system


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
