import pytest

from headgate.release import ASAP, NEVER
from headgate.throttle import Explanation

URL = "http://a/x?y"


def test_it_begins_as_knowing_nothing():
    found = Explanation(url=URL, now=5.0, target="http://a/x")
    assert (found.failures, found.release, found.held, found.reason) == (0, ASAP, False, "free")


def test_the_release_is_the_later_horizon():
    assert Explanation(url=URL, now=5.0, backoff=7.0, retry_after=6.0).release == 7.0
    assert Explanation(url=URL, now=5.0, backoff=7.0, retry_after=8.0).release == 8.0


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "http://a/x: free, nothing holds it, after no failures"),
        ({"failures": 1}, "http://a/x: free, nothing holds it, after one failure"),
        (
            {"failures": 3, "backoff": 5.98, "held": True, "reason": "backoff"},
            "http://a/x: held, for 0.980 s more: the backoff after 3 failures",
        ),
        (
            {"target": "http://a/*", "retry_after": 125.0, "held": True, "reason": "retry-after"},
            "http://a/*: held, for 120.000 s more: its Retry-After",
        ),
        (
            {"retry_after": NEVER, "held": True, "reason": "retry-after"},
            "http://a/x: held, for good: its Retry-After",
        ),
        ({"reason": "opted out"}, "http://a/x: free, its host opted out of throttling"),
        ({"reason": "localhost"}, "http://a/x: free, this machine is never held"),
        (
            {"backoff": 6.0, "reason": "user gesture"},
            "http://a/x: free, a user has just asked; else held for 1.000 s more",
        ),
        ({"target": None, "reason": "no target"}, "http://a/x?y: free, no http or https URL"),
    ],
)
def test_it_can_be_read(fields, said):
    assert str(Explanation(**{"url": URL, "now": 5.0, "target": "http://a/x"} | fields)) == said
