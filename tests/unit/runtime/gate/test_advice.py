"""The advice loop of a gate: what processes report, and the document that follows."""

import json

import pytest

from headgate.config import Configuration, parse
from headgate.observe import AdviceState
from headgate.origin.gateway.arrivals import PEOPLE
from headgate.runtime.gate_advice import (
    AdviceLoop,
    AdviceReport,
    GateAdvice,
    arrival_classes,
    make_loop,
    report_interval,
    static_states,
)

NOW = 1_000.0
PERIOD = 60.0


def tree(text: str = "", *, mode: str = "adaptive", capacity: str = "100/s") -> Configuration:
    return parse(f'[advice]\nmode = "{mode}"\ncapacity = "{capacity}"\n{text}')


class Site:
    """A loop, and what its processes report in each period."""

    def __init__(self, configuration: Configuration | None = None, *, workers: int = 1) -> None:
        self.lines: list[str] = []
        section = (configuration or tree()).advice
        self.loop = AdviceLoop(section, workers=workers, now=NOW, log=self.lines.append)
        self.now = NOW

    def period(self, *reports: AdviceReport) -> dict[str, float] | None:
        """End a period with reports of workers; return the fractions of a new document."""
        for worker, report in enumerate(reports):
            self.loop.take(report, worker=worker)
        self.now += PERIOD
        publication = self.loop.tick(now=self.now)
        return None if publication is None else fractions(publication.document)

    @property
    def states(self) -> dict[str, AdviceState]:
        return {state.user_agent: state for state in self.loop.state()}


def fractions(document: bytes) -> dict[str, float]:
    return {
        entry["user_agent"]: 0.0 if entry.get("disallow") else entry.get("fraction", 1.0)
        for entry in json.loads(document)
    }


def arrivals(rate: float, people: float = 0.0, **more: float) -> AdviceReport:
    return AdviceReport({"*": int(rate * PERIOD), PEOPLE: int(people * PERIOD)}, **more)


def test_several_workers_sum_their_arrivals():
    site = Site(workers=2)
    assert fractions(site.loop.publication.document) == {"prefetch-proxy": 1.0, "*": 1.0}
    document = site.period(arrivals(150.0, 20.0), arrivals(150.0, 27.0))
    assert document == {"prefetch-proxy": 1.0, "*": pytest.approx(50.0 / 300.0, abs=1e-5)}
    assert fractions(site.loop.publication.document) == document
    assert site.states["*"] == AdviceState("*", document["*"], document["*"], 300.0, 300.0, 1.0, "changed")
    assert site.lines == ["traffic advice: prefetch-proxy 1 (settled), * 0.167 (changed)"]


def test_a_document_that_stays_is_not_published_again():
    site = Site()
    assert site.period(arrivals(50.0)) is None
    assert site.loop.tick(now=site.now + 1.0) is None
    assert site.period(arrivals(50.0)) is None
    assert len(site.lines) == 1


def test_static_entries_stay_beside_computed_ones():
    site = Site(
        tree(
            '[[advice.entry]]\nuser_agent = "Bot"\nfraction = 0.5\n'
            '[[advice.entry]]\nuser_agent = "*"\nfraction = "auto"'
        )
    )
    # The requests of a class that is not computed are subtracted as those of people are.
    assert site.period(AdviceReport({"*": 12_000, "Bot": 2_820})) == {"Bot": 0.5, "*": pytest.approx(0.25)}
    assert site.states["Bot"] == AdviceState("Bot", 0.5, 0.5)


def test_monitor_reports_and_publishes_what_is_written():
    site = Site(tree(mode="monitor"))
    assert site.period(arrivals(200.0)) is None
    assert fractions(site.loop.publication.document) == {"prefetch-proxy": 1.0, "*": 1.0}
    assert (site.states["*"].fraction, site.states["*"].published) == (0.485, 1.0)
    assert site.lines[0].endswith("* 0.485 (changed), not published")


def test_while_the_origin_is_down_the_fractions_stay():
    site = Site()
    assert site.period(arrivals(200.0, failed=2_399)) is not None
    # A fifth of what was not rejected.
    assert site.period(arrivals(200.0, failed=1_200, rejected=6_000)) is None
    assert site.states["*"].reason == "frozen"


def test_a_capacity_is_learned():
    site = Site(tree(capacity="learned"), workers=4)
    assert site.period(arrivals(200.0)) is None
    assert (site.loop.capacity, site.states["*"].reason) == (0.0, "frozen")
    # Two of four workers have learned 30 requests per second each.
    site.loop.take(AdviceReport(capacity=30.0), worker=0)
    site.loop.take(AdviceReport(capacity=30.0), worker=1)
    site.loop.take(AdviceReport(), worker=1)
    assert site.loop.capacity == 120.0
    assert site.period(arrivals(200.0)) == {"prefetch-proxy": 1.0, "*": pytest.approx(0.582)}


def test_a_reload_keeps_the_fractions_and_changes_the_rest():
    site = Site()
    site.period(arrivals(400.0))
    before = site.loop.publication
    loop = make_loop(tree("floor = 0.01"), site.loop, workers=1, log=print)
    assert loop is site.loop
    assert loop.publication == before
    law = loop._law
    assert make_loop(tree("floor = 0.01", capacity="50/s"), loop, workers=1, log=print)._law is law
    assert loop.capacity == 50.0
    assert make_loop(Configuration(), site.loop, workers=1, log=print) is None
    assert make_loop(tree(), None, workers=1, log=print).publication != before


def test_what_a_process_serves_and_counts():
    advice = GateAdvice(Configuration(), None)
    assert (advice.resource, advice.arrivals) == (None, None)
    static = parse('[[advice]]\nuser_agent = "*"\nfraction = 0.5')
    advice = GateAdvice(static, None)
    assert advice.arrivals is None
    assert fractions(advice.resource._document) == {"*": 0.5}
    assert static_states(static) == (AdviceState("*", 0.5, 0.5),)
    computed = tree("max_age = 700")
    assert static_states(computed) == ()
    loop = make_loop(computed, None, workers=1, log=print)
    advice = GateAdvice(computed, loop.publication)
    assert advice.arrivals is not None
    assert (b"cache-control", b"max-age=700") in advice.resource._fields
    assert (b"cdn-cache-control", b"no-store") in advice.resource._fields


def test_domains_belong_to_the_class_of_their_entry_or_priority():
    text = (
        '[[advice.entry]]\nuser_agent = "Bot"\nfraction = "auto"\ndomains = ["bots"]\n'
        '[[advice.entry]]\nuser_agent = "*"\nfraction = "auto"\n'
    )
    for name, priority in (("bots", "people"), ("site", "people"), ("crawl", "automated"), ("pre", "prefetch")):
        text += f'[[domain]]\nname = "{name}"\npriority = "{priority}"\n'
    classes = arrival_classes(tree(text))
    assert classes.names == ("Bot", "*")
    assert classes.domains == {"bots": "Bot", "crawl": "*", "pre": "*"}


@pytest.mark.parametrize(("max_age", "seconds"), [(600, 1.0), (2, 0.02)])
def test_reports_are_frequent_enough_for_each_period(max_age, seconds):
    assert report_interval(tree(f"max_age = {max_age}")) == seconds
