"""One run of the event-driven world."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headgate.lab.chance import Chance, Purpose
from headgate.lab.events.clients import clients_of
from headgate.lab.events.gate import Gate
from headgate.lab.events.laws import FixedLimit, Law, NoLimit
from headgate.lab.events.meter import Meter
from headgate.lab.events.settings import EventScenario
from headgate.lab.events.timeline import Timeline
from headgate.lab.results import NO_SERIES, Run

LAWS: Final[Mapping[str, Any]] = {"fixed": FixedLimit, "none": NoLimit}
"""The built-in laws by name."""


def run(scenario: EventScenario, policy: str, seed: int, *, record: bool = False) -> Run:
    """Run the scenario under one law with one seed."""
    chance = Chance(seed)
    timeline = Timeline()
    meter = Meter([load.name for load in scenario.loads], warmup=scenario.warmup, record=record)
    law = make_law(scenario, policy, chance)
    gate = Gate(timeline, law, scenario.station, chance.stream(Purpose.ORIGIN), meter)
    for change in scenario.changes:
        timeline.schedule(change.at, gate.station.change, change, rank=-1)
    for load in scenario.loads:
        clients_of(load, timeline, gate, meter, chance).begin(scenario.station.capacity)
    start, number = 0.0, 0
    while start < scenario.seconds:
        number += 1
        end = min(number * scenario.sample, scenario.seconds)
        timeline.run(end)
        gate.station.measure(meter.current, end - start)
        meter.sample(start, law.signals())
        start = end
    return Run(policy, seed, meter.metrics(), meter.series() if record else NO_SERIES)


def make_law(scenario: EventScenario, name: str, chance: Chance) -> Law:
    """Create a law with its settings from the scenario."""
    kind = LAWS[name]
    settings = msgspec.convert(scenario.laws.get(name, {}), kind.Settings)
    law: Law = kind(settings, chance.stream(Purpose.GATE))
    return law
