"""Holds combine with max: lost, repeated and reordered messages never shorten one."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.limit import DelayUntil, Gatekeeper
from headgate.release import Status, judge

RELEASES = st.floats(min_value=0, max_value=4e9)
CONTROLS = st.lists(st.tuples(st.sampled_from([b"alice", b"bob", b"\xff"]), RELEASES), max_size=30)


def holds(controls):
    gatekeeper = Gatekeeper()
    for identifier, release in controls:
        gatekeeper.obey(DelayUntil("api", identifier, release))
    return {name: gatekeeper.held("api", name, now=-1.0) for name in (b"alice", b"bob", b"\xff")}


@given(controls=CONTROLS, data=st.data())
def test_repeated_and_reordered_controls_make_the_same_holds(controls, data):
    repeated = controls + data.draw(st.lists(st.sampled_from(controls), max_size=10) if controls else st.just([]))
    assert holds(data.draw(st.permutations(repeated))) == holds(controls)


@given(controls=CONTROLS, data=st.data())
def test_lost_control_never_extends_and_late_control_never_shortens_a_hold(controls, data):
    kept = data.draw(st.lists(st.booleans(), min_size=len(controls), max_size=len(controls)))
    some = [control for control, keep in zip(controls, kept, strict=True) if keep]
    lost = [control for control, keep in zip(controls, kept, strict=True) if not keep]
    before, after = holds(some), holds(some + lost)
    assert all(before[name] <= after[name] for name in before)
    assert after == holds(controls)


@given(now=RELEASES, release=RELEASES, later=RELEASES, max_delay=st.floats(0, 100))
def test_later_release_never_has_a_milder_verdict(now, release, later, max_delay):
    order = [Status.ACCEPTED, Status.DELAYED, Status.REJECTED]
    first = judge(min(release, later), now=now, max_delay=max_delay)
    second = judge(max(release, later), now=now, max_delay=max_delay)
    assert order.index(first) <= order.index(second)
