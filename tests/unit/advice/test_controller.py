import pytest

from headgate.advice.controller import AgentClass, Controller, Settings
from headgate.advice_control import Entry
from headgate.errors import ConfigurationError

NOW = 1_700_000_000.0


class Plant:
    """Agents that send `rate` requests per second each, by the fraction that they fetched last."""

    def __init__(self, controller, *, agents, rate, max_age=600.0, staggered=True):
        self.controller, self.rate, self.max_age = controller, rate, max_age
        self.names = [f"agent {number}" for number in range(agents)]
        self.fraction = dict.fromkeys(self.names, 1.0)
        self.sends_as = {name: name for name in self.names}
        self.fetches_as = {name: name for name in self.names}
        self.fetch_at = {
            name: NOW + (max_age * number / agents if staggered else 0.0) for number, name in enumerate(self.names)
        }
        self.now = NOW
        self.obeying = 1.0
        self.loads = []
        controller.update(now=NOW)

    def run(self, seconds, *, known=True, tick=10.0):
        for _ in range(int(seconds / tick)):
            load = 0.0
            for name in self.names:
                if self.fetch_at[name] <= self.now:
                    entry = self.controller.fetched("*", self.fetches_as[name], now=self.now, max_age=self.max_age)
                    self.fraction[name] = 0.0 if entry.disallow else entry.fraction
                    self.fetch_at[name] += self.max_age
                sent = self.rate * (self.obeying * self.fraction[name] + 1.0 - self.obeying) * tick
                self.controller.arrived("*", self.sends_as[name] if known else None, count=sent)
                load += sent / tick
            self.now += tick
            self.loads.append(load)
            self.controller.update(now=self.now)
        return self.loads[-1]


def fraction(controller):
    (explanation,) = controller.explain()
    return explanation.fraction


def reason(controller):
    (explanation,) = controller.explain()
    return explanation.reason


def test_everything_is_wanted_at_the_start():
    controller = Controller(Settings(capacity=100.0))
    assert controller.entries == (Entry("*"),)
    assert controller.fetched("*", "agent", now=NOW) == Entry("*")
    assert controller.update(now=NOW) == (Entry("*"),)
    assert reason(controller) == "start"


@pytest.mark.parametrize("known", [True, False], ids=["agents known", "agents unknown"])
@pytest.mark.parametrize("staggered", [True, False], ids=["staggered", "at once"])
def test_ten_times_the_capacity_settles_within_one_max_age_and_a_period(known, staggered):
    controller = Controller(Settings(capacity=100.0))
    plant = Plant(controller, agents=100, rate=10.0, staggered=staggered)
    plant.run(60, known=known)
    assert fraction(controller) == pytest.approx(0.097)
    # The demand agrees from the first period on, while the load still falls.
    assert plant.run(600, known=known) == pytest.approx(97.0)
    assert plant.run(1_800, known=known) == pytest.approx(97.0)
    assert reason(controller) == "settled"


def test_demand_is_known_while_agents_obey_different_fractions():
    controller = Controller(Settings(capacity=100.0))
    plant = Plant(controller, agents=100, rate=10.0)
    plant.run(300)
    (explanation,) = controller.explain()
    assert explanation.demand == pytest.approx(1_000.0)
    assert 0.4 < explanation.in_force < 0.8
    assert explanation.agents == 49


def test_demand_counts_each_agent_by_its_own_fraction():
    controller = Controller(Settings(capacity=10.0, max_age=60.0))
    controller.update(now=NOW)
    controller.fetched("*", "large", now=NOW)
    controller.arrived("*", "large", count=5_940)
    controller.update(now=NOW + 60)
    controller.fetched("*", "small", now=NOW + 60)  # 0.0980
    controller.fetched("*", "large", now=NOW + 60)
    controller.arrived("*", "large", count=582.12)
    controller.arrived("*", "small", count=5.88)
    controller.update(now=NOW + 120)
    (explanation,) = controller.explain()
    assert explanation.demand == pytest.approx(100.0, rel=1e-3)


def test_people_and_other_classes_reduce_what_is_available():
    controller = Controller(Settings(capacity=100.0, classes=(AgentClass("*"),)))
    controller.update(now=NOW)
    controller.arrived(None, count=40 * 60)
    controller.arrived("not configured", count=17 * 60)
    controller.arrived("*", count=80 * 60)
    assert controller.update(now=NOW + 60) == (Entry("*", fraction=0.5),)


def test_classes_share_by_weight_what_people_leave():
    classes = (AgentClass("a"), AgentClass("b", weight=3.0), AgentClass("small"))
    controller = Controller(Settings(capacity=100.0, target=1.0, classes=classes))
    controller.update(now=NOW)
    for name, rate in (("a", 100), ("b", 100), ("small", 5), (None, 15)):
        controller.arrived(name, count=rate * 60)
    assert controller.update(now=NOW + 60) == (Entry("a", fraction=0.2), Entry("b", fraction=0.6), Entry("small"))


def test_decision_is_made_once_a_period():
    controller = Controller(Settings(capacity=1.0))
    controller.update(now=NOW)
    controller.arrived("*", count=1_000)
    assert controller.update(now=NOW + 59) == (Entry("*"),)
    assert controller.update(now=NOW + 59.999) != (Entry("*"),)


def test_capacity_of_a_decision_can_be_given():
    controller = Controller(Settings(capacity=100.0, target=1.0))
    controller.update(now=NOW)
    controller.arrived("*", count=6_000)
    assert controller.update(now=NOW + 60, capacity=50.0) == (Entry("*", fraction=0.5),)


def test_fraction_stays_within_the_hysteresis():
    controller = Controller(Settings(capacity=100.0, target=1.0))
    controller.update(now=NOW)
    controller.fetched("*", "agent", now=NOW)
    for number, (arrivals, expected) in enumerate([(104, 1.0), (106, 0.943396)], start=1):
        controller.arrived("*", "agent", count=arrivals * 60)
        assert controller.update(now=NOW + number * 60) == (Entry("*", fraction=expected),)


def test_few_requests_change_a_fraction_only_if_they_differ_by_more_than_their_noise():
    for arrivals, expected in ((108, 1.0), (125, 0.8)):
        controller = Controller(Settings(capacity=1.0, target=1.0, period=100.0))
        controller.update(now=NOW)
        controller.arrived("*", count=arrivals)
        assert controller.update(now=NOW + 100) == (Entry("*", fraction=expected),)


def test_fraction_of_1_is_restored_although_it_is_within_the_hysteresis():
    controller = Controller(Settings(capacity=100.0, target=1.0), start=[Entry("*", fraction=0.97)])
    controller.update(now=NOW)
    controller.arrived("*", count=97 * 60)
    assert controller.update(now=NOW + 60) == (Entry("*"),)
    assert reason(controller) == "changed"


def test_rise_from_the_floor_to_1_takes_one_max_age():
    controller = Controller(Settings(capacity=100.0, floor=0.01), start=[Entry("*", fraction=0.01)])
    controller.update(now=NOW)
    rise = []
    for number in range(1, 11):
        controller.update(now=NOW + number * 60)
        rise.append(fraction(controller))
        assert reason(controller) == ("rise limited" if number < 10 else "changed")
    assert rise[-1] == 1.0
    assert rise[4] == pytest.approx(0.1)


def test_class_is_disallowed_below_the_floor_and_published_again_at_the_floor():
    settings = Settings(capacity=100.0, floor=0.1, max_age=600.0)
    controller = Controller(settings)
    controller.update(now=NOW)
    controller.fetched("*", "agent", now=NOW, max_age=60)
    controller.arrived("*", "agent", count=2_000 * 60)
    assert controller.update(now=NOW + 60) == (Entry("*", disallow=True),)
    assert reason(controller) == "disallowed"
    assert controller.fetched("*", "agent", now=NOW + 60, max_age=60) == Entry("*", disallow=True)
    published = []
    for number in range(2, 30):
        published += controller.update(now=NOW + number * 60)
        controller.fetched("*", "agent", now=NOW + number * 60, max_age=60)
    # The demand of 20 times the capacity is halved every ten periods, until a tenth of it fits.
    assert published.index(Entry("*", fraction=0.1)) == pytest.approx(10, abs=1)


def test_disallowed_agents_are_taken_to_demand_as_much_as_the_others():
    controller = Controller(Settings(capacity=100.0, floor=0.01), start=[Entry("*", disallow=True)])
    controller.update(now=NOW)
    for number in range(3):
        controller.fetched("*", f"disallowed {number}", now=NOW)
    controller.update(now=NOW + 60)  # publishes the floor
    controller.fetched("*", "allowed", now=NOW + 60)
    controller.arrived("*", "allowed", count=6)
    controller.update(now=NOW + 120)
    assert controller.explain()[0].demand == pytest.approx(4 * 10.0)


def test_class_stays_disallowed_while_people_use_the_capacity():
    controller = Controller(Settings(capacity=100.0))
    controller.update(now=NOW)
    for number in range(1, 50):
        controller.arrived(None, count=98 * 60)
        controller.arrived("*", count=0 if number > 1 else 10)
        assert controller.update(now=NOW + number * 60) == (Entry("*", disallow=True),)


def test_class_that_fetches_nothing_keeps_its_fraction_and_counts_as_people():
    classes = (AgentClass("silent"), AgentClass("polite"))
    controller = Controller(Settings(capacity=100.0, target=1.0, classes=classes))
    controller.update(now=NOW)
    for number in range(1, 23):
        entry = controller.fetched("polite", "agent", now=NOW + number * 60 - 60, max_age=60)
        controller.arrived("silent", "other", count=60 * 60)
        controller.arrived("polite", "agent", count=entry.fraction * 100 * 60)
        controller.update(now=NOW + number * 60)
        silent, polite = controller.explain()
        if number <= 20:
            assert silent.reason != "no fetch"
            kept = silent.fraction
    assert (silent.fraction, silent.reason) == (kept, "no fetch")
    assert polite.fraction == pytest.approx(0.4, rel=0.2)


def test_class_without_fetches_and_without_requests_is_free_again():
    controller = Controller(Settings(capacity=100.0), start=[Entry("*", fraction=0.1)])
    controller.update(now=NOW)
    for number in range(1, 60):
        controller.update(now=NOW + number * 60)
    assert (fraction(controller), reason(controller)) == (1.0, "settled")


def test_agents_that_ignore_advice_leave_the_rest_to_the_others():
    """A third of the capacity goes to agents that fetch advice and send everything."""
    controller = Controller(Settings(capacity=100.0, target=1.0, max_age=60.0))
    controller.update(now=NOW)
    for number in range(60):
        controller.fetched("*", "ignores", now=NOW + number * 60)
        entry = controller.fetched("*", "obeys", now=NOW + number * 60)
        controller.arrived("*", "ignores", count=30 * 60)
        controller.arrived("*", "obeys", count=entry.fraction * 970 * 60)
        controller.update(now=NOW + number * 60 + 60)
    assert fraction(controller) * 970 + 30 == pytest.approx(100, rel=0.06)


def run_beside(plant, periods, *, others, people=0.0):
    """Run beside so many requests per second of agents that have not fetched, and of people."""
    for _ in range(periods):
        plant.controller.arrived("*", "other", count=others * 60)
        plant.controller.arrived(None, count=people * 60)
        plant.run(60)


@pytest.mark.parametrize("known", [True, False], ids=["agents known", "agents unknown"])
def test_a_class_that_sends_although_it_is_disallowed_does_not_obey(known):
    """Its fraction does not change any more, so that the changes before would be all that is known of it."""
    controller = Controller(Settings(capacity=100.0))
    plant = Plant(controller, agents=50, rate=1.0)
    if not known:
        plant.sends_as = {name: f"{name} at another address" for name in plant.names}
    plant.run(1_260)
    plant.obeying, plant.rate = 0.7, 10.0
    plant.run(1_260)
    assert not known or 0.65 < controller.explain()[0].compliance < 0.75
    plant.obeying = 0.0
    for _ in range(24):  # a period until it is disallowed, a max-age until all agents know it, and one more
        controller.arrived(None, count=200 * 60)
        plant.run(60)
    (explanation,) = controller.explain()
    # That of agents which are not known is compared with the demand as it was estimated before.
    assert explanation.compliance == pytest.approx(0.0, abs=0.01 if known else 0.2)
    assert explanation.reason == "does not obey"


def test_an_unknown_client_that_sends_to_a_class_that_is_disallowed_is_not_taken_for_the_class():
    """No agent of it has sent requests from where it fetches, so that none is known to stay away."""
    controller = Controller(Settings(capacity=100.0))
    plant = Plant(controller, agents=50, rate=1.0)
    plant.sends_as = {name: f"{name} at another address" for name in plant.names}
    plant.run(1_260)
    for _ in range(40):
        controller.arrived("*", "unknown client", count=2 * 60)
        controller.arrived(None, count=200 * 60)
        plant.run(60)
        assert reason(controller) != "does not obey"
    assert fraction(controller) == 0.0
    assert controller.explain()[0].compliance > 0.9


def test_an_unknown_client_after_a_start_is_not_taken_for_a_class_that_is_disallowed():
    controller = Controller(Settings(capacity=100.0), start=[Entry("*", disallow=True)])
    plant = Plant(controller, agents=50, rate=1.0)
    plant.fraction = dict.fromkeys(plant.names, 0.0)
    for _ in range(40):
        controller.arrived("*", "unknown client", count=2 * 60)
        controller.arrived(None, count=200 * 60)
        plant.run(60)
    assert fraction(controller) == 0.0
    assert controller.explain()[0].compliance is None


@pytest.mark.parametrize("sender", ["agent 7", "not known"])
def test_few_agents_that_send_although_they_are_disallowed_are_no_demand_of_their_class(sender):
    controller = Controller(Settings(capacity=100.0))
    plant = Plant(controller, agents=50, rate=2.0)
    plant.run(1_260)
    for _ in range(60):
        controller.arrived("*", sender, count=2 * 60)
        controller.arrived(None, count=200 * 60)
        plant.run(60)
        (explanation,) = controller.explain()
        assert explanation.demand < 120
        assert explanation.reason != "does not obey"
    assert explanation.compliance > 0.9


def test_agents_of_one_identity_are_not_taken_for_one_that_disobeys():
    """Two at each address, half a max-age apart: one is disallowed while the other obeys what it fetched before."""
    controller = Controller(Settings(capacity=100.0))
    plant = Plant(controller, agents=100, rate=10.0)
    plant.fetches_as = plant.sends_as = {name: f"address {number % 50}" for number, name in enumerate(plant.names)}
    plant.run(1_800)
    for _ in range(30):
        controller.arrived(None, count=200 * 60)
        plant.run(60)
        assert reason(controller) != "does not obey"
    plant.run(1_800)
    plant.loads.clear()
    plant.run(3_600)
    assert max(plant.loads) < 200.0


def test_agents_without_a_fetch_leave_the_rest_to_the_others():
    """48 people and 30 requests that no fraction changes leave 19 of 97 per second to a demand of 480."""
    controller = Controller(Settings(capacity=100.0))
    plant = Plant(controller, agents=40, rate=0.5)
    run_beside(plant, 21, others=30, people=48)
    plant.rate = 12.0
    run_beside(plant, 12, others=30, people=48)
    for _ in range(30):
        run_beside(plant, 1, others=30, people=48)
        (explanation,) = controller.explain()
        assert explanation.fraction == pytest.approx(0.04, rel=0.12)
        assert explanation.demand == pytest.approx(510, rel=0.05)
        assert explanation.compliance == pytest.approx(480 / 510, abs=0.02)


def test_agents_without_a_fetch_that_use_the_whole_capacity_leave_nothing_to_the_others():
    controller = Controller(Settings(capacity=100.0))
    plant = Plant(controller, agents=40, rate=0.5)
    run_beside(plant, 30, others=100)
    plant.rate = 10.0
    run_beside(plant, 30, others=100)
    assert (fraction(controller), plant.loads[-1]) == (0.0, 0.0)
    run_beside(plant, 30, others=10)
    assert plant.loads[-1] == pytest.approx(87.0, rel=0.1)


def test_class_whose_most_requests_are_of_agents_without_a_fetch_does_not_obey():
    controller = Controller(Settings(capacity=1_000.0))
    plant = Plant(controller, agents=40, rate=1.0)
    run_beside(plant, 21, others=900)
    plant.rate = 20.0
    run_beside(plant, 21, others=900)
    assert controller.explain()[0].compliance == pytest.approx(800 / 1_700, abs=0.05)
    assert reason(controller) == "does not obey"


@pytest.mark.parametrize("elsewhere", [3, 7])
def test_agents_that_fetch_with_one_identity_and_send_with_another_obey(elsewhere):
    """A step to ten times the capacity comes from them, too: the class must not be disallowed for a while."""
    controller = Controller(Settings(capacity=100.0))
    plant = Plant(controller, agents=100, rate=0.5)
    plant.sends_as.update({name: f"not {name}" for number, name in enumerate(plant.names) if number % 10 < elsewhere})
    plant.run(1_260)
    plant.rate = 10.0
    for _ in range(30):
        plant.run(60)
        assert 0.08 < fraction(controller) < 0.12


def test_frozen_period_changes_nothing():
    controller = Controller(Settings(capacity=100.0), start=[Entry("*", fraction=0.5)])
    controller.update(now=NOW)
    controller.arrived("*", count=1_000_000)
    assert controller.update(now=NOW + 60, frozen=True) == (Entry("*", fraction=0.5),)
    assert reason(controller) == "frozen"
    controller.arrived("*", count=97 * 60 / 2)
    controller.update(now=NOW + 120)
    assert controller.explain()[0].demand == pytest.approx(97)


@pytest.mark.parametrize("step", [-3_600.0, 150.0, 86_400.0])
def test_clock_that_is_set_changes_nothing(step):
    controller = Controller(Settings(capacity=100.0), start=[Entry("*", fraction=0.5)])
    controller.update(now=NOW)
    controller.arrived("*", count=10)
    controller.update(now=NOW + step)
    assert (fraction(controller), reason(controller)) == (0.5, "period invalid")
    controller.arrived("*", count=97 * 60 / 2)
    controller.update(now=NOW + step + 60)
    assert controller.explain()[0].demand == pytest.approx(97)


def test_controller_that_is_restarted_in_overload_goes_on():
    plant = Plant(Controller(Settings(capacity=100.0)), agents=100, rate=10.0)
    plant.run(1_200)
    restarted = Controller(Settings(capacity=100.0), start=plant.controller.entries)
    plant.controller = restarted
    restarted.update(now=plant.now)
    plant.loads.clear()
    plant.run(1_800)
    assert min(plant.loads) >= 95
    assert max(plant.loads) <= 99


def test_log_for_a_tenth_of_the_agents_gives_the_same_demand():
    controller = Controller(Settings(capacity=100.0, max_agents=10))
    plant = Plant(controller, agents=100, rate=0.5)
    plant.run(1_200)
    plant.rate = 10.0
    for _ in range(30):
        plant.run(60)
        assert controller.explain()[0].agents == 10
        assert fraction(controller) == pytest.approx(0.097, rel=0.06)


@pytest.mark.parametrize("names", [50, 1])
def test_agents_that_share_a_name_come_down_to_the_capacity(names):
    controller = Controller(Settings(capacity=100.0))
    plant = Plant(controller, agents=100, rate=0.5)
    plant.sends_as = plant.fetches_as = {name: number % names for number, name in enumerate(plant.names)}
    plant.run(1_200)
    plant.rate = 10.0
    plant.run(660)
    plant.loads.clear()
    plant.run(3_600)
    assert max(plant.loads) < 110
    assert min(plant.loads) > 90
    assert reason(controller) == "settled"


def test_agents_that_share_a_name_obey_while_they_are_disallowed():
    """Half of them fetch `disallow` first; the others go on with what they fetched before."""
    controller = Controller(Settings(capacity=100.0))
    plant = Plant(controller, agents=100, rate=2.0)
    plant.sends_as = plant.fetches_as = {name: number % 50 for number, name in enumerate(plant.names)}
    plant.run(1_200)
    for _ in range(30):
        controller.arrived(None, count=110 * 60)
        plant.run(60)
    assert fraction(controller) == 0.0
    assert controller.explain()[0].compliance > 0.9
    plant.loads.clear()
    plant.run(3_600)
    assert max(plant.loads) < 110


def test_agent_is_served_the_rounded_fraction_that_the_log_has():
    controller = Controller(Settings(capacity=100.0, target=1.0))
    controller.update(now=NOW)
    controller.arrived("*", count=300 * 60)
    controller.update(now=NOW + 60)
    assert controller.fetched("*", "agent", now=NOW + 60).fraction == 0.333333
    controller.arrived("*", "agent", count=0.333333 * 300 * 60)
    controller.update(now=NOW + 120)
    assert controller.explain()[0].in_force == pytest.approx(0.333333, abs=1e-12)


def test_agent_obeys_for_the_max_age_that_it_was_served():
    controller = Controller(Settings(capacity=100.0))
    controller.update(now=NOW)
    controller.fetched("*", "long", now=NOW)
    controller.fetched("*", "short", now=NOW, max_age=120.0)
    controller.update(now=NOW + 60)
    assert controller.explain()[0].agents == 2
    controller.update(now=NOW + 120)
    assert controller.explain()[0].agents == 1


def test_fetch_of_a_class_that_is_not_configured_is_an_error():
    with pytest.raises(KeyError):
        Controller(Settings(capacity=1.0)).fetched("other", "agent", now=NOW)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"capacity": -1.0}, "capacity must be a non-negative number, got -1.0"),
        ({"capacity": float("inf")}, "capacity must be"),
        ({"target": 0.0}, "target must be above 0 and at most 1, got 0.0"),
        ({"floor": 0.0}, "floor must be from 0.0001 to 1, got 0.0"),
        ({"period": 0.0}, "period must be a positive number, got 0.0"),
        ({"period": 601.0}, "period must be at most max_age, got 601.0"),
        ({"max_age": float("nan")}, "max_age must be a positive number"),
        ({"max_agents": 0}, "max_agents must be"),
        ({"classes": ()}, "classes must have at least one name, each once"),
        ({"classes": (AgentClass("a"), AgentClass("a"))}, "each once, got"),
    ],
)
def test_invalid_settings_are_refused(arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        Settings(**{"capacity": 1.0, **arguments})


def test_invalid_class_is_refused():
    with pytest.raises(ConfigurationError, match="weight of 'a' must be a positive number"):
        AgentClass("a", weight=0.0)
    with pytest.raises(ConfigurationError, match="user_agent is empty"):
        AgentClass("")


@pytest.mark.parametrize(
    ("obeying", "compliance", "reason"),
    [(1.0, 1.0, "settled"), (0.52, 0.52, "changed"), (0.48, 0.48, "does not obey"), (0.0, 0.0, "does not obey")],
)
def test_compliance_of_a_class_is_reported(obeying, compliance, reason):
    controller = Controller(Settings(capacity=100.0))
    plant = Plant(controller, agents=50, rate=1.0)
    plant.run(1_260)
    assert controller.explain()[0].compliance is None
    plant.obeying = obeying
    plant.rate = 10.0
    plant.run(1_200)
    (explanation,) = controller.explain()
    assert explanation.compliance == pytest.approx(compliance, abs=0.02)
    assert explanation.reason == reason


def test_compliance_of_requests_without_an_agent_is_not_known():
    controller = Controller(Settings(capacity=100.0))
    plant = Plant(controller, agents=100, rate=0.5)
    plant.run(1_260, known=False)
    plant.rate = 10.0
    plant.run(1_200, known=False)
    assert controller.explain()[0].compliance is None


def test_load_stays_near_the_target_while_the_demand_rises_steadily():
    """Without a forecast, agents obey a fraction that is half a max-age old on average, and the load is 0.37 above."""
    controller = Controller(Settings(capacity=1_000.0))
    plant = Plant(controller, agents=50, rate=10.0)
    plant.run(1_200)
    plant.loads.clear()
    while plant.rate < 200.0:
        plant.rate += 9.5 * 20.0 / 720  # to ten times the capacity in two hours, in ticks of ten seconds
        plant.run(10)
    assert max(plant.loads) < 1_100.0
