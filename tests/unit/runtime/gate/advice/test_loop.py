"""The loop from reports of workers to the published document, with agents that obey it and an injected clock."""

import json
import math

import pytest
from msgspec.structs import replace

from headgate.config.advice_section import AdviceEntrySection, AdviceSection
from headgate.origin.gateway.advice_resource import AdviceFetch
from headgate.origin.gateway.arrivals import KnownAgent
from headgate.runtime.gate.advice import entries as entries_module
from headgate.runtime.gate.advice import loop as loop_module
from headgate.runtime.gate.advice.entries import arrival_classes, report_interval
from headgate.runtime.gate.advice.loop import AdviceLoop
from headgate.runtime.gate.advice.messages import AdviceReport, OriginReport

NOW = 1_700_000_000.0
SECTION = AdviceSection(mode="adaptive", capacity="100/s")


def ignore(_message: str) -> None:
    pass


def loop(section: AdviceSection = SECTION) -> AdviceLoop:
    return AdviceLoop(section, now=NOW, log=ignore)


def published(document: bytes) -> dict[str, float]:
    return {
        entry["user_agent"]: 0.0 if entry.get("disallow") else entry.get("fraction", 1.0)
        for entry in json.loads(document)
    }


class Agents:
    """Agents of one class that send `rate` requests per second each, of which they leave out what they are advised to;
    they report through as many workers as there are."""

    def __init__(
        self, decides: AdviceLoop, *, count: int, rate: float, name: str = "*", max_age: float = 600.0
    ) -> None:
        self.loop, self.count, self.rate, self.name, self.max_age = decides, count, rate, name, max_age
        self.agents = [KnownAgent(b"192.0.2.%d" % number, b"Bot") for number in range(count)]
        self.fractions = [1.0] * count
        self.fetch_at = [NOW + max_age * number / count for number in range(count)]
        self.now = NOW
        self.load = 0.0

    def run(self, seconds: int, *, workers: int = 1, failed: float = 0.0) -> float:
        for _ in range(seconds):
            publication = self.loop.publication
            fractions, fetches, arrivals = published(publication.document), [], []
            for number, agent in enumerate(self.agents):
                if self.fetch_at[number] <= self.now:
                    self.fetch_at[number] += self.max_age
                    self.fractions[number] = fractions[self.name]
                    fetches.append(AdviceFetch(agent.address, agent.brand, publication.serial))
                arrivals.append((self.name, agent.key, self.rate * self.fractions[number]))
            self.now += 1.0
            self.load = sum(sent for _, _, sent in arrivals)
            for worker in range(workers):
                sent = arrivals[worker::workers]
                lost = math.ceil(failed * sum(count for _, _, count in sent))
                report = AdviceReport(fetches[worker::workers], sent, 0, OriginReport(failed=lost))
                self.loop.take(report, now=self.now)
            self.loop.tick(now=self.now)
        return self.load


def state(decides: AdviceLoop, name: str = "*"):
    (found,) = [each for each in decides.state() if each.user_agent == name]
    return found


@pytest.mark.parametrize("workers", [1, 3])
def test_the_load_comes_down_to_the_capacity(workers: int) -> None:
    decides = loop()
    agents = Agents(decides, count=40, rate=10.0)
    assert agents.run(1_300, workers=workers) == pytest.approx(97.0, rel=0.1)
    found = state(decides)
    assert found.fraction == found.published == pytest.approx(97 / 400, rel=0.1)
    assert found.demand == pytest.approx(400.0, rel=0.1)
    assert found.agents == 40


def test_entries_without_a_file_are_for_prefetch_proxies_and_all_agents() -> None:
    assert published(loop().publication.document) == {"prefetch-proxy": 1.0, "*": 1.0}


def test_static_entries_are_published_as_written_beside_computed_ones() -> None:
    entries = (
        AdviceEntrySection(user_agent="ExampleBot", fraction=0.5),
        AdviceEntrySection(user_agent="OtherBot", disallow=True),
        AdviceEntrySection(user_agent="*", fraction="auto"),
    )
    decides = loop(AdviceSection(mode="adaptive", capacity="100/s", entry=entries))
    Agents(decides, count=40, rate=10.0).run(700)
    fractions = published(decides.publication.document)
    assert (fractions["ExampleBot"], fractions["OtherBot"]) == (0.5, 0.0)
    assert fractions["*"] < 0.5
    assert [each.reason for each in decides.state()][:2] == ["static", "static"]


def test_people_leave_less_to_agents() -> None:
    decides = loop()
    agents = Agents(decides, count=40, rate=10.0)
    for _ in range(1_300):
        decides.take(AdviceReport(people=50), now=agents.now)
        agents.run(1)
    assert agents.load == pytest.approx(47.0, rel=0.15)


def test_monitor_computes_and_publishes_the_entries_as_written() -> None:
    decides = loop(AdviceSection(mode="monitor", capacity="100/s"))
    agents = Agents(decides, count=40, rate=10.0)
    assert agents.run(1_300) == 400.0
    assert published(decides.publication.document) == {"prefetch-proxy": 1.0, "*": 1.0}
    found = state(decides)
    assert found.published == 1.0
    assert found.fraction == pytest.approx(97 / 400, rel=0.1)
    assert found.demand == pytest.approx(400.0, rel=0.05)


def test_an_override_is_published_and_named_as_the_reason() -> None:
    decides = loop(AdviceSection(mode="adaptive", capacity="100/s", override=0.125))
    agents = Agents(decides, count=40, rate=10.0)
    assert agents.run(1_300) == pytest.approx(50.0)
    assert published(decides.publication.document) == {"prefetch-proxy": 0.125, "*": 0.125}
    found = state(decides)
    assert (found.published, found.reason) == (0.125, "override")
    assert found.demand == pytest.approx(400.0, rel=0.05)


@pytest.mark.parametrize("keys", [{"mode": "monitor"}, {"override": 0.125}, {"ceiling": 0.125}], ids=str)
def test_agents_that_are_not_remembered_count_by_what_was_published(
    keys: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries_module, "MAX_AGENTS", 10)
    decides = loop(replace(SECTION, **keys))
    agents = Agents(decides, count=40, rate=10.0)
    agents.run(1_300)
    assert state(decides).demand == pytest.approx(400.0, rel=0.05)


def test_an_override_of_0_disallows() -> None:
    decides = loop(AdviceSection(mode="adaptive", capacity="100/s", override=0.0))
    assert json.loads(decides.publication.document)[1] == {"user_agent": "*", "disallow": True}


def test_no_fraction_is_above_the_ceiling() -> None:
    decides = loop(AdviceSection(mode="adaptive", capacity="1000/s", ceiling=0.5))
    agents = Agents(decides, count=40, rate=10.0)
    assert agents.run(1_300) == 200.0
    assert published(decides.publication.document)["*"] == 0.5
    assert state(decides).demand == pytest.approx(400.0, rel=0.05)


def test_an_origin_that_is_down_freezes_the_fractions() -> None:
    decides = loop()
    agents = Agents(decides, count=40, rate=10.0)
    agents.run(1_320)
    before = state(decides).fraction
    agents.rate = 0.1
    agents.run(600, failed=0.6)
    assert (state(decides).fraction, state(decides).reason) == (before, "frozen")
    agents.run(600)
    assert state(decides).fraction > before


@pytest.mark.parametrize(("rejected", "is_down"), [(0, False), (60, True)])
def test_failures_are_compared_with_the_requests_that_no_rule_rejected(rejected, is_down) -> None:
    decides = loop()
    arrivals = [("*", b"192.0.2.1 Bot", 50)]
    decides.take(AdviceReport(arrivals=arrivals, people=50, origin=OriginReport(rejected, 10)), now=NOW + 60.0)
    decides.tick(now=NOW + 60.0)
    assert (state(decides).reason == "frozen") is is_down


def test_a_prefetch_proxy_is_known_by_its_requests() -> None:
    decides = loop()
    agents = Agents(decides, count=40, rate=10.0, name="prefetch-proxy")
    assert agents.run(1_300) == pytest.approx(97.0, rel=0.1)
    assert state(decides, "prefetch-proxy").agents == 40


def test_fetches_of_a_document_that_was_replaced_count_with_its_fraction() -> None:
    decides = loop()
    agents = Agents(decides, count=40, rate=10.0)
    agents.run(700)
    late = AdviceFetch(b"198.51.100.1", b"Bot", 1)
    decides.take(AdviceReport([late], []), now=agents.now)
    decides.take(AdviceReport([], [("*", KnownAgent(late.address, b"Bot").key, 6_000)]), now=agents.now)
    agents.run(60)
    # 100 requests per second more, of an agent that was served a fraction of 1: as many in the demand.
    assert state(decides).demand == pytest.approx(500.0, rel=0.1)


def test_a_publication_has_the_agents_that_have_fetched_since_the_last_one() -> None:
    decides = loop()
    decides.take(AdviceReport([AdviceFetch(b"192.0.2.1", b"Bot/1", 1)]), now=NOW)
    publication = decides.tick(now=NOW + 1)
    assert publication is not None
    assert publication.agents == [KnownAgent(b"192.0.2.1", b"Bot")]
    assert decides.tick(now=NOW + 2) is None
    assert decides.publication.agents == [KnownAgent(b"192.0.2.1", b"Bot")]


def test_domains_of_other_priorities_belong_to_a_class() -> None:
    priorities = {"site": "people", "api": "automated", "crawl": "verified", "speculative": "prefetch"}
    classes = arrival_classes(SECTION, priorities)
    assert classes.domains == {"api": "*", "crawl": "*", "speculative": "prefetch-proxy"}
    entries = (AdviceEntrySection(user_agent="*", fraction="auto", domains=("site",)),)
    classes = arrival_classes(AdviceSection(mode="adaptive", capacity="1/s", entry=entries), priorities)
    assert classes.domains == dict.fromkeys(priorities, "*")


@pytest.mark.parametrize(("period", "seconds"), [(60.0, 1.0), (5.0, 0.5), (0.1, 0.05)])
def test_workers_report_often_in_a_period(period: float, seconds: float) -> None:
    assert report_interval(AdviceSection(period=period)) == seconds


def overloaded(section: AdviceSection = SECTION) -> tuple[AdviceLoop, Agents]:
    decides = loop(section)
    agents = Agents(decides, count=40, rate=10.0)
    agents.run(1_300)
    return decides, agents


def test_a_restart_in_overload_goes_on_with_the_fractions_and_the_agents() -> None:
    decides, agents = overloaded()
    before = state(decides).published
    again = AdviceLoop(SECTION, saved=decides.saved(now=agents.now), now=agents.now, log=ignore)
    assert published(again.publication.document)["*"] == before
    assert set(again.publication.agents) == set(agents.agents)
    agents.loop = again
    for _ in range(20):
        assert agents.run(60) < 110.0
        assert state(again).published == pytest.approx(before, rel=0.1)


def test_a_state_that_is_too_old_is_not_restored() -> None:
    decides, agents = overloaded()
    saved, later = decides.saved(now=agents.now), agents.now + 1_201
    again = AdviceLoop(SECTION, saved=saved, now=later, log=ignore)
    assert published(again.publication.document)["*"] == 1.0


def test_a_reload_of_the_capacity_keeps_what_is_known() -> None:
    decides, agents = overloaded()
    before = decides.publication
    decides.reload(replace(SECTION, capacity="50/s"), now=agents.now)
    assert decides.publication.document == before.document
    assert state(decides).demand == pytest.approx(400.0, rel=0.1)
    assert agents.run(1_300) == pytest.approx(48.5, rel=0.1)


def test_a_reload_of_the_override_publishes_at_once_and_its_end_starts_from_it() -> None:
    decides, agents = overloaded()
    decides.reload(replace(SECTION, override=0.0), now=agents.now)
    assert published(decides.publication.document) == {"prefetch-proxy": 0.0, "*": 0.0}
    assert agents.run(1_300) == 0.0
    decides.reload(SECTION, now=agents.now)
    assert published(decides.publication.document)["*"] == 0.0
    # It rises as after a restart: agents that were held do not return at once.
    loads = [agents.run(60) for _ in range(40)]
    assert max(loads) < 130.0
    assert loads[-1] == pytest.approx(97.0, rel=0.15)


def test_each_reload_that_changes_the_document_gives_it_a_number() -> None:
    decides, _ = overloaded()
    before = decides.publication.serial
    decides.reload(replace(SECTION, override=0.5), now=NOW + 1_300)
    assert decides.publication.serial == before + 1
    decides.reload(replace(SECTION, override=0.5), now=NOW + 1_301)
    assert decides.publication.serial == before + 1


def test_a_prefetch_of_an_agent_whose_advice_is_stale_shows_no_fetch() -> None:
    decides = loop()
    agent = KnownAgent(b"192.0.2.1", b"Proxy")
    decides.take(AdviceReport([AdviceFetch(*agent, 1)]), now=NOW)
    decides.take(AdviceReport(arrivals=[("prefetch-proxy", agent.key, 1)]), now=NOW + 601)
    assert state(decides, "prefetch-proxy").agents == 0


def test_a_prefetch_does_not_renew_the_advice_of_its_agent() -> None:
    decides = loop()
    agent = KnownAgent(b"192.0.2.1", b"Proxy")
    decides.take(AdviceReport([AdviceFetch(*agent, 1)]), now=NOW)
    decides.take(AdviceReport(arrivals=[("prefetch-proxy", agent.key, 1)]), now=NOW + 500)
    decides.tick(now=NOW + 540)
    assert state(decides, "prefetch-proxy").agents == 1
    decides.tick(now=NOW + 600)
    assert state(decides, "prefetch-proxy").agents == 0


def test_what_is_known_of_agents_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "MAX_AGENTS", 3)
    decides = loop()
    agents = [KnownAgent(b"192.0.2.%d" % number, b"Proxy") for number in range(9)]
    for agent in agents:
        decides.take(AdviceReport([AdviceFetch(*agent, 1)], [("prefetch-proxy", agent.key, 1)]), now=NOW)
    assert list(decides._fetched) == [agent.key for agent in agents[-3:]]
    decides.tick(now=NOW + 60)
    assert decides._proxies == {agent.key for agent in agents}
    decides.tick(now=NOW + 1_200)
    assert decides._proxies == set()


LEARNED = replace(SECTION, capacity="learned")


def test_without_a_learned_capacity_the_fractions_stay() -> None:
    decides = loop(LEARNED)
    agents = Agents(decides, count=40, rate=10.0)
    assert agents.run(700) == 400.0
    assert state(decides).reason == "capacity unknown"
    assert state(decides).published == 1.0


def test_the_capacity_is_the_sum_of_what_workers_have_learned() -> None:
    decides = AdviceLoop(LEARNED, workers=2, now=NOW, log=ignore)
    agents = Agents(decides, count=40, rate=10.0)
    decides.take(AdviceReport(origin=OriginReport(capacity=60.0)), worker=0, now=NOW)
    assert decides.capacity == 120.0
    decides.take(AdviceReport(origin=OriginReport(capacity=40.0)), worker=1, now=NOW)
    decides.take(AdviceReport(), worker=1, now=NOW)
    assert decides.capacity == 100.0
    assert agents.run(1_300) == pytest.approx(97.0, rel=0.1)


@pytest.mark.parametrize(("others", "capacity"), [(0, 60.0), (10, 80.0), (30, 120.0), (90, 120.0)])
def test_workers_that_have_learned_nothing_have_their_part_of_the_requests(others: int, capacity: float) -> None:
    """Kept connections may all be at one of the workers."""
    decides = AdviceLoop(LEARNED, workers=2, now=NOW, log=ignore)
    decides.take(AdviceReport(people=10, origin=OriginReport(capacity=60.0)), worker=0, now=NOW)
    decides.take(AdviceReport(arrivals=[("*", b"", 20)]), worker=0, now=NOW)
    decides.take(AdviceReport(people=others), worker=1, now=NOW)
    assert decides.capacity == pytest.approx(capacity)


def test_the_part_of_a_worker_follows_its_requests() -> None:
    decides = AdviceLoop(LEARNED, workers=2, now=NOW, log=ignore)
    decides.take(AdviceReport(people=100, origin=OriginReport(capacity=60.0)), worker=0, now=NOW)
    decides.take(AdviceReport(people=100), worker=1, now=NOW)
    for number in range(1, 11):
        decides.take(AdviceReport(people=100), worker=0, now=NOW)
        decides.tick(now=NOW + 60 * number)
    assert decides.capacity == pytest.approx(60.0, rel=0.01)


def test_a_learned_capacity_survives_a_restart() -> None:
    decides = loop(LEARNED)
    decides.take(AdviceReport(origin=OriginReport(capacity=80.0)), now=NOW)
    again = AdviceLoop(LEARNED, saved=decides.saved(now=NOW), now=NOW + 1e6, log=ignore)
    assert again.capacity == 80.0


def test_fractions_of_classes_without_an_entry_are_not_restored() -> None:
    saved = overloaded()[0].saved(now=NOW)
    entries = (AdviceEntrySection(user_agent="ExampleBot", fraction="auto"),)
    other = AdviceLoop(replace(SECTION, entry=entries), saved=saved, now=NOW, log=ignore)
    assert published(other.publication.document) == {"ExampleBot": 1.0}


def test_the_log_has_a_line_for_a_change() -> None:
    lines: list[str] = []
    decides = AdviceLoop(SECTION, now=NOW, log=lines.append)
    Agents(decides, count=40, rate=10.0).run(1_300)
    assert lines[0].startswith("traffic advice: prefetch-proxy 1 (")
    assert len(lines) < 15
