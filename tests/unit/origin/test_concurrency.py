import pytest

from headgate.errors import ConfigurationError
from headgate.limit import ConcurrencyLimit, ConcurrencySettings
from headgate.limit.concurrency import ConcurrencyState
from headgate.origin import Routes
from headgate.origin.concurrency import LimitLog, make_limit, make_priority_of


def state(limit=20.0, in_flight=3, queued=0, reason="start"):
    return ConcurrencyState(limit, in_flight, queued, "enforce", reason, 0.0)


def lines(log, looks):
    """The lines of each second, for (state, refused) of each second."""
    return [list(log.lines(each, refused, now=float(second))) for second, (each, refused) in enumerate(looks)]


def test_a_change_of_the_limit_by_a_fifth_is_a_line():
    limits = [20.0, 24.0, 24.1, 24.1, 19.0, 19.5]
    seen = lines(LimitLog(), [(state(limit, reason="why"), 0) for limit in limits])
    assert seen == [[], [], ["concurrency: limit 20 is now 24: why (limit 24, in flight 3, queued 0)"], [], [], []]


def test_lines_of_a_kind_are_ten_seconds_apart():
    looks = [(state(20.0 * 2**second), 0) for second in range(25)]
    assert [second for second, each in enumerate(lines(LimitLog(), looks)) if each] == [1, 11, 21]


@pytest.mark.parametrize("kind", ["requests wait", "requests are refused"])
def test_a_spell_begins_once_and_ends_after_ten_seconds_without(kind):
    def look(number):
        return (state(), number) if "refused" in kind else (state(queued=number), 0)

    log = LimitLog()
    seen = lines(log, [look(number) for number in (0, 5, 5, 0, 5)])
    assert [[line.startswith(f"concurrency: {kind} (") for line in each] for each in seen] == [[], [True], [], [], []]
    assert log.is_open
    ends = lines(log, [look(0) for _ in range(20)])
    assert [second for second, each in enumerate(ends) if each] == [14]
    assert "for 10 s; it began 13 s ago" in ends[14][0]
    assert not log.is_open


def test_a_limit_is_made_of_settings_or_given():
    limit = ConcurrencyLimit(ConcurrencySettings(), lambda: 0.5)
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
