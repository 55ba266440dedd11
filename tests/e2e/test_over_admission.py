"""What two gatekeepers in processes of their own admit, with a real master behind a delay."""

import socket
from contextlib import ExitStack, suppress

import pytest

from experiments.bus_simulation import permitted
from experiments.delayed_bus import Load, run_on_bus
from headgate.limit import Rule
from tests.servers import free_port

RULE = "500/s burst 50"


def four_free_ports():
    """Return the first of four free ports: each bus takes a port and its successor."""
    while True:
        port = free_port()
        with ExitStack() as stack, suppress(OSError):
            for following in range(port, port + 4):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", following))
            return port


def admitted_and_permitted(algorithm, *, seconds, control_delay):
    """Offer 800 requests per second of one client to two gatekeepers."""
    loads = [Load("", 400.0, seconds, first=first) for first in (0.0, 1 / 800)]
    result = run_on_bus(RULE, algorithm, loads, port=four_free_ports(), control_delay=control_delay)
    assert len(result.releases) + result.rejected == 800 * seconds
    return len(result.releases), permitted(Rule.parse(RULE), result.seconds)


@pytest.mark.deep
@pytest.mark.parametrize("control_delay", [0.005, 0.05])
def test_gcra_admits_what_the_rule_permits_in_the_published_case(control_delay):
    """For 30 s, within 2 %."""
    admitted, expected = admitted_and_permitted("gcra", seconds=30, control_delay=control_delay)
    assert admitted == pytest.approx(expected, rel=0.02)


def test_the_control_delay_matters_to_log_and_hardly_to_gcra():
    """The tolerance is that of a machine that stops for 0.2 s."""
    admitted, expected = admitted_and_permitted("gcra", seconds=3, control_delay=0.05)
    assert admitted == pytest.approx(expected, rel=0.1)
    admitted, expected = admitted_and_permitted("log", seconds=3, control_delay=0.05)
    assert admitted > 1.3 * expected
