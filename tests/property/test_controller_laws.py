"""Laws of the controller of traffic advice, for all sequences of fetches, arrivals and clocks."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headgate.advice.controller import AgentClass, Controller, Settings
from headgate.advice.demand import share
from headgate.advice.fetch_log import FetchLog
from headgate.advice_control import Entry, document

NOW = 1_700_000_000.0
NAMES = ("polite", "*")
SETTINGS = Settings(
    capacity=100.0, classes=(AgentClass("polite", weight=2.0), AgentClass("*")), max_age=600.0, max_agents=5
)

names = st.sampled_from(NAMES)
agents = st.integers(0, 20)
counts = st.floats(0, 1e9)
rates = st.floats(0, 1e6)


class AnySequence(RuleBasedStateMachine):
    """Fetches, arrivals and decisions in any order, with clocks that are set, and any capacity."""

    def __init__(self) -> None:
        super().__init__()
        self.controller = Controller(SETTINGS)
        self.now = NOW

    @rule(name=names, agent=agents, max_age=st.none() | st.floats(0, 1e6))
    def fetch(self, name: str, agent: int, max_age: float | None) -> None:
        entry = self.controller.fetched(name, agent, now=self.now, max_age=max_age)
        assert entry in self.controller.entries

    @rule(name=names | st.none() | st.just("other"), agent=st.none() | agents, count=counts)
    def arrive(self, name: str | None, agent: int | None, count: float) -> None:
        self.controller.arrived(name, agent, count=count)

    @rule(seconds=st.sampled_from([0.0, 1.0, 59.95, 60.0, 90.0, 120.0, 700.0, 1e6, -1.0, -1e6]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(capacity=st.none() | rates, frozen=st.booleans())
    def update(self, capacity: float | None, frozen: bool) -> None:
        before = self.controller.entries
        entries = self.controller.update(now=self.now, capacity=capacity, frozen=frozen)
        assert entries == self.controller.entries
        assert not frozen or entries == before

    @rule(capacity=rates)
    def period(self, capacity: float) -> None:
        self.now += 60.0
        self.controller.update(now=self.now, capacity=capacity)

    @invariant()
    def is_valid_and_bounded(self) -> None:
        document(self.controller.entries)
        for entry, explanation in zip(self.controller.entries, self.controller.explain(), strict=True):
            assert entry.disallow or SETTINGS.floor * 0.95 <= entry.fraction <= 1.0
            assert entry.disallow == (explanation.fraction == 0.0)
            assert 0.0 <= explanation.in_force <= 1.0 + 1e-9 or explanation.demand == 0.0
            assert explanation.demand >= 0.0
            assert math.isfinite(explanation.demand)
            assert explanation.agents <= SETTINGS.max_agents
            assert explanation.compliance is None or 0.0 <= explanation.compliance <= 1.0
        for each in self.controller._classes.values():
            demand = each.demand
            assert len(demand._published) <= 10
            assert len(demand._pool._periods) <= 11
            assert 0.0 <= demand._pool.compliance <= 1.0
            assert len(demand._log._served) + len(demand._log._stale) <= SETTINGS.max_agents
            assert all(1 <= len(served._fetches) <= 32 for served in demand._log._served.values())
            for window in (demand.window, demand.uncontrolled):
                assert len(window._periods) <= 10
                assert len(window._estimates) <= 30
            assert 0.5 * demand.window.demand <= demand.window.forecast(330.0) <= 2.0 * demand.window.demand


TestAnySequence = AnySequence.TestCase


def run(controller: Controller, phases: list[float], rates: list[float], periods: int) -> list[float]:
    """Return the load of each period; an agent fetches once per max-age, at its phase, and obeys at once."""
    fractions = dict.fromkeys(range(len(phases)), 1.0)
    loads = []
    controller.update(now=NOW)
    for period in range(periods):
        start, load = NOW + 60.0 * period, 0.0
        for agent, phase in enumerate(phases):
            if period % 10 == int(phase * 10):
                entry = controller.fetched("*", agent, now=start)
                fractions[agent] = 0.0 if entry.disallow else entry.fraction
            load += fractions[agent] * rates[agent]
            controller.arrived("*", agent, count=fractions[agent] * rates[agent] * 60.0)
        controller.update(now=start + 60.0)
        loads.append(load)
    return loads


@given(
    st.lists(st.tuples(st.floats(0, 0.999), st.floats(1, 100)), min_size=1, max_size=30),
    st.floats(0.5, 900),
)
def test_constant_demand_settles_within_one_max_age_and_one_period(
    population: list[tuple[float, float]], overload: float
) -> None:
    """The load is at most the target from then on, and at least 5 % below it, the hysteresis."""
    phases, rates = [phase for phase, _ in population], [rate for _, rate in population]
    demand = sum(rates)
    controller = Controller(Settings(capacity=demand / overload, target=1.0))
    loads = run(controller, phases, rates, 40)
    wanted = min(demand, demand / overload)
    for load in loads[11:]:
        assert load == pytest.approx(wanted, rel=0.0501)  # the hysteresis, and six decimal places


@given(st.permutations(range(8)), st.lists(st.floats(0, 1), min_size=8, max_size=8))
def test_order_of_fetches_within_an_instant_does_not_matter(order: list[int], fractions: list[float]) -> None:
    logs = [FetchLog(8), FetchLog(8)]
    for log, agents in zip(logs, (range(8), order), strict=True):
        log.add(0, 1.0, now=NOW, max_age=600.0)
        for agent in agents:
            log.add(agent, fractions[agent], now=NOW + 100.0, max_age=600.0)
    assert logs[0].read(now=NOW + 200.0).mean == pytest.approx(logs[1].read(now=NOW + 200.0).mean)
    histories = [(logs[0].history(agent), logs[1].history(agent)) for agent in order]
    assert all(first and second and first.fraction == second.fraction for first, second in histories)


@given(st.lists(st.tuples(st.integers(0, 9), st.floats(0, 1), st.integers(0, 300)), min_size=1, max_size=32))
def test_mean_in_force_equals_that_of_the_whole_history(fetches: list[tuple[int, float, int]]) -> None:
    """An agent that fetches again is several, of which each obeys what it fetched."""
    log, now = FetchLog(10), NOW
    held: dict[int, list[float]] = {}
    integral = 0.0

    def mean_held() -> float:
        return sum(sum(fractions) / len(fractions) for fractions in held.values()) / len(held)

    for agent, fraction, pause in fetches:
        log.add(agent, fraction, now=now, max_age=1e9)
        held.setdefault(agent, []).append(fraction)
        integral += pause * mean_held()
        now += pause
    total = now - NOW
    mean = integral / total if total else mean_held()
    assert log.read(now=now).mean == pytest.approx(mean, abs=1e-6)


@given(
    rates,
    st.dictionaries(st.sampled_from("abcdef"), st.tuples(rates, st.floats(0.01, 100)), min_size=1),
)
def test_shares_are_weighted_max_min_fair(available: float, classes: dict[str, tuple[float, float]]) -> None:
    demands = {name: demand for name, (demand, _) in classes.items()}
    weights = {name: weight for name, (_, weight) in classes.items()}
    shares = share(available, demands, weights)
    assert sum(shares.values()) == pytest.approx(min(available, sum(demands.values())), abs=1e-6)
    levels = [shares[name] / weights[name] for name in classes]
    for name in classes:
        assert 0.0 <= shares[name] <= demands[name]
        if shares[name] < demands[name] * (1 - 1e-9):
            # A class that gets less than it demands is at the highest level.
            assert shares[name] / weights[name] >= max(levels) * (1 - 1e-6) - 1e-9


@given(st.lists(st.tuples(names, st.floats(0, 1)), max_size=2, unique_by=lambda pair: pair[0]))
def test_controller_starts_with_the_entries_of_another(start: list[tuple[str, float]]) -> None:
    entries = [
        Entry(name, fraction=fraction) if fraction >= 0.01 else Entry(name, disallow=True) for name, fraction in start
    ]
    controller = Controller(SETTINGS, start=entries)
    published = {entry.user_agent: entry for entry in controller.entries}
    for entry in entries:
        assert published[entry.user_agent].disallow == entry.disallow
        assert published[entry.user_agent].fraction == pytest.approx(entry.fraction, abs=1e-4)
