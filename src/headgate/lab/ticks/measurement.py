"""What is measured of a world in discrete time: metrics after the warm-up, and series over all ticks.

It reads only counts of agents and of origins, so that a world which keeps its agents in arrays is measured alike.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Final

from headgate.lab.results import Metrics, Series
from headgate.lab.ticks.agents import Counts
from headgate.lab.ticks.engine import Origin
from headgate.lab.ticks.origins import CoolingServer, QueueServer
from headgate.lab.ticks.settings import AgentGroup, Crawlers, Interactive, Requesters, TickScenario

RECOVERY: Final = 60.0
"""Seconds after an outage in which the recovery is measured."""


def metrics(
    scenario: TickScenario,
    counts: Mapping[str, Counts],
    origins: Sequence[Origin],
    *,
    fetched: Mapping[str, int] = MappingProxyType({}),
) -> Metrics:
    """Return what was measured after the warm-up, and by crawlers in the whole run.

    `counts` has the counts of each group by its name, `fetched` the pages that were fetched by each group of crawlers.
    """
    measured: Metrics = {}
    for origin in origins:
        of_origin = _origin_metrics(scenario, origin)
        measured |= {_prefix(origin, origins) + name: value for name, value in of_origin.items()}
    for group in scenario.agents:
        of_group = _group_metrics(group, counts[group.name])
        if isinstance(group, Crawlers):
            of_group["pages"] = _share(fetched[group.name], group.count * group.pages)
        measured |= {f"{group.name}_{name}": value for name, value in of_group.items()}
    measured["local_refusals"] = float(sum(one.refused for one in counts.values()))
    return measured


def series(
    scenario: TickScenario, origins: Sequence[Origin], *, holds: Sequence[int], refused: Sequence[int]
) -> Series:
    """Return what was measured in each tick, the warm-up included; `holds` and `refused` are those of the engine."""
    values: dict[str, list[float]] = {}
    for origin in origins:
        prefix, capacity = _prefix(origin, origins), origin.server.capacity_per_tick
        useful = [after - before for before, after in pairwise([0, *origin.useful_by_tick])]
        values[f"{prefix}load"] = [count / capacity for count in origin.load]
        values[f"{prefix}goodput"] = [count / capacity for count in useful]
        if isinstance(origin.server, QueueServer):
            values[f"{prefix}waiting"] = [float(count) for count in origin.waiting]
        values |= {prefix + name: signal for name, signal in origin.signals.items()}
    values["holds"] = [float(count) for count in holds]
    values["local_refusals"] = [float(count) for count in refused]
    return Series([tick * scenario.tick for tick in range(scenario.total_ticks)], values)


def _prefix(origin: Origin, origins: Sequence[Origin]) -> str:
    return f"{origin.server.name}_" if len(origins) > 1 else ""


def _origin_metrics(scenario: TickScenario, origin: Origin) -> Mapping[str, float]:
    warmup, capacity = scenario.warmup, origin.server.capacity_per_tick
    load = origin.load[warmup:]
    if isinstance(origin.server, CoolingServer):
        overloaded = sum(count > capacity for count in load)
        return {"overloaded_ticks": float(overloaded), "max_requests": float(max(load))}
    measured = {
        "goodput": _useful(origin, warmup, len(origin.load)) / (len(load) * capacity),
        "server_load": sum(load) / (len(load) * capacity),
    }
    if isinstance(origin.server, QueueServer):
        waits = origin.server.waits[warmup:]
        measured["wait"] = _share(math.fsum(seconds for _, seconds in waits), sum(number for number, _ in waits))
    if scenario.outage:
        _, end = scenario.outage_ticks
        ticks = min(round(RECOVERY / scenario.tick), len(origin.load) - end)
        measured["recovery_goodput"] = _useful(origin, end, end + ticks) / (max(ticks, 1) * capacity)
    return measured


def _useful(origin: Origin, start: int, end: int) -> int:
    """Return the responses that agents could use in the ticks from `start` to the one before `end`."""
    until: Sequence[int] = [0, *origin.useful_by_tick]
    return until[end] - until[start]


def _group_metrics(group: AgentGroup, counts: Counts) -> dict[str, float]:
    if isinstance(group, Interactive):
        return {"success": _share(counts.visited, counts.visited + counts.lost)}
    measured = {"success": _share(counts.answered, counts.attempts)}
    if isinstance(group, Requesters):
        measured["blocked"] = _share(counts.refused, counts.attempts)
    return measured


def _share(part: float, whole: int) -> float:
    """Return a share, or a mean, of what happened; 0 if nothing did."""
    return part / whole if whole else 0.0
