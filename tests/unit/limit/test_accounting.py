import pytest

from headgate.limit import Accounting
from headgate.release import NEVER, Status


@pytest.mark.parametrize(
    ("status", "release", "wait"),
    [
        (Status.ACCEPTED, 10.0, 0.0),
        (Status.DELAYED, 12.5, 2.5),
        (Status.REJECTED, NEVER, NEVER),
        (Status.REJECTED, 9.0, 0.0),
    ],
)
def test_the_wait_is_never_negative(status, release, wait):
    assert Accounting("api", status, b"a", 10.0, release).wait == wait
