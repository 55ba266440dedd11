"""Laws of worlds in discrete time, for any agents and origins."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from headgate.lab.chance import Chance
from headgate.lab.policies import Policy
from headgate.lab.policies.throttle import Draft
from headgate.lab.runner import run_scenario
from headgate.lab.scenario_file import find, read_scenario
from headgate.lab.ticks.settings import (
    Cooling,
    Crawlers,
    Interactive,
    Metered,
    Pollers,
    Prefetchers,
    Queue,
    Requesters,
    TickScenario,
)
from headgate.lab.ticks.world import World

NAMES = ["a", "b"]
COUNTS = st.integers(1, 30)
SECONDS = st.sampled_from([0.3, 1.0, 2.5, 7.0])
COMMON = {"count": COUNTS, "origins": st.sampled_from([(), ("a",), ("b",), ("a", "b")]), "obeys": st.booleans()}
GROUPS = st.one_of(
    st.builds(Requesters, name=st.just("r"), interval=SECONDS, jitter=st.just(0.2), start=SECONDS, **COMMON),
    st.builds(Pollers, name=st.just("p"), interval=SECONDS, **COMMON),
    st.builds(Interactive, name=st.just("i"), think=SECONDS, deadline=SECONDS, retry=st.just((0.5, 2.0)), **COMMON),
    st.builds(Crawlers, name=st.just("c"), pages=COUNTS, connections=st.integers(1, 4), retry=SECONDS, **COMMON),
    st.builds(Prefetchers, name=st.just("f"), think=SECONDS, proxies=st.integers(1, 40), **COMMON),
)
EXTRAS = {
    "capacity": st.sampled_from([0.4, 3.0, 10.0, 1000.0]),
    "delay": st.sampled_from([0.0, 0.0, 0.4, 3.0]),
    "errors": st.sampled_from([None, 0.0, 0.3]),
    "outages": st.sampled_from([(), ((5.0, 9.0),), ((0.0, 3.0), (8.0, 30.0))]),
    "limit": st.sampled_from(["", "", "1/s burst 3", "3/min burst 1"]),
}


def origins(name):
    return st.one_of(
        st.builds(Cooling, name=st.just(name), cooling=st.integers(0, 3), **EXTRAS),
        st.builds(Metered, name=st.just(name), refusal=st.sampled_from([0.0, 0.25, 1.0]), **EXTRAS),
        st.builds(Queue, name=st.just(name), queue=st.integers(0, 20), **EXTRAS),
    )


def scenario(groups, one, two, tick, errors):
    made = TickScenario(
        description="Any.",
        world="ticks",
        policies=("none", "draft"),
        tick=tick,
        ticks=30,
        warmup=5,
        errors=errors,
        agents=tuple(replace(group, name=f"{group.name}{index}") for index, group in enumerate(groups)),
        origins=(one, two),
    )
    made.check()
    return made


SCENARIOS = st.builds(
    scenario,
    st.lists(GROUPS, min_size=1, max_size=3),
    origins("a"),
    origins("b"),
    st.sampled_from([1.0, 0.25, 2.0]),
    st.sampled_from([0.0, 0.2]),
)
SEEDS = st.integers(0, 2**63 - 1)


class Idle(Policy):
    """Never holds a request, and draws."""

    def release(self, *, now):
        self.draw()
        return now

    def received(self, status, headers, *, now):
        self.draw()


def finished(one, policy, seed):
    world = World(one, policy, Chance(seed))
    world.run(record=True)
    return world


@given(SCENARIOS, SEEDS)
def test_a_policy_that_never_holds_gives_the_world_of_none(one, seed):
    idle, none = (finished(one, policy, seed) for policy in (Idle, Policy))
    assert (idle.metrics(), idle.series()) == (none.metrics(), none.series())


@given(SCENARIOS, SEEDS)
def test_the_same_seed_gives_the_same_world(one, seed):
    first, second = (finished(one, Draft, seed) for _ in range(2))
    assert (first.metrics(), first.series()) == (second.metrics(), second.series())


@given(SCENARIOS, SEEDS)
def test_shares_are_from_zero_to_one_and_series_have_all_ticks(one, seed):
    world = finished(one, Draft, seed)
    for name, value in world.metrics().items():
        assert value >= 0, name
        if name.endswith(("_success", "_blocked", "_pages")):
            assert value <= 1, name
    series = world.series()
    assert {len(values) for values in series.values.values()} == {30}
    assert all(0 <= count <= len(world.agents) for count in series.values["holds"])


@given(SCENARIOS, SEEDS)
def test_every_request_is_answered_once_or_under_way(one, seed):
    world = finished(replace(one, warmup=0), Draft, seed)
    answers = sum(counts.answered + counts.failed for counts in world.counts.values())
    sent = sum(sum(origin.load) for origin in world.origins)
    assert answers <= sum(sum(origin.load) for origin in world.origins)
    # What was not answered waits in a queue or gate, or is on its way: at most one request of each agent.
    assert sent - answers <= len(world.agents)
    if not any(isinstance(origin, Queue) or origin.delay or origin.limit for origin in one.origins):
        assert sent == answers


@given(SCENARIOS, SEEDS)
def test_a_server_serves_no_more_than_its_capacity(one, seed):
    world = finished(one, Policy, seed)
    for settings_of_origin, origin in zip(one.origins, world.origins, strict=True):
        if isinstance(settings_of_origin, (Metered, Queue)):
            # What was left of a request in the last tick, less than one, is carried over.
            assert origin.useful <= one.ticks * origin.server.capacity_per_tick + 1 + 1e-6


@settings(max_examples=5)
@given(SEEDS)
def test_a_policy_that_is_added_changes_no_other(seed):
    one = read_scenario(find("attack"), [f"seeds=[{seed}]", "ticks=60"])
    both, alone = (
        run_scenario(replace(one, policies=names, summary="mean")) for names in (("none", "draft"), ("draft",))
    )
    assert both.policies["draft"] == alone.policies["draft"]
