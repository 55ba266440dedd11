"""Wrong clocks: a sender ahead of the master, and a local clock that is set back."""

import pytest

from headgate.limit import Accounting, DelayUntil, Domain, Gatekeeper, Master, Rule
from headgate.limit.clock import TOLERANCE, SteadyClock
from headgate.limit.gatekeeper import MAX_HOLD, longest_hold
from headgate.limit.history import ALGORITHMS
from headgate.release import Status
from tests.holds import top

NOW = 1_700_000_000.0
HOUR = 3_600.0
ACCEPTED, DELAYED, REJECTED = Status.ACCEPTED, Status.DELAYED, Status.REJECTED


def domain(*rules, algorithm="log"):
    return Domain("api", tuple(map(Rule.parse, rules)), algorithm)


def accepted(received):
    return Accounting("api", ACCEPTED, b"alice", received, received)


def delayed(received, release):
    return Accounting("api", DELAYED, b"alice", received, release)


class TestSenders:
    """Accounting from gatekeepers whose clock is not the master's."""

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    @pytest.mark.parametrize("ahead", [0.0, 0.5, 60.0, 1e12])
    def test_request_counts_at_the_arrival_of_its_message_at_the_latest(self, algorithm, ahead):
        """Otherwise a gate that is 60 s ahead makes every gate hold its clients for 60 s."""
        master = Master([domain("10/s burst 2", algorithm=algorithm)])
        controls = [master.account(accepted(NOW + ahead), NOW) for _ in range(4)]
        assert 0.0 < max(control.release for control in controls if control is not None) - NOW <= 0.3

    @pytest.mark.parametrize(
        ("received", "release", "expected", "counted"),  # seconds after the arrival; ahead, late and shortened
        [
            (0.0, 0.0, 0.0, (0, 0, 0)),
            (1.0, 1.0, 0.0, (0, 0, 0)),
            (1.001, 1.001, 0.0, (1, 0, 0)),
            (1e12, 1e12, 0.0, (1, 0, 0)),
            # A delay counts from the arrival, a negative one as none, and a long one as the longest.
            (0.5, 3.0, 2.5, (0, 0, 0)),
            (60.0, 62.5, 2.5, (1, 0, 0)),
            (60.0, 59.0, 0.0, (1, 0, 0)),
            (0.0, 3_601.0, 3_600.0, (0, 0, 1)),
            # A request counts at most a minute before the arrival of its message.
            (-5.0, -5.0, -5.0, (0, 0, 0)),
            (-5.001, -5.001, -5.001, (0, 1, 0)),
            (-60.0, -60.0, -60.0, (0, 1, 0)),
            (-60.001, -60.001, -60.0, (0, 1, 0)),
            (-NOW, -NOW, -60.0, (0, 1, 0)),
            (-NOW, -30.0, -30.0, (0, 1, 0)),
            (-NOW, 3.0, 3.0, (0, 1, 0)),
            (-NOW, 3_601.0, 3_600.0, (0, 1, 1)),
        ],
    )
    def test_the_timestamp_that_counts(self, received, release, expected, counted):
        master, other = (Master([domain("1/s burst 1")]) for _ in range(2))
        assert master.timestamp(NOW + received, NOW + release, NOW) == NOW + expected
        other.adopt(master)
        assert (other.ahead, other.late, other.shortened) == counted

    def test_delay_is_bounded(self):
        """Otherwise a timestamp of the year 33658 holds a client forever, and its history never expires."""
        master = Master([domain("1/s burst 1")], max_delay=5.0)
        assert master.account(delayed(NOW, 999_999_999_999.999), NOW).release == NOW + 6.0
        assert master.forget(now=NOW + 7.0) == 1


@pytest.fixture(params=ALGORITHMS)
def gatekeeper(request):
    """A gatekeeper with its master inside, whose rules have a short window and a long one."""
    return Gatekeeper.embedded([domain("4/s burst 2", "8/h burst 8", algorithm=request.param)], max_delay=1.0)


def statuses(gatekeeper, now, count):
    return [gatekeeper.admit("api", b"alice", now=now).status for _ in range(count)]


class TestClockSetBack:
    """This machine's clock is set back, by an hour unless said otherwise."""

    def test_hold_keeps_its_duration(self):
        gatekeeper = Gatekeeper()
        gatekeeper.obey(DelayUntil("api", b"alice", NOW + 3.0))
        assert gatekeeper.admit("api", b"alice", now=NOW).wait == 3.0
        assert gatekeeper.admit("api", b"alice", now=NOW - HOUR).wait == 3.0
        assert gatekeeper.admit("api", b"alice", now=NOW - HOUR + 2.0).release == NOW - HOUR + 3.0
        assert gatekeeper.admit("api", b"alice", now=NOW - HOUR + 3.0).status is ACCEPTED
        assert gatekeeper.clock.steps == 1

    def test_rules_continue_to_apply(self, gatekeeper):
        assert statuses(gatekeeper, NOW, 8)[-1] is REJECTED
        assert statuses(gatekeeper, NOW - HOUR, 1) == [REJECTED]
        assert statuses(gatekeeper, NOW - HOUR + 2.0, 1) == [ACCEPTED]

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_master_continues_to_publish_holds(self, algorithm):
        """A hold is published only if it is later than the last one, which was an hour ahead."""
        master = Master([domain("1/s burst 1", algorithm=algorithm)])
        control = None
        for _ in range(3):
            master.account(accepted(NOW), NOW)
        assert master.account(accepted(NOW - HOUR), NOW - HOUR) is None or algorithm != "log"
        then = NOW - HOUR + 4.0
        for _ in range(3):
            control = master.account(accepted(then), then) or control
        assert then < control.release <= then + 3.0
        assert list(master.holds("api", now=then)) == [control]
        assert list(master.holds("api", now=then + 3.0)) == []

    def test_held_and_top_return_wall_clock_time(self):
        gatekeeper = Gatekeeper()
        gatekeeper.admit("api", b"other", now=NOW)
        gatekeeper.admit("api", b"other", now=NOW - HOUR)
        gatekeeper.obey(DelayUntil("api", b"alice", NOW - HOUR + 3.0))
        assert top(gatekeeper, "api", now=NOW - HOUR) == [(b"alice", NOW - HOUR + 3.0)]
        assert gatekeeper.held("api", b"alice", now=NOW - HOUR) == NOW - HOUR + 3.0
        assert top(gatekeeper, "api", now=NOW - HOUR + 3.0) == []

    def test_adopt_keeps_the_clock_of_a_gatekeeper(self):
        old = Gatekeeper()
        old.obey(DelayUntil("api", b"alice", NOW + 3.0))
        old.admit("api", b"alice", now=NOW)
        old.admit("api", b"alice", now=NOW - HOUR)
        new = Gatekeeper()
        new.adopt(old, ["api"])
        assert new.admit("api", b"alice", now=NOW - HOUR + 1.0).wait == 2.0
        assert new.clock.steps == 1

    def test_adopt_keeps_the_clock_of_a_master(self):
        old = Master([domain("1/min burst 1")])
        old.account(accepted(NOW), NOW)
        new = Master([domain("1/min burst 1")])
        new.adopt(old)
        assert new.account(accepted(NOW - HOUR), NOW - HOUR) is None
        assert new.account(accepted(NOW - HOUR + 30.0), NOW - HOUR + 30.0).release == NOW - HOUR + 90.0
        assert new.clock.steps == 1

    def test_embedded_master_has_the_clock_of_its_gatekeeper(self):
        old = Gatekeeper()
        old.admit("api", b"alice", now=NOW)
        new = Gatekeeper.embedded([domain("1/min burst 1")])
        new.adopt(old, [])
        new.admit("api", b"alice", now=NOW - HOUR)
        assert new.master.clock is new.clock
        assert new.held("api", b"alice", now=NOW - HOUR) == NOW - HOUR + 60.0


class TestSteadyClock:
    def test_small_step_back_is_read_unchanged(self):
        clock = SteadyClock()
        readings = [clock.read(NOW), clock.read(NOW - TOLERANCE), clock.read(NOW - 0.5), clock.read(NOW + 1.0)]
        assert readings == [NOW, NOW - TOLERANCE, NOW - 0.5, NOW + 1.0]
        assert clock.steps == 0

    def test_larger_step_back_is_rounded_up_to_whole_seconds(self):
        clock = SteadyClock()
        clock.read(NOW)
        assert clock.read(NOW - 2.25) == NOW + 0.75
        assert (clock.behind, clock.steps) == (3.0, 1)
        assert clock.read(NOW - 1.25) == NOW + 1.75
        assert clock.read(NOW - 10.0) >= NOW + 1.75
        assert clock.steps == 2

    def test_clock_set_forward_again_goes_forward(self):
        clock = SteadyClock()
        for now in (NOW, NOW - HOUR, NOW + 1.0):
            reading = clock.read(now)
        assert reading == NOW + 1.0 + HOUR
        assert clock.steps == 1


class TestLongestHold:
    """Controls of a master whose clock is ahead of this machine's."""

    def test_overlong_hold_is_shortened_to_what_the_rules_permit(self):
        """Otherwise a master that is an hour ahead rejects a client for an hour."""
        gatekeeper = Gatekeeper(max_delay=1.0, max_hold=longest_hold([domain("1/s burst 2")], 1.0))
        gatekeeper.obey(DelayUntil("api", b"alice", NOW + HOUR))
        assert gatekeeper.admit("api", b"alice", now=NOW).release == NOW + 4.0
        assert gatekeeper.admit("api", b"alice", now=NOW + 3.0).release == NOW + 4.0
        assert gatekeeper.admit("api", b"alice", now=NOW + 4.0).status is ACCEPTED
        assert gatekeeper.shortened == 1

    @pytest.mark.parametrize(
        ("last", "seconds", "held", "shortened"),
        [
            (None, HOUR, 4.0, 1),
            (None, 4.01, 4.0, 1),
            (None, 4.001, 4.001, 0),  # it was rounded up
            # The latest instant of an idle gatekeeper is that of its last request.
            (-HOUR, 4.0, 4.0, 0),
            (HOUR, 4.0, 4.0, 0),  # and then the clock was set back
        ],
    )
    def test_overlong_control_is_shortened_when_it_is_received(self, last, seconds, held, shortened):
        gatekeeper = Gatekeeper(max_hold=4.0)
        if last is not None:
            gatekeeper.admit("api", b"bob", now=NOW + last)
        gatekeeper.obey(DelayUntil("api", b"alice", NOW + seconds), now=NOW)
        assert gatekeeper.held("api", b"alice", now=NOW) == NOW + held
        assert gatekeeper.admit("api", b"alice", now=NOW + 1.0).release == NOW + held
        assert gatekeeper.shortened == shortened

    def test_longest_hold_is_delay_plus_longest_window_plus_a_second(self):
        domains = [domain("1/s burst 2", "2/min burst 3"), Domain("web")]
        assert longest_hold(domains, 5.0) == 5.0 + 90.0 + 1.0
        assert longest_hold([Domain("web")], 5.0) == 6.0

    def test_embedded_gatekeeper_uses_the_longest_hold_of_its_rules(self):
        gatekeeper = Gatekeeper.embedded([domain("1/s burst 2")], max_delay=1.0)
        gatekeeper.obey(DelayUntil("api", b"alice", NOW + HOUR))
        assert gatekeeper.admit("api", b"alice", now=NOW).release == NOW + 4.0
        assert gatekeeper.master.timestamp(NOW, NOW + HOUR, NOW) == NOW + 1.0

    def test_maximum_hold_without_rules_is_a_month(self):
        gatekeeper = Gatekeeper()
        gatekeeper.obey(DelayUntil("api", b"alice", 999_999_999_999.999))
        assert gatekeeper.admit("api", b"alice", now=NOW).release == NOW + MAX_HOLD == NOW + 31 * 86_400.0
