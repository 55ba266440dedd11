from headgate.limit import Accounting, Rule
from headgate.link.recent_accounting import DEFAULT_WINDOW, RecentAccounting
from headgate.release import Status

NOW = 1_700_000_000.0


def verdict(received, *, identifier=b"id", domain="api", status=Status.ACCEPTED, release=None, loginfo=b""):
    return Accounting(domain, status, identifier, received, received if release is None else release, loginfo)


def times(recent, domain="api", *, now=NOW, start=0, end=None):
    """Return the times of the verdicts between two positions."""
    end = recent.position(domain) if end is None else end
    return [one.received for one in recent.between(domain, start, end, now=now)]


def test_verdicts_are_kept_for_the_window_of_their_domain():
    recent = RecentAccounting(["api", "web"], {"api": 10.0, "web": 100.0})
    for domain in ("api", "web"):
        recent.extend(verdict(NOW - age, domain=domain) for age in (11.0, 10.0, 9.0, 0.0))
    assert times(recent) == [NOW - 9.0, NOW]
    assert times(recent, "web") == [NOW - 11.0, NOW - 10.0, NOW - 9.0, NOW]
    assert len(recent) == 6
    assert times(recent, now=NOW + 9.0) == [NOW]


def test_a_delayed_verdict_is_kept_until_its_release_has_left_the_window():
    recent = RecentAccounting(["api"], {"api": 10.0})
    recent.extend([verdict(NOW - 12.0, status=Status.DELAYED, release=NOW - 9.0), verdict(NOW)])
    assert times(recent) == [NOW - 12.0, NOW]


def test_a_window_that_is_too_short_for_a_float_keeps_nothing():
    recent = RecentAccounting(["api"], {"api": Rule.parse("100000000/s burst 1").window})
    recent.extend([verdict(NOW), verdict(NOW)])
    assert (len(recent), recent.position("api")) == (0, 2)


def test_the_verdicts_of_a_domain_without_rules_are_kept_for_an_hour():
    recent = RecentAccounting(["api"])
    recent.extend(verdict(NOW - age) for age in (DEFAULT_WINDOW, DEFAULT_WINDOW - 1, 0.0))
    assert times(recent) == [NOW - DEFAULT_WINDOW + 1, NOW]


def test_what_a_master_does_not_record_is_not_kept():
    recent = RecentAccounting(["api", "none"], {"none": 0.0})
    recent.extend(
        [
            verdict(NOW, status=Status.REJECTED),
            verdict(NOW, identifier=b"x" * 256),
            verdict(NOW, domain="other"),
            verdict(NOW, domain="none"),
        ]
    )
    assert len(recent) == 0


def test_log_info_is_not_kept():
    recent = RecentAccounting(["api"])
    recent.extend([verdict(NOW, loginfo=b"x" * 10_000)])
    assert recent.between("api", 0, 1, now=NOW) == [verdict(NOW)]


def test_too_many_verdicts_replace_the_oldest_of_the_largest_domain():
    recent = RecentAccounting(["api", "web"], max_recent=1_000)
    recent.extend(verdict(NOW - 1.0, domain="web") for _ in range(100))
    for number in range(10_000):
        recent.extend([verdict(NOW + number / 1_000.0)])
    assert 700 < len(recent) <= 1_000
    assert len(times(recent, "web", now=NOW + 10.0)) == 100
    assert times(recent, now=NOW + 10.0)[-1] == NOW + 9.999


def test_positions_stay_valid_when_verdicts_are_dropped():
    recent = RecentAccounting(["api"], {"api": 10.0}, max_recent=1_000)
    recent.extend([verdict(NOW)])
    first = recent.position("api")
    recent.extend([verdict(NOW + 5.0), verdict(NOW + 6.0)])
    second = recent.position("api")
    recent.extend([verdict(NOW + 12.0)])
    assert times(recent, now=NOW + 12.0, start=first, end=second) == [NOW + 5.0, NOW + 6.0]
    assert times(recent, now=NOW + 12.0, start=second) == [NOW + 12.0]
    recent.extend(verdict(NOW + 13.0) for _ in range(5_000))
    assert times(recent, now=NOW + 13.0, start=first, end=second) == []


def test_verdicts_from_before_the_clock_was_set_back_are_left_out():
    recent = RecentAccounting(["api"])
    recent.extend([verdict(NOW + 1_800.0), verdict(NOW)])
    assert times(recent, now=NOW + 1.0) == [NOW]


def test_domains_can_change():
    """A domain that comes back begins anew, after all positions that it had."""
    recent = RecentAccounting(["api", "web"], {"api": 10.0})
    recent.extend([verdict(NOW), verdict(NOW, domain="web"), verdict(NOW + 5.0)])
    before = recent.position("web")
    recent.set_domains(["api", "new"], {"api": 2.0, "new": 5.0})
    assert len(recent) == 2
    assert times(recent, now=NOW + 5.0) == [NOW + 5.0]
    assert times(recent, "web", end=before) == []
    recent.set_domains(["web", "api"])
    recent.extend([verdict(NOW + 6.0, domain="web")])
    assert times(recent, "web", now=NOW + 6.0, start=before) == [NOW + 6.0]
    assert times(recent, "web", now=NOW + 6.0, end=before) == []
