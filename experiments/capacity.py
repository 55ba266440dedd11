"""How many masters a load needs, how long accounting waits for a master, and what lost accounting costs.

``python -m experiments.capacity`` prints the tables of docs/scaling.md. The costs are those of one core of the machine
that the page names; change `COSTS` to those of yours.
"""

import math
from collections.abc import Callable, Iterator
from heapq import heapify, heapreplace
from itertools import product
from random import Random

import click
import msgspec

from experiments.bus_simulation import permitted, randomly, simulate
from experiments.over_admission import BATCH_DELAY, CURVES
from headgate.lab.events.bus import BusSettings
from headgate.limit import Rule

_TARGET = 0.6
"""The share of a core that a master should use, so that a lost master's load can move to others."""
_CONTROLS = 1_000
"""Controls per second: for example a hundred clients that are held at a rule of 10/s."""


class Costs(msgspec.Struct, frozen=True):
    """Seconds of CPU time."""

    batch: float = 5.1e-6
    """Of a master for each batch that it receives,"""
    record: float = 0.95e-6
    """for each record in it,"""
    shared: float = 3.7e-6
    """for each record if it shares them through a store,"""
    control: float = 3.5e-6
    """for each control that it publishes,"""
    subscriber: float = 0.4e-6
    """and for each gatekeeper that a control is sent to."""
    routed: float = 10e-6
    """Of a router for each batch or control that it forwards."""
    stored: float = 3.2e-6
    """Of Redis for each record."""


COSTS = Costs()


def records_per_batch(rate: float) -> float:
    """Return the mean number of records in a batch of a gatekeeper with so many requests per second.

    The first verdict waits for those that follow it.
    """
    return 1 + rate * BATCH_DELAY


def accounting_cores(rate: float, gatekeepers: int, costs: Costs = COSTS, *, shared: bool = False) -> float:
    """Return the cores that all masters together need to read the accounting of so many requests per second."""
    per_record = costs.shared if shared else costs.record
    return rate * (costs.batch / records_per_batch(rate / gatekeepers) + per_record)


def control_cores(controls: float, gatekeepers: int, costs: Costs = COSTS) -> float:
    """Return the cores that all masters together need to publish so many controls per second to all gatekeepers."""
    return controls * (costs.control + costs.subscriber * gatekeepers)


def router_cores(rate: float, controls: float, gatekeepers: int, costs: Costs = COSTS) -> float:
    """Return the cores that all routers together need."""
    batches = rate / records_per_batch(rate / gatekeepers)
    return (batches + controls) * costs.routed + controls * costs.subscriber * gatekeepers


def machines(rate: float, gatekeepers: int, controls: float, costs: Costs = COSTS) -> dict[str, float]:
    """Return the cores for each purpose, by its name."""
    publishing = control_cores(controls, gatekeepers, costs)
    return {
        "masters": accounting_cores(rate, gatekeepers, costs) + publishing,
        "routers": router_cores(rate, controls, gatekeepers, costs),
        "masters on Redis": accounting_cores(rate, gatekeepers, costs, shared=True) + publishing,
        "Redis": rate * costs.stored,
    }


def waits(rate: float, gatekeepers: int, seconds: float, seed: int, costs: Costs = COSTS) -> Iterator[float]:
    """Yield how long each batch waits for one master, in the order of arrival.

    The requests of each gatekeeper are a Poisson process.
    """
    random, own = Random(seed), rate / gatekeepers
    arrivals = [random.expovariate(own) + BATCH_DELAY for _ in range(gatekeepers)]
    heapify(arrivals)
    free = 0.0
    while (now := arrivals[0]) < seconds:
        heapreplace(arrivals, now + random.expovariate(own) + BATCH_DELAY)
        wait = max(0.0, free - now)
        yield wait
        free = now + wait + costs.batch + costs.record * (1 + _poisson(random, own * BATCH_DELAY))


def _poisson(random: Random, mean: float) -> int:
    """Return the number of events of a Poisson process within the time of `mean` events."""
    number, time = 0, random.expovariate(1.0)
    while time < mean:
        number, time = number + 1, time + random.expovariate(1.0)
    return number


def percentile(values: list[float], share: float) -> float:
    """Return the value that so large a share of `values` does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def admitted_with_loss(loss: float) -> float:
    """Return the requests admitted, relative to the rule, when so large a share of accounting is lost.

    With gcra, 4 gatekeepers, and a control delay of 10 ms.
    """
    rule, gatekeepers = Rule.parse(CURVES.rule), 4
    arrivals = randomly(CURVES.rate * gatekeepers, CURVES.seconds, gatekeepers, seed=1)
    outcome = simulate(BusSettings(rule, "gcra", gatekeepers, 0.01, loss=loss), arrivals)
    return outcome.admitted(CURVES.seconds) / permitted(rule, CURVES.seconds)


def _print_machines(print_line: Callable[[str], None]) -> None:
    print_line(f"Cores, in brackets processes that each use {_TARGET:.0%} of one; {_CONTROLS:,} controls per second")
    names = machines(1.0, 1, 0.0)
    print_line(f"{'requests/s':>12}{'gatekeepers':>13}{'each':>8}" + "".join(f"{name:>18}" for name in names))
    for rate, own in product((1e5, 1e6, 1e7), (1_000, 10_000)):
        cores = machines(rate, int(rate / own), _CONTROLS).values()
        cells = (f"{value:10.2f}{f'({math.ceil(value / _TARGET)})':>8}" for value in cores)
        print_line(f"{rate:12,.0f}{rate / own:13,.0f}{own:8,}" + "".join(cells))


def _print_waits(print_line: Callable[[str], None]) -> None:
    print_line("")
    print_line("Time that a batch of 100 gatekeepers waits for one master, in ms")
    print_line(f"{'utilisation':>12}{'requests/s':>12}{'mean':>9}{'p99':>9}{'longest':>9}")
    for utilisation in (0.3, 0.6, 0.8, 0.9, 0.95, 1.05):
        rate = _rate_for(utilisation, 100)
        found = [1_000 * wait for wait in waits(rate, 100, 10.0, seed=1)]
        mean = sum(found) / len(found)
        print_line(f"{utilisation:12.0%}{rate:12,.0f}{mean:9.3f}{percentile(found, 0.99):9.3f}{max(found):9.3f}")


def _rate_for(utilisation: float, gatekeepers: int) -> float:
    """Return the requests per second that use so large a share of one master."""
    low, high = 0.0, 1e7
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if accounting_cores(middle, gatekeepers) < utilisation else (low, middle)
    return low


def _print_losses(print_line: Callable[[str], None]) -> None:
    print_line("")
    print_line(f"Accounting lost, and requests admitted relative to {CURVES.rule}")
    for loss in (0.0, 0.01, 0.1, 0.5, 0.8):
        print_line(f"{loss:12.0%}{admitted_with_loss(loss):12.2f}")


@click.command()
def main() -> None:
    """Print the machines that a load needs, and what happens when a master has too little time."""
    for print_table in (_print_machines, _print_waits, _print_losses):
        print_table(click.echo)


if __name__ == "__main__":
    main()
