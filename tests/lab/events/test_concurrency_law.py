"""The concurrency limit of the cores as a law of the lab."""

import pytest

from headgate.errors import ConfigurationError
from lab.events.concurrency_law import ConcurrencyLaw
from lab.events.laws import Decision, Outcome
from tests.lab.events.worlds import Request


def law(limit=1, queue=1):
    return ConcurrencyLaw(ConcurrencyLaw.Settings(max=limit, queue=queue), lambda: 0.5)


def test_a_request_starts_another_waits_for_its_end_and_a_third_is_refused():
    limit, (first, second, third) = law(), (Request(), Request(), Request())
    assert limit.arrived(first, now=0.0) == (Decision(first, starts=True),)
    assert not limit.arrived(second, now=0.0)
    assert limit.signals()["queued"] == 1.0
    (refused,) = limit.arrived(third, now=0.0)
    assert (refused.request, refused.starts) == (third, False)
    assert refused.retry_after > 0.0
    assert list(limit.completed(first, 0.1, Outcome.ANSWERED, now=0.1)) == [Decision(second, starts=True)]


def test_a_request_that_left_does_not_start():
    limit, (first, second) = law(), (Request(), Request())
    limit.arrived(first, now=0.0)
    limit.arrived(second, now=0.0)
    assert not limit.left(second, now=0.1)
    assert not limit.completed(first, 0.2, Outcome.TIMED_OUT, now=0.2)
    assert limit.signals()["queued"] == 0.0


def test_a_priority_that_the_limit_does_not_have_is_named():
    limit = law()
    limit.arrived(Request(), now=0.0)
    with pytest.raises(ConfigurationError, match=r"loads\.visitors\.priority: unknown priority 'poeple'; expected one"):
        limit.arrived(Request(priority="poeple"), now=0.0)
