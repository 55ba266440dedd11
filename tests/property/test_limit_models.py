"""The three algorithms against brute force, and against each other."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.limit import Domain, Gatekeeper, Master, Rule
from headgate.limit.history import ALGORITHMS, new_history
from headgate.release import ASAP, Status
from tests.property.exact_limit import MODELS, ExactRule, gate

# Eighths of a second are exact in a float at any date, so that what is proven here is the rule, not the rounding.
EIGHTHS = st.integers(0, 400).map(lambda eighths: eighths / 8)
EXACT_RATES = st.sampled_from(["1/s", "2/s", "4/s", "15/min", "1 per 500ms", "30/min", "1/2s"])
ANY_RATES = st.sampled_from(["3/s", "10/s", "7/min", "11/s", "1500/s", "13 per 17s"])
BURSTS = st.integers(1, 6)
EPOCH = 1_700_000_000.0


def exact(rule):
    return ExactRule(rule.exact_interval, rule.burst)


@st.composite
def rules(draw, rates=EXACT_RATES):
    return Rule.parse(f"{draw(rates)} burst {draw(BURSTS)}")


@st.composite
def messages(draw):
    """Accounting messages in any order: moments in the past, now, and in the future; a clock that goes on."""
    now, events = 0.0, []
    for step, offset in draw(st.lists(st.tuples(EIGHTHS, st.integers(-80, 80)), min_size=1, max_size=40)):
        now += step if step < 5 else 0.0
        events.append((EPOCH + now + offset / 8, EPOCH + now))
    return events


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(rule=rules(), events=messages())
def test_each_algorithm_is_its_model_whatever_the_order_of_messages(algorithm, rule, events):
    core, model, history = ALGORITHMS[algorithm]([rule]), MODELS[algorithm](exact(rule)), new_history()
    for moment, now in events:
        release, expected = core.record(history, moment, now), model.record(Fraction(moment), Fraction(now))
        assert (None if release == ASAP else Fraction(release)) == expected


@given(first=rules(), second=rules(), events=messages())
def test_rules_that_share_a_log_are_as_if_each_had_its_own(first, second, events):
    shared, alone = new_history(), [(ALGORITHMS["log"]([rule]), new_history()) for rule in (first, second)]
    together = ALGORITHMS["log"]([first, second])
    for moment, now in events:
        apart = max(algorithm.record(history, moment, now) for algorithm, history in alone)
        assert together.record(shared, moment, now) == apart


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(
    rule=rules(st.one_of(EXACT_RATES, ANY_RATES)),
    steps=st.lists(st.sampled_from([0.0, 0.0, 0.125, 0.25, 0.5, 1.0, 2.5]), max_size=40),
    max_delay=st.sampled_from([0.0, 0.5, 2.0, 5.0]),
)
def test_a_gate_gives_the_verdicts_of_the_exact_one(algorithm, rule, steps, max_delay):
    """Ties included: with rates that no float can hold, a hold never outlasts its exact end by a float's dust."""
    arrivals, now = [], EPOCH
    for step in steps:
        now += step
        arrivals.append(now)
    master = Master([Domain("api", (rule,), algorithm)])
    gatekeeper = Gatekeeper(master.account, max_delay=max_delay)
    got = [gatekeeper.admit("api", b"alice", now=now) for now in arrivals]
    expected = gate(algorithm, [exact(rule)], map(Fraction, arrivals), Fraction(max_delay))
    assert [verdict.status.value.lower() for verdict in got] == [verdict.status for verdict in expected]
    for verdict, model in zip(got, expected, strict=True):
        if verdict.status is not Status.REJECTED:
            assert verdict.release == pytest.approx(float(model.moment), abs=1e-4)


@pytest.mark.parametrize("algorithm", ["gcra", "smockron"])
@given(
    rule=rules(),
    steps=st.lists(st.sampled_from([0.0, 0.125, 0.25, 0.5, 1.0, 2.5, 9.0]), min_size=1, max_size=40),
    max_delay=st.sampled_from([0.0, 0.5, 2.0, 100.0]),
)
def test_the_other_algorithms_are_never_stricter_than_the_log(algorithm, rule, steps, max_delay):
    """The same events, as a gate under the log lets them happen, give releases that are never later."""
    log, other = ALGORITHMS["log"]([rule]), ALGORITHMS[algorithm]([rule])
    log_history, other_history, hold, now = new_history(), new_history(), ASAP, EPOCH
    for step in steps:
        now += step
        if hold - now > max_delay:
            continue
        moment = max(now, hold)
        release = log.record(log_history, moment, now)
        assert other.record(other_history, moment, now) <= release
        hold = max(hold, release)
