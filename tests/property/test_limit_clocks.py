"""However clocks are set, nobody is held for longer than the rules can make it."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.limit import Accounting, Domain, Gatekeeper, Master, Rule
from headgate.limit.gatekeeper import longest_hold
from headgate.limit.history import ALGORITHMS
from headgate.release import Status

EPOCH = 1_700_000_000.0
MAX_DELAY = 2.0
RULES = st.lists(st.sampled_from(["4/s burst 2", "1/s", "10/min burst 3", "30/h burst 2"]), min_size=1, max_size=2)
STEPS = st.sampled_from([0.0, 0.0, 0.125, 0.5, 1.0, 2.0, 2.5, 60.0, 86_400.0])
SET = st.sampled_from([0.0, 0.0, 0.0, 0.0, -0.5, -2.0, -2.5, -60.0, -3_600.5, -1e9, 0.5, 3_600.0])


@given(rules=RULES, algorithm=st.sampled_from(list(ALGORITHMS)), steps=st.lists(st.tuples(STEPS, SET), max_size=60))
def test_this_machines_clock(rules, algorithm, steps):
    """A clock that is set back by up to two seconds may lengthen a hold by as much."""
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
    rules=RULES,
    messages=st.lists(
        st.tuples(STEPS, st.sampled_from([0.0, -60.0, -0.5, 0.25, 60.0, 1e9]), st.sampled_from([0.0, 0.5, 2.0, 1e9])),
        max_size=60,
    ),
)
def test_clocks_of_senders(rules, messages):
    domain = Domain("api", tuple(map(Rule.parse, rules)))
    master = Master([domain], max_delay=MAX_DELAY)
    longest, now = longest_hold([domain], MAX_DELAY), EPOCH
    for step, ahead, delay in messages:
        now += step
        received = now + ahead
        status = Status.DELAYED if delay else Status.ACCEPTED
        control = master.account(Accounting("api", status, b"alice", received, received + delay), now)
        assert control is None or now < control.release <= now + longest
    assert list(master.holds("api", now=now + longest)) == []
