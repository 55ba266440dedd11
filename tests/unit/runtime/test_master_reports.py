import pytest

from headgate.runtime.master_reports import MasterReports

LOST = "warning: master a:1 is not connected; the other masters take over"
BACK = "master a:1 is connected"


class Connection:
    """What the reports read of a connection."""

    def __init__(self, address, *, is_up=False):
        self.address = address
        self.is_up = is_up
        self.connections = self  # which has what it reads of those
        self.has_reported_failure = False


class Setup:
    """Two masters, of which the second one is connected, and the lines about them."""

    def __init__(self):
        self.one, self.other = Connection("a:1"), Connection("b:2", is_up=True)
        self.listed = [self.one, self.other]
        self.lines = []
        self._reports = MasterReports(lambda: self.listed, self.lines.append)

    def check(self, moment, *, up=None):
        """Return the lines of one check."""
        if up is not None:
            self.one.is_up = up
        self.lines.clear()
        self._reports.check(moment)
        return list(self.lines)


@pytest.fixture
def setup():
    return Setup()


def test_master_that_connects_within_five_seconds_of_the_start_is_not_reported(setup):
    assert setup.check(100.0) == setup.check(104.9) == setup.check(105.0, up=True) == []


def test_master_that_is_never_connected_is_reported_once_an_hour(setup):
    assert setup.check(100.0) == []
    hint = "check its address, and that it is running"
    assert setup.check(105.0) == [f"warning: master a:1 is not connected yet; {hint}; the other masters take over"]
    assert setup.check(200.0) == setup.check(3_704.0) == []
    assert len(setup.check(3_705.0)) == 1
    assert setup.check(3_706.0) == setup.check(7_304.0) == []
    assert setup.check(7_304.5, up=True) == [BACK]


def test_master_that_is_lost_is_reported_and_when_it_is_back(setup):
    assert setup.check(100.0, up=True) == []
    assert setup.check(100.5, up=False) == [LOST]
    assert setup.check(101.0) == []
    assert setup.check(101.5, up=True) == [BACK]
    assert setup.check(102.0) == []


def test_lines_about_a_master_that_comes_and_goes_are_limited(setup):
    setup.check(100.0, up=True)
    lines = [line for step in range(200) for line in setup.check(100.5 + step / 2, up=step % 2 == 1)]
    assert lines.count(LOST) == lines.count(BACK) == 10
    # The last line says what is true.
    assert setup.check(1_000.0, up=False) == [LOST]


def test_loss_within_the_interval_is_reported_after_it(setup):
    setup.check(100.0, up=True)
    assert setup.check(101.0, up=False) == [LOST]
    assert setup.check(102.0, up=True) == [BACK]
    assert setup.check(103.0, up=False) == setup.check(110.9) == []
    assert setup.check(111.0) == [LOST]


def test_loss_of_the_last_master_says_what_follows(setup):
    setup.listed = [setup.one]
    setup.check(100.0, up=True)
    effect = "no master is connected; only the rules of a gate's own file hold further clients"
    assert setup.check(101.0, up=False) == [f"warning: master a:1 is not connected; {effect}"]


def test_master_whose_handshake_failure_was_reported_has_no_second_line(setup):
    setup.one.has_reported_failure = True
    assert setup.check(100.0) == setup.check(200.0) == []
    setup.one.has_reported_failure = False
    assert setup.check(201.0, up=True) == [BACK]


def test_master_that_a_reload_adds_has_the_time_of_a_start(setup):
    setup.listed = [setup.other]
    setup.check(100.0)
    setup.listed = [setup.other, setup.one]
    assert setup.check(200.0) == setup.check(204.9) == []
    assert len(setup.check(205.0)) == 1
    setup.listed = [setup.other]
    assert setup.check(206.0) == []
