"""One run of the event-driven world."""

from lab.chance import Chance, Purpose
from lab.events.catalogue import make_law
from lab.events.clients import clients_of
from lab.events.gate import Gate
from lab.events.meter import Meter
from lab.events.settings import EventScenario
from lab.events.timeline import Timeline
from lab.results import NO_SERIES, Run


def run(scenario: EventScenario, policy: str, seed: int, *, record: bool = False) -> Run:
    """Run the scenario under one law with one seed."""
    chance = Chance(seed)
    timeline = Timeline()
    meter = Meter([load.name for load in scenario.loads], warmup=scenario.warmup, record=record)
    law = make_law(policy, scenario.laws.get(policy, {}), chance.stream(Purpose.GATE), folder=scenario.folder)
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
