import pytest

from headgate.errors import ConfigurationError
from headgate.limit import ConcurrencyLimit, ConcurrencySettings
from headgate.origin import Routes
from headgate.origin.concurrency import make_limit, make_priority_of


def test_a_limit_is_made_of_settings_or_given():
    limit = ConcurrencyLimit(ConcurrencySettings(max=9), lambda: 0.5)
    assert make_limit(limit) is limit
    made = make_limit(ConcurrencySettings(max=5))
    assert made is not None
    assert made.limit == 5
    assert make_limit(None) is None
    assert make_limit(ConcurrencySettings(mode="off")) is None


def test_all_requests_are_those_of_people_without_priorities():
    assert make_priority_of(None, "x") is None
    by_domain = make_priority_of({"bots": "automated"}, lambda request: "any name")
    assert by_domain is not None
    assert [by_domain(object(), name) for name in ("bots", "x")] == ["automated", "people"]


def test_a_domain_of_no_route_is_an_error():
    with pytest.raises(ConfigurationError, match="expected one of none"):
        make_priority_of({"x": "people"}, Routes([]))
