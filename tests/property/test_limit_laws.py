"""The algorithms equal exact models, and holds are bounded whatever the clocks do."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.limit import Domain, Gatekeeper, Master, Rule
from headgate.limit.gatekeeper import longest_hold
from headgate.limit.history import ALGORITHMS, new_history
from headgate.release import ASAP, Status
from tests.property.exact_limit import MODELS, ExactRule, gate

# Eighths of a second are exact in a float at any date, so these tests concern the rule, not the rounding.
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
    """Return accounting messages in any order: timestamps in the past, present and future, with an advancing clock."""
    now, events = 0.0, []
    for step, offset in draw(st.lists(st.tuples(EIGHTHS, st.integers(-80, 80)), min_size=1, max_size=40)):
        now += step if step < 5 else 0.0
        events.append((EPOCH + now + offset / 8, EPOCH + now))
    return events


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(rule=rules(), events=messages())
def test_algorithm_equals_its_model_for_messages_in_any_order(algorithm, rule, events):
    core, model, history = ALGORITHMS[algorithm]([rule]), MODELS[algorithm](exact(rule)), new_history()
    for moment, now in events:
        release, expected = core.record(history, moment, now), model.record(Fraction(moment), Fraction(now))
        assert (None if release == ASAP else Fraction(release)) == expected


@given(first=rules(), second=rules(), events=messages())
def test_rules_with_a_shared_log_equal_rules_with_separate_logs(first, second, events):
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
def test_gatekeeper_equals_the_exact_model(algorithm, rule, steps, max_delay):
    """Also at equal instants: floating-point error never extends a hold, even with rates that are not floats."""
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
def test_other_algorithms_are_never_stricter_than_the_log(algorithm, rule, steps, max_delay):
    """For the requests that the log admits, the releases of the others are never later."""
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


MAX_DELAY = 2.0
RULE_LISTS = st.lists(st.sampled_from(["4/s burst 2", "1/s", "10/min burst 3", "30/h burst 2"]), min_size=1, max_size=2)
STEPS = st.sampled_from([0.0, 0.0, 0.125, 0.5, 1.0, 2.0, 2.5, 60.0, 86_400.0])
SET = st.sampled_from([0.0, 0.0, 0.0, 0.0, -0.5, -2.0, -2.5, -60.0, -3_600.5, -1e9, 0.5, 3_600.0])


@given(
    rules=RULE_LISTS, algorithm=st.sampled_from(list(ALGORITHMS)), steps=st.lists(st.tuples(STEPS, SET), max_size=60)
)
def test_hold_is_bounded_whatever_the_local_clock_does(rules, algorithm, steps):
    """A clock set back by up to two seconds may extend a hold by as much."""
    domain = Domain("api", tuple(map(Rule.parse, rules)), algorithm)
    gatekeeper = Gatekeeper.embedded([domain], max_delay=MAX_DELAY)
    longest, now = longest_hold([domain], MAX_DELAY), EPOCH
    for step, change in steps:
        now += step + change
        verdict = gatekeeper.admit("api", b"alice", now=now)
        assert verdict.wait <= longest + 2.0
        assert verdict.received == now
    assert gatekeeper.admit("api", b"alice", now=now + longest + 3.0).status is Status.ACCEPTED
    gatekeeper.forget(now=now + longest + 3.0)
    assert gatekeeper.delayed == 0


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 7), st.integers(0, 20)), max_size=80),
    st.integers(1, 12),
    st.sampled_from(["log", "gcra", "smockron"]),
)
def test_a_hold_in_force_is_dropped_only_if_every_identifier_is_held(requests, most, algorithm):
    """Whatever the order of identifiers; `tick` is the resolution of the order in which entries expire."""
    rule = Rule.parse("10/min burst 4")
    tick = rule.window / 64
    master = Master([Domain("api", (rule,), algorithm)], max_identifiers=most)
    now = 1_000.0
    for name, count, later in requests:
        for _ in range(count):
            before = {control.identifier: control.release for control in master.holds("api", now=now + tick)}
            stored = len(master)
            master.record("api", Status.ACCEPTED, b"%d" % name, now, now)
            after = {control.identifier for control in master.holds("api", now=now)}
            assert len(master) <= most
            assert before.keys() <= after or len(before) == stored == most
        now += later / 4
