"""A flood of new identifiers: what one request costs, and what has to go to make room.

Costs are counted in lines of Python executed, which are the same on every machine.
"""

import json
from pathlib import Path

import pytest

from headgate.errors import ConfigurationError
from headgate.limit import DelayUntil, Domain, Gatekeeper, Master, Rule
from headgate.limit.arrivals import MEMORY_SIZE, Arrivals
from headgate.limit.gatekeeper import Charges, DelaySlots, spacing
from headgate.limit.messages import Accounting, Totals
from headgate.release import ASAP, NEVER, Status
from tests.holds import top
from tests.quotes import quotes


def hold(identifier, release, domain="api"):
    return DelayUntil(domain, identifier, release)


@quotes(
    "smockron Definitions",
    "it can delay or reject requests to ensure that a client does not send too many requests to the resource",
)
@quotes(
    "smockron Protocol",
    "A gatekeeper must keep a memory of control messages received from the master. If a control message exists "
    "for the current domain and identifier with a timestamp after the current timestamp, then the gatekeeper must"
    " delay or reject the request.",
    "The decision as to whether to delay or reject can be made based on the length of the delay (requests that "
    "would be delayed for an unreasonably long time should be rejected instead)",
)
@pytest.mark.parametrize(
    ("release", "status"),
    [(100.0, Status.ACCEPTED), (100.5, Status.DELAYED), (105.0, Status.DELAYED), (105.5, Status.REJECTED)],
)
def test_duration_of_the_hold_determines_the_verdict(release, status):
    gatekeeper = Gatekeeper()
    gatekeeper.obey(hold(b"alice", release))
    accounting = gatekeeper.admit("api", b"alice", now=100.0)
    assert accounting.status is status
    assert accounting.wait == max(0.0, release - 100.0)
    assert gatekeeper.admit("other", b"alice", now=100.0).status is Status.ACCEPTED
    assert gatekeeper.admit("api", b"bob", now=100.0).status is Status.ACCEPTED


def test_hold_until_never_rejects_forever():
    gatekeeper = Gatekeeper()
    gatekeeper.obey(hold(b"alice", NEVER))
    verdict = gatekeeper.admit("api", b"alice", now=1e12)
    assert (verdict.status, verdict.release, gatekeeper.shortened) == (Status.REJECTED, NEVER, 0)


def test_control_returned_by_account_is_obeyed_at_once():
    gatekeeper = Gatekeeper(lambda accounting, now: hold(accounting.identifier, now + 1))
    assert gatekeeper.admit("api", b"alice", now=100.0).status is Status.ACCEPTED
    assert gatekeeper.admit("api", b"alice", now=100.0).release == 101.0


class TestDelayedRequests:
    """The number of requests that are delayed at the same time."""

    def full(self):
        gatekeeper = Gatekeeper(max_delayed=2)
        gatekeeper.obey(hold(b"alice", 101.0))
        gatekeeper.obey(hold(b"bob", 102.0))
        self.first = gatekeeper.admit("api", b"alice", now=100.0)
        self.second = gatekeeper.admit("api", b"bob", now=100.0)
        assert gatekeeper.delayed == 2
        return gatekeeper

    def test_held_request_without_a_free_slot_is_rejected(self):
        gatekeeper = self.full()
        assert gatekeeper.admit("api", b"alice", now=100.0).status is Status.REJECTED
        assert gatekeeper.admit("api", b"carol", now=100.0).status is Status.ACCEPTED

    def test_slot_is_free_at_the_release(self):
        gatekeeper = self.full()
        assert gatekeeper.admit("api", b"bob", now=101.0).status is Status.DELAYED
        assert gatekeeper.admit("api", b"bob", now=101.0).status is Status.REJECTED

    def test_cancel_of_a_released_or_rejected_request_does_nothing(self):
        gatekeeper = self.full()
        rejected = gatekeeper.admit("api", b"alice", now=100.0)
        gatekeeper.cancel(rejected)
        assert gatekeeper.delayed == 2
        gatekeeper.obey(hold(b"alice", 103.0))
        assert gatekeeper.admit("api", b"alice", now=101.5).status is Status.DELAYED
        gatekeeper.cancel(self.first)
        assert gatekeeper.delayed == 2

    def test_delayed_requests_count_after_a_reload(self):
        """Otherwise twice the maximum could be delayed."""
        old = self.full()
        new = Gatekeeper(max_delayed=2)
        new.adopt(old, ["api"])
        assert new.delayed == 2
        assert new.admit("api", b"alice", now=100.0).status is Status.REJECTED
        old.cancel(self.first)
        assert new.delayed == 1
        assert new.admit("api", b"alice", now=100.0).status is Status.DELAYED


class TestSpacing:
    """Delayed requests of one identifier are not all released at one instant."""

    @pytest.mark.parametrize("algorithm", ["log", "gcra", "smockron"])
    def test_burst_under_a_hold_is_spaced_by_the_rate(self, algorithm):
        domain = Domain("api", (Rule.parse("4/s burst 2"),), algorithm)
        gatekeeper = Gatekeeper.embedded([domain])
        verdicts = [gatekeeper.admit("api", b"alice", now=100.0) for _ in range(12)]
        waits = [verdict.wait for verdict in verdicts if verdict.status is Status.DELAYED]
        assert len(waits) >= 9
        assert waits == [pytest.approx(0.25 * step) for step in range(1, len(waits) + 1)]

    def test_burst_within_a_hold_is_spaced(self):
        """By the rule itself, all of these would be released at the end of the hold."""
        gatekeeper = Gatekeeper(spacing={"api": 0.5})
        gatekeeper.obey(hold(b"alice", 101.0))
        releases = [gatekeeper.admit("api", b"alice", now=100.0).release for _ in range(4)]
        assert releases == [101.0, 101.5, 102.0, 102.5]

    def test_spacing_is_the_interval_of_the_fastest_rule(self):
        two = (Rule.parse("2/s"), Rule.parse("10/min"))
        domains = [Domain("api", two), Domain("free"), Domain("dark", two, mode="shadow")]
        assert spacing(domains) == {"api": 0.5}

    def test_later_release_from_the_master_counts(self):
        gatekeeper = Gatekeeper(lambda accounting, now: hold(b"alice", 104.0), spacing={"api": 0.5})
        gatekeeper.admit("api", b"alice", now=100.0)
        assert gatekeeper.admit("api", b"alice", now=100.0).release == 104.0
        assert gatekeeper.admit("api", b"alice", now=100.0).release == 104.5


class TestBounds:
    """Maps that untrusted input can grow."""

    def test_forget_in_steps_drops_every_ended_hold(self):
        gatekeeper = Gatekeeper()
        for number in range(10):
            gatekeeper.obey(hold(b"%d" % number, 100.0, f"domain{number % 2}"))
        gatekeeper.obey(hold(b"held", 300.0))
        assert [gatekeeper.forget(now=200.0, most=4) for _ in range(3)] == [4, 4, 2]
        gatekeeper.obey(hold(b"late", 150.0))
        assert [gatekeeper.forget(now=200.0, most=4) for _ in range(2)] == [1, 0]
        assert gatekeeper.held("api", b"held", now=200.0) == 300.0

    def test_forged_holds_do_not_outlast_real_ones(self):
        """A full table drops the hold that ends next, so forged ones without an end would drop all others."""
        gatekeeper = Gatekeeper(max_holds=100, max_hold=10.0)
        for number in range(100):
            gatekeeper.obey(hold(b"forged %d" % number, 1e12), now=100.0)
        assert gatekeeper.shortened == 100
        gatekeeper.obey(hold(b"held", 111.0), now=101.0)
        gatekeeper.obey(hold(b"forged again", 1e12), now=101.0)
        assert gatekeeper.held("api", b"held", now=101.0) == 111.0
        assert gatekeeper.forget(now=110.0) == 98
        assert gatekeeper.evicted == 2


def test_totals_and_top():
    gatekeeper = Gatekeeper(max_delay=2.0)
    gatekeeper.admit("api", b"alice", now=100.0)
    for name, release in ((b"alice", 101.0), (b"bob", 109.0), (b"carol", 99.0)):
        gatekeeper.obey(hold(name, release))
    gatekeeper.admit("api", b"alice", now=100.0)
    gatekeeper.admit("api", b"bob", now=100.0)
    totals = gatekeeper.totals["api"]
    assert (totals.accepted, totals.delayed, totals.rejected) == (1, 1, 1)
    assert top(gatekeeper, "api", now=100.0) == [(b"bob", 109.0), (b"alice", 101.0)]
    assert top(gatekeeper, "api", now=100.0, most=1) == [(b"bob", 109.0)]
    assert top(gatekeeper, "api", now=101.0) == [(b"bob", 109.0)]
    assert top(gatekeeper, "nowhere", now=100.0) == []
    for number in range(20):
        gatekeeper.obey(hold(b"%d" % number, 101.0 + number))
    assert len(top(gatekeeper, "api", now=100.0)) == 10


def test_report_counts_and_sends_a_verdict_and_changes_no_hold():
    messages = []
    gatekeeper = Gatekeeper(lambda accounting, now: messages.append((accounting, now)), max_delayed=1)
    gatekeeper.obey(hold(b"alice", 101.0))
    verdicts = [Accounting("api", status, b"alice", 100.0, 101.0) for status in (*Status, Status.DELAYED)]
    for verdict in verdicts:
        gatekeeper.report(verdict, now=100.0)
    assert messages == [(verdict, 100.0) for verdict in verdicts]
    assert gatekeeper.totals["api"] == Totals(accepted=1, delayed=2, rejected=1)
    assert (gatekeeper.delayed, gatekeeper.held("api", b"alice", now=100.0)) == (0, 101.0)


def test_reported_time_in_the_future_counts_as_now():
    messages = []
    gatekeeper = Gatekeeper(lambda accounting, now: messages.append(accounting))
    for received in (100.5, 1e12):
        gatekeeper.report(Accounting("api", Status.DELAYED, b"alice", received, received + 2.0), now=100.0)
    assert messages == [Accounting("api", Status.DELAYED, b"alice", 100.0, 102.0)] * 2


def test_holds_in_force_are_listed_in_batches_and_at_wall_clock_time():
    gatekeeper = Gatekeeper()
    gatekeeper.clock.read(1_000.0)
    gatekeeper.clock.read(100.0)  # set back
    for number in range(10_000):
        gatekeeper.obey(hold(b"%d" % number, 200.0 + number))
    gatekeeper.obey(hold(b"other", 300.0, domain="other"))
    gatekeeper.obey(hold(b"ended", 99.0))
    batches = list(gatekeeper.holds("api", now=100.0))
    assert max(map(len, batches)) < 5_000
    assert dict(entry for batch in batches for entry in batch) == {
        b"%d" % number: 200.0 + number for number in range(10_000)
    }
    assert list(gatekeeper.holds("none", now=100.0)) == []


@quotes(
    "smockron Protocol",
    "or based on resource considerations (delayed requests consume resources, and a gatekeeper may choose to "
    "reject further requests if these resources are exhausted).",
)
def test_slots_with_one_release_are_freed_one_by_one():
    slots = DelaySlots()
    for release in (5.0, 5.0, 5.0, 6.0):
        slots.take(release)
    slots.cancel(5.0)
    assert slots.taken == 3
    slots.free(5.0)
    assert slots.taken == 1
    slots.take(7.0)
    slots.free(6.0)
    assert slots.taken == 1


ONE = (Rule.parse("1/s burst 1"),)


MAXIMA = [1, 2, 7, 15, 16, 17, 100, 1_001]


def test_one_entry_is_evicted_for_each_new_one():
    for bound in MAXIMA:
        master = Master([Domain("api", ONE), Domain("web", ONE)], max_identifiers=bound)
        gatekeeper = Gatekeeper(master.account, max_holds=bound)
        for number in range(3 * bound):
            gatekeeper.admit("web" if number % 3 else "api", b"%d" % number, now=100.0)
            assert len(master) == min(number + 1, bound), bound
            assert gatekeeper._tables.size == min(number + 1, bound), bound
            assert gatekeeper.held("web" if number % 3 else "api", b"%d" % number, now=100.0) == 101.0, bound
        assert master.evicted == gatekeeper.evicted == 2 * bound, bound


def test_lower_maximum_after_a_reload_is_reached_with_new_identifiers():
    old = Master([Domain("api", ONE)], max_identifiers=200)
    for number in range(200):
        old.record("api", Status.ACCEPTED, b"%d" % number, 100.0, 100.0)
    new = Master([Domain("api", ONE)], max_identifiers=50)
    new.adopt(old)
    assert len(new) == 200
    sizes = []
    for number in range(40):
        new.record("api", Status.ACCEPTED, b"new %d" % number, 100.0, 100.0)
        sizes.append(len(new))
    # All are held, so each is examined before the first one is dropped.
    assert sizes == sorted(sizes, reverse=True)
    assert len(new) == 50
    assert new.evicted == 190


VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "limit" / "algorithms.json").read_text())


def test_vectors_of_replayed_logs():
    for case in VECTORS["replay"]:
        master = Master([Domain("log", (Rule.parse(case["rule"]),), case["algorithm"])])
        gatekeeper = Gatekeeper(master.account, max_delay=case["max_delay"])
        verdicts = [gatekeeper.admit("log", name, now=now) for now, name in case["events"]]
        totals, expected = gatekeeper.totals["log"], case["expect"]
        assert [totals.accepted, totals.delayed, totals.rejected] == [
            expected[status] for status in ("accepted", "delayed", "rejected")
        ], case["rule"]
        longest = max((verdict.wait for verdict in verdicts if verdict.status is Status.DELAYED), default=0.0)
        assert round(longest, 3) == expected["max_delay"], case["rule"]


def test_holds_of_a_changed_domain_stay_until_a_master_elsewhere_has_answered():
    old, new = Gatekeeper(), Gatekeeper()
    for name, release in (("api", 160.0), ("web", 160.0), ("short", 101.0)):
        old.obey(DelayUntil(name, b"alice", release))
    new.adopt(old, ["api", "unknown"], now=100.0)
    assert [new.held(name, b"alice", now=100.0) for name in ("api", "web", "short")] == [160.0, 102.0, 101.0]
    newer = Gatekeeper()
    newer.adopt(new, ["web"], now=101.0)  # another reload, before the master has answered
    assert [newer.held(name, b"alice", now=100.0) for name in ("api", "web", "short")] == [103.0, 102.0, 101.0]
    assert newer.admit("web", b"alice", now=101.5).release == 102.0
    for _ in range(9):
        newer.forget(now=104.0)
    assert (newer.held("api", b"alice", now=104.0), newer._inherited) == (ASAP, {})


def test_invalid_arguments_are_refused():
    for options, error in (
        ({"max_delay": -1}, "max_delay must be a non-negative number of seconds, got -1"),
        ({"max_delay": "5"}, "max_delay must be a non-negative number of seconds, got '5'"),
        ({"max_delay": float("nan")}, "max_delay must be a non-negative number of seconds, got nan"),
        ({"max_hold": -1.0}, "max_hold must be a non-negative number of seconds, got -1.0"),
        ({"max_delayed": -1}, "max_delayed must be an integer of at least 0, got -1"),
        ({"max_delayed": 1.5}, "max_delayed must be an integer of at least 0, got 1.5"),
        ({"max_holds": 0}, "max_holds must be an integer of at least 1, got 0"),
        ({"account": [Domain("api", ONE)]}, r"account must be a function, .* use Gatekeeper\.embedded\("),
        ({"master": [Domain("api", ONE)]}, r"master must be a Master, got \[Domain"),
    ):
        with pytest.raises(ConfigurationError, match=f"^{error}"):
            Gatekeeper(**options)


def embedded(**rules):
    return Gatekeeper.embedded([Domain(name, (Rule.parse(rule),)) for name, rule in rules.items()])


def left(gatekeeper, domain, identifier, *, now):
    return gatekeeper.master.allowance(domain, identifier, now).tokens


def test_the_longest_hold_of_several_domains_decides_and_a_rejected_request_counts_in_none():
    gatekeeper = embedded(api="1/s burst 2", everything="1/min burst 4")
    charges = Charges("api", b"=key", (("everything", b"192.0.2.1"),))
    verdicts = [gatekeeper.admit_all(charges, now=100.0) for _ in range(3)]
    assert [(one.status, one.domain, one.release) for one in verdicts] == [
        (Status.ACCEPTED, "api", 100.0),
        (Status.ACCEPTED, "api", 100.0),
        (Status.DELAYED, "api", 101.0),
    ]
    gatekeeper.cancel(verdicts[2])
    assert gatekeeper.delayed == 0
    assert gatekeeper.admit_all(charges, now=102.0).status is Status.ACCEPTED
    rejected = gatekeeper.admit_all(charges, now=104.0)
    # Of another key of the same client, which its own domain would accept.
    other = gatekeeper.admit_all(charges._replace(identifier=b"=other"), now=104.0)
    for one in (rejected, other):
        assert (one.status, one.domain, one.identifier) == (Status.REJECTED, "everything", b"192.0.2.1")
        assert one.release == pytest.approx(160.0)
    assert left(gatekeeper, "api", b"=key", now=104.0) == left(gatekeeper, "api", b"=other", now=104.0) == 2
    assert gatekeeper.totals == {name: Totals(3, 1, 2) for name in ("api", "everything")}
    delayed = gatekeeper.admit_all(charges, now=158.0)
    assert (delayed.status, delayed.domain, delayed.wait) == (Status.DELAYED, "api", pytest.approx(2.0))
    assert gatekeeper.admit_all(Charges("api", b"x"), now=104.0) == gatekeeper.admit("api", b"x", now=104.0)


def test_a_shadow_domain_does_not_take_over_the_hold_of_another():
    rule = (Rule.parse("1/s"),)
    gatekeeper = Gatekeeper.embedded([Domain("api", rule), Domain("all", rule, mode="shadow")])
    charges = Charges("api", b"x", (("all", b"x"),))
    assert [gatekeeper.admit_all(charges, now=100.0).wait for _ in range(3)] == [0.0, 1.0, 2.0]
    assert gatekeeper.held("all", b"x", now=100.0) == ASAP


@pytest.mark.parametrize("algorithm", ["gcra", "log", "smockron"])
def test_a_request_of_cost_n_counts_as_n(algorithm):
    """In the long run; at once, the burst is exceeded by one request at most."""
    gatekeeper = Gatekeeper.embedded([Domain("api", (Rule.parse("10/s burst 10"),), algorithm)], max_delay=0)
    times = [100 + number / 100 for number in range(1_001)]
    accepted = [
        at for at in times if gatekeeper.admit_all(Charges("api", b"x", cost=5), now=at).status is Status.ACCEPTED
    ]
    assert 2 <= sum(at < 100.4 for at in accepted) <= 3
    assert 20 <= len(accepted) <= 24
    assert gatekeeper.shortened == 0


def test_a_cost_is_sent_to_a_master_elsewhere_as_so_many_requests_and_counted_here_once():
    sent, memory = [], memoryview(bytearray(b"k" * 32).ljust(MEMORY_SIZE, b"\0"))
    domains = [Domain("api", (Rule.parse("1/s burst 6"),)), Domain("all")]
    gatekeeper = Gatekeeper(
        lambda accounting, now: sent.append(accounting.domain), max_delay=0, arrivals=Arrivals(domains, memory)
    )
    charges = Charges("api", b"x", (("all", b"x"),), 3)
    verdicts = [gatekeeper.admit_all(charges, now=100.0).status for _ in range(3)]
    assert verdicts == [Status.ACCEPTED, Status.ACCEPTED, Status.REJECTED]
    assert sent == [*["api"] * 3, *["all"] * 3] * 2 + ["api", "all"]
    assert gatekeeper.totals["api"] == gatekeeper.totals["all"] == Totals(2, 0, 1)
