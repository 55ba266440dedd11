import pytest

from headgate.limit import DelayUntil, Domain, Gatekeeper, Rule
from headgate.limit.gatekeeper import spacing
from headgate.release import ASAP, NEVER, Status


def hold(identifier, release, domain="api"):
    return DelayUntil(domain, identifier, release)


def test_nothing_held_is_accepted_and_accounted():
    messages = []
    gatekeeper = Gatekeeper(lambda accounting, now: messages.append((accounting, now)))
    accounting = gatekeeper.admit("api", "alice", now=100.0, loginfo=b"curl/8")
    assert messages == [(accounting, 100.0)]
    assert accounting.status is Status.ACCEPTED
    assert (accounting.identifier, accounting.received, accounting.loginfo) == (b"alice", 100.0, b"curl/8")
    assert accounting.wait == 0.0


@pytest.mark.parametrize(
    ("release", "status"),
    [(100.0, Status.ACCEPTED), (100.5, Status.DELAYED), (105.0, Status.DELAYED), (105.5, Status.REJECTED)],
)
def test_a_hold_is_judged_by_its_length(release, status):
    gatekeeper = Gatekeeper()
    gatekeeper.obey(hold(b"alice", release))
    accounting = gatekeeper.admit("api", b"alice", now=100.0)
    assert accounting.status is status
    assert accounting.wait == max(0.0, release - 100.0)
    assert gatekeeper.admit("other", b"alice", now=100.0).status is Status.ACCEPTED
    assert gatekeeper.admit("api", b"bob", now=100.0).status is Status.ACCEPTED


def test_a_control_never_moves_a_release_earlier():
    gatekeeper = Gatekeeper()
    gatekeeper.obey(hold(b"alice", 103.0))
    gatekeeper.obey(hold(b"alice", 101.0))
    assert gatekeeper.held("api", b"alice", now=100.0) == 103.0


def test_never_is_a_rejection_that_does_not_end():
    gatekeeper = Gatekeeper()
    gatekeeper.obey(hold(b"alice", NEVER))
    verdict = gatekeeper.admit("api", b"alice", now=1e12)
    assert (verdict.status, verdict.release, gatekeeper.shortened) == (Status.REJECTED, NEVER, 0)


def test_the_answer_to_the_accounting_is_obeyed_at_once():
    gatekeeper = Gatekeeper(lambda accounting, now: hold(accounting.identifier, now + 1))
    assert gatekeeper.admit("api", b"alice", now=100.0).status is Status.ACCEPTED
    assert gatekeeper.admit("api", b"alice", now=100.0).release == 101.0


class TestPlaces:
    """How many requests may be delayed at once."""

    def full(self):
        gatekeeper = Gatekeeper(max_delayed=2)
        gatekeeper.obey(hold(b"alice", 101.0))
        gatekeeper.obey(hold(b"bob", 102.0))
        self.first = gatekeeper.admit("api", b"alice", now=100.0)
        self.second = gatekeeper.admit("api", b"bob", now=100.0)
        assert gatekeeper.delayed == 2
        return gatekeeper

    def test_without_a_place_a_held_request_is_rejected_and_others_still_go(self):
        gatekeeper = self.full()
        assert gatekeeper.admit("api", b"alice", now=100.0).status is Status.REJECTED
        assert gatekeeper.admit("api", b"carol", now=100.0).status is Status.ACCEPTED

    def test_a_place_is_free_when_its_time_has_come(self):
        gatekeeper = self.full()
        assert gatekeeper.admit("api", b"bob", now=101.0).status is Status.DELAYED
        assert gatekeeper.admit("api", b"bob", now=101.0).status is Status.REJECTED

    def test_a_place_is_free_when_the_request_leaves(self):
        gatekeeper = self.full()
        gatekeeper.leave(self.second)
        assert gatekeeper.delayed == 1
        assert gatekeeper.admit("api", b"alice", now=100.0).status is Status.DELAYED
        assert gatekeeper.admit("api", b"alice", now=100.0).status is Status.REJECTED

    def test_leaving_late_or_without_having_been_delayed_frees_nothing(self):
        gatekeeper = self.full()
        rejected = gatekeeper.admit("api", b"alice", now=100.0)
        gatekeeper.leave(rejected)
        assert gatekeeper.delayed == 2
        gatekeeper.obey(hold(b"alice", 103.0))
        assert gatekeeper.admit("api", b"alice", now=101.5).status is Status.DELAYED
        gatekeeper.leave(self.first)
        assert gatekeeper.delayed == 2

    def test_after_a_reload_those_who_wait_are_counted_still(self):
        """Else twice as many as the bound says could wait."""
        old = self.full()
        new = Gatekeeper(max_delayed=2)
        new.adopt(old, ["api"])
        assert new.delayed == 2
        assert new.admit("api", b"alice", now=100.0).status is Status.REJECTED
        old.leave(self.first)
        assert new.delayed == 1
        assert new.admit("api", b"alice", now=100.0).status is Status.DELAYED

    def test_the_default_is_1024(self):
        gatekeeper = Gatekeeper()
        gatekeeper.obey(hold(b"alice", 101.0))
        statuses = [gatekeeper.admit("api", b"alice", now=100.0).status for _ in range(1_025)]
        assert statuses == [Status.DELAYED] * 1_024 + [Status.REJECTED]
        assert Gatekeeper.embedded([]).delayed == 0


class TestSpacing:
    """Those who wait are not all released at one instant."""

    @pytest.mark.parametrize("algorithm", ["log", "gcra", "smockron"])
    def test_a_burst_under_a_hold_is_spaced_by_the_rate(self, algorithm):
        domain = Domain("api", (Rule.parse("4/s burst 2"),), algorithm)
        gatekeeper = Gatekeeper.embedded([domain])
        verdicts = [gatekeeper.admit("api", b"alice", now=100.0) for _ in range(12)]
        waits = [verdict.wait for verdict in verdicts if verdict.status is Status.DELAYED]
        assert len(waits) >= 9
        assert waits == [pytest.approx(0.25 * step) for step in range(1, len(waits) + 1)]

    def test_a_burst_after_a_pause_inside_the_hold_is_spaced_too(self):
        """The rule itself would let these go, all at the end of the hold."""
        gatekeeper = Gatekeeper(spacing={"api": 0.5})
        gatekeeper.obey(hold(b"alice", 101.0))
        releases = [gatekeeper.admit("api", b"alice", now=100.0).release for _ in range(4)]
        assert releases == [101.0, 101.5, 102.0, 102.5]

    def test_the_spacing_is_the_fastest_rule_of_each_enforced_domain(self):
        two = (Rule.parse("2/s"), Rule.parse("10/min"))
        domains = [Domain("api", two), Domain("free"), Domain("dark", two, mode="shadow")]
        assert spacing(domains) == {"api": 0.5}

    def test_a_later_release_from_the_master_counts(self):
        gatekeeper = Gatekeeper(lambda accounting, now: hold(b"alice", 104.0), spacing={"api": 0.5})
        gatekeeper.admit("api", b"alice", now=100.0)
        assert gatekeeper.admit("api", b"alice", now=100.0).release == 104.0
        assert gatekeeper.admit("api", b"alice", now=100.0).release == 104.5


class TestBounds:
    """What strangers can grow."""

    def test_holds_that_are_over_are_forgotten(self):
        gatekeeper = Gatekeeper()
        for number in range(10):
            gatekeeper.obey(hold(b"%d" % number, 100.0 + number))
        assert gatekeeper.forget(now=104.0) == 5
        assert gatekeeper.forget(now=104.0) == 0
        assert gatekeeper.held("api", b"3", now=0.0) == ASAP
        assert gatekeeper.held("api", b"7", now=104.0) == 107.0

    def test_forgetting_in_steps_looks_at_every_hold_in_turn(self):
        gatekeeper = Gatekeeper()
        for number in range(10):
            gatekeeper.obey(hold(b"%d" % number, 100.0, f"domain{number % 2}"))
        gatekeeper.obey(hold(b"held", 300.0))
        assert [gatekeeper.forget(now=200.0, most=4) for _ in range(3)] == [4, 4, 2]
        gatekeeper.obey(hold(b"late", 150.0))
        assert [gatekeeper.forget(now=200.0, most=4) for _ in range(2)] == [1, 0]
        assert gatekeeper.held("api", b"held", now=200.0) == 300.0

    def test_no_more_holds_are_kept_than_there_is_room_for(self):
        gatekeeper = Gatekeeper(max_holds=160)
        for number in range(1_000):
            gatekeeper.obey(hold(b"%d" % number, 1e9, f"domain{number % 2}"))
            assert gatekeeper.forget(now=0.0) == 0
            assert gatekeeper._tables.size <= 160
        kept = [number for number in range(1_000) if gatekeeper.held(f"domain{number % 2}", b"%d" % number, now=0) > 0]
        assert 140 <= len(kept) <= 160
        assert gatekeeper.evicted == 1_000 - len(kept)
        assert kept[-1] == 999

    def test_holds_that_are_over_make_room_first(self):
        gatekeeper = Gatekeeper(max_holds=100)
        gatekeeper.obey(hold(b"held", 1e9))
        for number in range(1_000):
            gatekeeper.admit("api", b"somebody", now=float(number))
            gatekeeper.obey(hold(b"%d" % number, number + 10.0))
        assert gatekeeper.held("api", b"held", now=1_000.0) == 1e9
        assert gatekeeper.evicted == 0


def test_the_totals_and_the_top_are_what_was_judged():
    gatekeeper = Gatekeeper(max_delay=2.0)
    gatekeeper.admit("api", b"alice", now=100.0)
    for name, release in ((b"alice", 101.0), (b"bob", 109.0), (b"carol", 99.0)):
        gatekeeper.obey(hold(name, release))
    gatekeeper.admit("api", b"alice", now=100.0)
    gatekeeper.admit("api", b"bob", now=100.0)
    totals = gatekeeper.totals["api"]
    assert (totals.accepted, totals.delayed, totals.rejected) == (1, 1, 1)
    assert gatekeeper.top("api", now=100.0) == [(b"bob", 109.0), (b"alice", 101.0)]
    assert gatekeeper.top("api", now=100.0, most=1) == [(b"bob", 109.0)]
    assert gatekeeper.top("api", now=101.0) == [(b"bob", 109.0)]
    assert gatekeeper.top("nowhere", now=100.0) == []


def test_the_top_are_ten_unless_said_otherwise():
    gatekeeper = Gatekeeper()
    for number in range(20):
        gatekeeper.obey(hold(b"%d" % number, 101.0 + number))
    assert len(gatekeeper.top("api", now=100.0)) == 10
    assert [len(piece) for piece in gatekeeper.top_in_steps("api", now=100.0)] == [10]
    assert list(gatekeeper.top_in_steps("nowhere", now=100.0)) == []
