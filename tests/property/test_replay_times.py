"""A replayed log equals the exact model at decimal times, as in logs."""

from fractions import Fraction
from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.cli.access_log import RequestLog, parser
from headgate.cli.replay import Replay
from headgate.limit import Domain, Gatekeeper, Master, Rule
from headgate.limit.history import ALGORITHMS, OfflineGate, Verdicts
from headgate.release import Status
from tests.property.exact_limit import ExactRule, gate

RATES = ["10/s", "5/s", "20/s", "3/s", "7/min", "9 per 7s", "1500/s", "1 per 300ms"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(
    rate=st.sampled_from(RATES),
    burst=st.integers(1, 6),
    steps=st.lists(st.sampled_from([0, 1, 50, 100, 200, 300, 1_000, 8_571]), min_size=5, max_size=60),
    max_delay=st.sampled_from(["0", "0.1", "0.5", "5"]),
    start=st.tuples(st.sampled_from([0, 1_700_000_000_000]), st.integers(0, 999)).map(sum),
)
@example(rate="5/s", burst=1, steps=[100, 1000, 1000, 0, 0, 100, 100, 100, 200, 200], max_delay="0.5", start=749)
@example(rate="3/s", burst=1, steps=[0, 0, 0, 1_000, 0], max_delay="5", start=1_700_000_000_000)
def test_equal_decimal_instants_stay_equal_at_any_date(algorithm, rate, burst, steps, max_delay, start):
    rule = Rule.parse(f"{rate} burst {burst}")
    arrivals = [Fraction(moment, 1_000) for moment in accumulate(steps, initial=start)]
    log, outcome = RequestLog(), Replay([rule], algorithm, max_delay=float(max_delay))
    lines = [b'{"time": %r, "identifier": "alice"}' % float(moment) for moment in arrivals]
    log.read([lines, [b'{"time": 0.5, "identifier": "bob"}']], parser("jsonl"))  # bob's: whole seconds are spread
    outcome.play(log)
    report = outcome.report(log)
    verdicts = gate(algorithm, [ExactRule(rule.exact_interval, rule.burst)], arrivals, Fraction(max_delay))
    counted = {status: sum(verdict.status == status for verdict in verdicts) for status in ("delayed", "rejected")}
    assert {"delayed": report.delayed, "rejected": report.rejected} == counted
    longest = max((v.moment - at for v, at in zip(verdicts, arrivals, strict=True) if v.status == "delayed"), default=0)
    assert report.max_delay == pytest.approx(float(longest), abs=0.0011)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(
    rates=st.lists(st.tuples(st.sampled_from(RATES), st.integers(1, 4)), min_size=1, max_size=3),
    steps=st.lists(st.tuples(st.sampled_from([0.0, 0.125, 0.5, 7.0]), st.sampled_from("ab")), min_size=1, max_size=60),
    max_delay=st.sampled_from([0.0, 0.5, 5.0]),
)
def test_offline_gate_equals_a_gatekeeper(algorithm, rates, steps, max_delay):
    rules = tuple(Rule.parse(f"{rate} burst {burst}") for rate, burst in rates)
    offline = OfflineGate(rules, algorithm, max_delay=max_delay)
    times = list(accumulate((seconds for seconds, _ in steps), initial=0.0))[1:]
    for name in "ab":
        gatekeeper = Gatekeeper(master=Master([Domain("d", rules, algorithm)]), max_delay=max_delay)
        own = [moment for moment, (_, identifier) in zip(times, steps, strict=True) if identifier == name]
        verdicts = [gatekeeper.admit("d", name, now=moment) for moment in own]
        counted = Verdicts(
            sum(accounting.status is Status.DELAYED for accounting in verdicts),
            sum(accounting.status is Status.REJECTED for accounting in verdicts),
            max((a.wait for a in verdicts if a.status is Status.DELAYED), default=0.0),
        )
        assert offline.judge_all(own) == counted
        if len(own) <= offline.always_accepted:
            assert counted == Verdicts()
