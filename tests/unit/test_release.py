import pytest

from headgate.limit import Rule
from headgate.release import ASAP, NEVER, Status, advance, judge


@pytest.mark.parametrize(
    ("release", "status"),
    [
        (ASAP, Status.ACCEPTED),
        (99.0, Status.ACCEPTED),
        (100.0, Status.ACCEPTED),
        (100.001, Status.DELAYED),
        (105.0, Status.DELAYED),
        (105.001, Status.REJECTED),
        (NEVER, Status.REJECTED),
    ],
)
def test_verdict_by_release(release, status):
    assert judge(release, now=100.0, max_delay=5.0) is status


def test_held_request_is_rejected_without_a_delay():
    assert judge(100.5, now=100.0, max_delay=0.0) is Status.REJECTED


def test_advance_rounds_down():
    start, interval = 1_700_000_000.0, Rule.parse("10/s").interval
    total = start
    for step in range(1, 101):
        total = advance(total, interval)
        assert total <= start + step / 10
    assert total == pytest.approx(start + 10, abs=1e-4)
