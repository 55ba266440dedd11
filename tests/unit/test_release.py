import pytest

from headgate.release import ASAP, NEVER, Status, judge


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
def test_a_request_is_held_strictly_and_delayed_up_to_the_longest_delay(release, status):
    assert judge(release, now=100.0, max_delay=5.0) is status


def test_without_any_delay_allowed_a_held_request_is_rejected():
    assert judge(100.5, now=100.0, max_delay=0.0) is Status.REJECTED
