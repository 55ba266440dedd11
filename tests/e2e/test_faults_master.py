"""Gates whose master is unreachable, or has stopped for long."""

import pytest

from tests.e2e.fault_system import BURST, Shape, running_system

MEBIBYTE = 1024 * 1024


@pytest.mark.needs("nginx")
def test_a_gate_that_starts_before_its_master_serves_at_once(tmp_path):
    with running_system(tmp_path, Shape(gates=1)) as system:
        master, gate = system.nodes["master0"], system.gates[0]
        gate.kill()
        master.kill()
        gate.start()
        assert [gate.get("/burst", "early") for _ in range(3 * BURST)] == [200] * 3 * BURST
        master.start()
        system.check_limits()
