"""All parts of a system are killed and started again, in every order, while requests are sent."""

from itertools import permutations

import pytest

from tests.e2e.fault_cases import PARTS, run_restarts
from tests.e2e.fault_figures import failed, wrongly_rejected

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
