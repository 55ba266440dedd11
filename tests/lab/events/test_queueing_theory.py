"""The station against formulas of queueing theory, for arrivals of a Poisson process and one queue."""

import math

import pytest

from lab.events.world import run
from tests.lab.events.worlds import scenario

SECONDS = 5_000.0
SEEDS = range(6)


def in_system(*, servers=1, load=0.5, **service):
    """Return the mean number of requests in the station, a request per second for each server at full load."""
    made = scenario(
        station={"servers": servers, "service": {"mean": 1.0, **service}},
        loads=[{"name": "visitors", "load": load, "timeout": 1e6}],
        seconds=SECONDS,
        warmup=100.0,
    )
    return sum(run(made, "none", seed).metrics["in_flight"] for seed in SEEDS) / len(SEEDS)


def test_one_server_has_the_mean_of_pollaczek_and_khinchine():
    """Load + load² · E[S²] / (2 (1 - load)) for a mean service time of 1; tests of `service` have the distributions."""
    square = math.exp(0.25)
    assert in_system(kind="lognormal", sigma=0.5) == pytest.approx(0.5 + 0.25 * square / (2 * 0.5), rel=0.05)


def test_several_servers_have_the_mean_of_erlang():
    """Of two servers at a load of 0.7: a = 1.4, and the probability to wait is C(2, 1.4)."""
    offered, servers = 1.4, 2
    full = offered**servers / math.factorial(servers) / (1 - 0.7)
    wait = full / (sum(offered**number / math.factorial(number) for number in range(servers)) + full)
    assert in_system(servers=2, load=0.7, kind="exponential") == pytest.approx(offered + wait * 0.7 / 0.3, rel=0.05)


def test_a_limit_without_a_queue_refuses_the_share_of_erlang():
    """Four servers, no place to wait, offered 4: the share that is refused is B(4, 4) = 0.3107."""
    made = scenario(
        station={"servers": 4, "service": {"kind": "lognormal", "sigma": 0.5, "mean": 1.0}},
        loads=[{"name": "visitors", "load": 1.0, "timeout": 1e6}],
        laws={"fixed": {"limit": 4}},
        seconds=SECONDS,
    )
    metrics = run(made, "fixed", 0).metrics
    assert metrics["refused"] / metrics["offered"] == pytest.approx(0.3107, rel=0.05)
