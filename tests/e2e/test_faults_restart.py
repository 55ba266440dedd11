"""All parts of a system are killed and started again, in every order, while requests are sent."""

from itertools import permutations

import pytest

from tests.e2e.fault_figures import failed, wrongly_rejected
from tests.e2e.fault_load import LoadPlan, running_load
from tests.e2e.fault_system import Shape, running_system

PARTS = ("gate1", "master0", "master1", "redis")
ORDERS = list(permutations(PARTS))


def restart_through(folder, shape, orders):
    """Restart in each order under load; afterwards, each time, a burst is admitted exactly. Return the requests."""
    with running_system(folder, shape) as system:
        plan = LoadPlan([gate.port for gate in system.gates], cold_rate=50.0, hot_rate=5.0)
        with running_load(plan, folder) as load:
            for order in orders:
                for name in order:
                    system.nodes[name].restart()
                system.check_limits()
            return load.finish()


@pytest.mark.parametrize(
    "orders", [ORDERS[::23], pytest.param(ORDERS, marks=pytest.mark.deep)], ids=["two orders", "every order"]
)
@pytest.mark.needs("nginx", "redis-server")
def test_a_gate_that_is_not_restarted_answers_every_request(tmp_path, orders):
    samples = restart_through(tmp_path, Shape(masters=2, redis=True), orders)
    assert failed(sample for sample in samples if sample.gate == 0) == []
    assert wrongly_rejected(samples) == []
    # Requests to the other gate fail only while it does not run.
    assert {sample.error.partition(":")[0] for sample in failed(samples)} <= {
        "ConnectionRefusedError",
        "ConnectionResetError",
    }
