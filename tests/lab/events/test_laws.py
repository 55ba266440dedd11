import pytest

from lab.events.laws import Decision, FixedLimit, Outcome
from tests.lab.events.worlds import Request


@pytest.fixture
def requests():
    return [Request() for _ in range(6)]


def fixed(limit=2, queue=2, retry_after=3.0):
    return FixedLimit(FixedLimit.Settings(limit=limit, queue=queue, retry_after=retry_after), lambda: 0.0)


def test_a_fixed_limit_starts_then_queues_then_refuses(requests):
    law = fixed()
    decided = [law.arrived(one, now=0.0) for one in requests]
    assert decided[:2] == [(Decision(one, starts=True),) for one in requests[:2]]
    assert decided[2:4] == [(), ()]
    assert decided[4:] == [(Decision(one, starts=False, retry_after=3.0),) for one in requests[4:]]
    assert law.signals() == {"queued": 2.0, "limit": 2.0}


@pytest.mark.parametrize("outcome", Outcome)
def test_an_end_starts_the_request_that_has_waited_longest(requests, outcome):
    law = fixed()
    for one in requests[:4]:
        law.arrived(one, now=0.0)
    assert law.completed(requests[0], 1.0, outcome, now=1.0) == [Decision(requests[2], starts=True)]
    assert law.completed(requests[1], 1.0, outcome, now=1.0) == [Decision(requests[3], starts=True)]
    assert law.completed(requests[2], 1.0, outcome, now=2.0) == []
    assert law.arrived(requests[4], now=2.0) == (Decision(requests[4], starts=True),)
    assert law.arrived(requests[5], now=2.0) == ()


def test_a_limit_that_a_subclass_changes(requests):
    law = fixed(limit=2, queue=4)
    for one in requests:
        law.arrived(one, now=0.0)
    law.limit = 1.0
    assert law.completed(requests[0], 1.0, Outcome.ANSWERED, now=1.0) == []
    assert law.signals() == {"queued": 4.0, "limit": 1.0}
    law.limit = 2.5  # three requests: the last one may start while fewer than 2.5 have
    decided = law.completed(requests[1], 1.0, Outcome.ANSWERED, now=1.0)
    assert decided == [Decision(one, starts=True) for one in requests[2:5]]
