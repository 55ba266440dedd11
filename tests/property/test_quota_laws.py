"""Laws of the quota service: shares, the codec, and any sequence of reports."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.limit import Rule
from headgate.limit.history import ALGORITHMS, new_history
from headgate.limit.shares import fair_shares
from headgate.release import ASAP
from headgate.rlqs.service import MIN_HOLD, TIME_TO_LIVE
from tests.unit.rlqs.envoys import START, World, bucket_id, decode_actions, encode_report

rates = st.floats(0.0, 1e6)
wants = st.lists(rates, min_size=1, max_size=8)


@given(total=rates, wants=wants)
def test_shares_are_max_min_fair(total, wants):
    shares = fair_shares(total, wants)
    assert sum(shares) == pytest.approx(total)
    extra = max(0.0, total - sum(wants)) / len(wants)
    unmet = [share for share, want in zip(shares, wants, strict=True) if share < want * (1 - 1e-9) - 1e-9]
    # Who gets less than it wants gets as much as anyone who does.
    assert all(share == pytest.approx(max(shares)) for share in unmet)
    assert all(share <= want + extra + 1e-6 * total for share, want in zip(shares, wants, strict=True))


@given(
    data=st.binary(max_size=120),
    usages=st.lists(st.tuples(st.binary(max_size=40), *[st.integers(0, 2**63)] * 3), max_size=4),
)
def test_any_bytes_on_a_stream(data, usages):
    world = World("10/s burst 20")
    stream = world.open()
    good = encode_report(b"api", [(bucket_id(identifier), *numbers) for identifier, *numbers in usages])
    for message in (data, good + data, good):
        world.receive(stream, message)
    while message := stream.take():
        decode_actions(message)


@given(
    rule=st.sampled_from(["500/s burst 50", "10/s burst 20", "1/s burst 5", "6/min burst 3", "10/h burst 4"]),
    algorithm=st.sampled_from(["log", "gcra"]),
    steps=st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from(["report", "close", "wait", "turn"]),
            st.floats(0.0, 6.0),
            st.integers(0, 3_000),
            st.integers(0, 3_000),
        ),
        max_size=40,
    ),
)
def test_shares_never_exceed_the_rule_and_holds_are_denied(rule, algorithm, steps):
    world = World(rule, algorithm=algorithm)
    service, streams = world.service, {}
    rate = world.master.domains["api"].rules[0].count * 1_000 / world.master.domains["api"].rules[0].period_ms
    for number, action, pause, allowed, denied in steps:
        world.time += pause
        if action == "report":
            stream = streams.get(number) or streams.setdefault(number, world.open(str(number)))
            data = encode_report(b"api", [(bucket_id(b"c"), 0, allowed, denied)])
            world.receive(stream, data)
        elif action == "close" and number in streams:
            service.close(streams.pop(number))
        elif action == "turn":
            world.turn()
        claims = [claim for claim in service.table._claims if not claim.stream.is_replaced]
        live = [claim.assignment for claim in claims if claim.assignment.expires > world.time]
        # Each Envoy keeps 2 % if nothing is left; shares that differ by 3 % stay.
        assert sum(one.share for one in live if one.kind == "tokens") <= rate * 1.05
        for group in service.table.groups.values():
            assert all(claim.group is group for claim in group.claims)
            if group.held_until >= world.time + MIN_HOLD:
                denied_claims = [c for c in group.claims if c.stream.is_open]
                assert all(c.assignment.kind == "deny" for c in denied_claims)
        for stream in streams.values():
            while message := stream.take():
                assert all(numbers["ttl"] >= 1 for _, kind, numbers in decode_actions(message) if kind != "abandon")
    # Whatever happened, everything ends soon after the last report.
    for number in list(streams):
        service.close(streams.pop(number))
    world.time += 2 * TIME_TO_LIVE
    service.turn(now=world.now, moment=world.time)
    assert len(service.table) == len(service.table.streams) == 0
    assert not service.table.groups


RULES = st.lists(
    st.sampled_from(["10/s burst 20", "1/s burst 5", "6/min burst 3", "60/min burst 1", "1000/h burst 50"]),
    min_size=1,
    max_size=2,
    unique=True,
)


@given(
    texts=RULES,
    name=st.sampled_from(["log", "gcra"]),
    gaps=st.lists(st.sampled_from([0.0, 0.001, 0.05, 0.1, 1.0, 7.0, 60.0]), max_size=60),
)
def test_what_is_available_is_what_can_still_be_recorded(texts, name, gaps):
    rules = tuple(map(Rule.parse, texts))
    algorithm, history, now, release = ALGORITHMS[name](rules), new_history(), START, ASAP
    for gap in gaps:  # a gatekeeper that obeys at once
        now += gap
        if release <= now:
            release = max(release, algorithm.record(history, now, now))
    available = min(algorithm.available(history, now))
    if release > now:
        assert available < 1 + 1e-6
        return
    recorded = 0
    while release <= now:
        release = max(release, algorithm.record(history, now, now))
        recorded += 1
    # After a window without requests, the last request has no effect; the original lets one more through.
    assert int(available + 1e-6) <= recorded <= int(available + 1e-6) + 1


@given(
    texts=RULES,
    name=st.sampled_from(["log", "gcra"]),
    reports=st.lists(st.tuples(st.floats(0.0, 20.0), st.integers(1, 500)), min_size=1, max_size=20),
)
def test_reports_never_hold_longer_than_an_interval(texts, name, reports):
    rules = tuple(map(Rule.parse, texts))
    algorithm, history, now = ALGORITHMS[name](rules), new_history(), START
    for pause, count in reports:
        start, now = now, now + pause
        release = algorithm.record_many(history, count, start, now)
        assert release <= now + max(rule.interval for rule in rules) + 1e-3
        assert len(history) in algorithm.sizes
        available = algorithm.available(history, now)
        assert all(left <= rule.burst + 1e-6 for left, rule in zip(available, rules, strict=True))
