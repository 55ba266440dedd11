import pytest
from click.testing import CliRunner

from experiments.capacity import (
    Costs,
    accounting_cores,
    admitted_with_loss,
    control_cores,
    machines,
    main,
    percentile,
    records_per_batch,
    waits,
)


def test_a_batch_has_the_records_of_its_delay():
    assert records_per_batch(1_000.0) == pytest.approx(6.0)


def test_cores_are_the_sum_of_batches_records_and_controls():
    costs = Costs(batch=6e-6, record=1e-6, control=3e-6, subscriber=1e-6)
    assert accounting_cores(100_000.0, 100, costs) == pytest.approx(0.2)
    assert control_cores(1_000.0, 100, costs) == pytest.approx(0.103)


def test_machines_have_the_cores_of_their_parts():
    costs = Costs(batch=6e-6, record=1e-6, shared=5e-6, control=0.0, subscriber=1e-6, routed=6e-6, stored=7e-6)
    assert machines(100_000.0, 100, 1_000.0, costs) == pytest.approx(
        {"masters": 0.3, "routers": 0.206, "masters on Redis": 0.7, "Redis": 0.7}
    )


def test_batches_wait_for_those_before_them():
    """With 10 ms for each batch and 40 gatekeepers, a batch waits for those that arrived just before."""
    costs = Costs(batch=0.01, record=0.0)
    found = list(waits(40.0, 40, 10.0, seed=1, costs=costs))
    assert 300 < len(found) < 500
    assert 0.0 < sum(found) / len(found) < 0.01
    assert found == list(waits(40.0, 40, 10.0, seed=1, costs=costs))


def test_an_overloaded_master_falls_behind_steadily():
    found = list(waits(400.0, 40, 10.0, seed=1, costs=Costs(batch=0.01, record=0.0)))
    assert found[-1] > 10.0


def test_percentile():
    assert [percentile([3.0, 1.0, 2.0, 4.0], share) for share in (0.0, 0.5, 0.99, 1.0)] == [1.0, 2.0, 4.0, 4.0]


def test_with_lost_accounting_the_rest_counts_for_all():
    assert admitted_with_loss(0.0) == pytest.approx(1.0, abs=0.02)
    assert admitted_with_loss(0.5) == pytest.approx(2.0, rel=0.1)


def test_the_command_prints_three_tables(monkeypatch):
    monkeypatch.setattr("experiments.capacity.waits", lambda *_, **__: iter([0.0, 0.001]))
    printed = CliRunner().invoke(main, [])
    assert printed.exit_code == 0
    assert len(printed.stdout.split("\n\n")) == 3
    assert "10,000,000       10,000   1,000     22.00    (37)" in printed.stdout
