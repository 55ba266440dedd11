import pytest

from headgate.limit import Accounting, Domain, Master, Rule
from headgate.limit.master import MAX_LATENESS
from headgate.release import Status
from headgate.store import SharedMaster

ONE = (Rule.parse("1/s burst 1"),)
NOW = 1_000.0


def shared(*domains):
    records = []

    def share(domain, *record):
        records.append((domain.domain.name, *record))

    return SharedMaster(domains or [Domain("api", ONE)], share, max_identifiers=100, max_delay=5.0), records


def account(master, status=Status.ACCEPTED, *, domain="api", identifier=b"a", received=NOW, release=NOW, now=NOW):
    return master.account(Accounting(domain, status, identifier, received, release), now)


def test_record_is_applied_in_memory_and_shared():
    master, records = shared()
    assert account(master).release == NOW + 1
    assert account(master, Status.DELAYED, release=NOW + 3).release == NOW + 4
    assert records == [("api", b"a", NOW, NOW), ("api", b"a", NOW + 3, NOW)]


def test_rejected_and_late_records_are_not_shared():
    master, records = shared()
    account(master, Status.REJECTED)
    account(master, received=NOW - MAX_LATENESS - 0.1, release=NOW - MAX_LATENESS - 0.1)
    assert records == []


@pytest.mark.parametrize(
    "domain", [Domain("api"), Domain("api", ONE, mode="off"), Domain("api", ONE, exempt=("a",)), Domain("other", ONE)]
)
def test_records_that_no_rule_applies_to_are_not_shared(domain):
    master, records = shared(domain)
    account(master)
    assert records == []


def test_shadowed_and_other_identifiers_are_shared():
    master, records = shared(Domain("api", ONE, mode="shadow", exempt=("b",)))
    assert account(master) is None
    assert len(records) == 1


def test_shared_instants_are_wall_clock_time():
    master, records = shared()
    account(master, received=NOW + 3_600, release=NOW + 3_600, now=NOW + 3_600)
    account(master)  # the clock was set back by an hour
    assert master.clock.behind == 3_600
    assert records[-1] == ("api", b"a", NOW, NOW)


def test_longest_hold_follows_from_the_rules_and_the_delay():
    from headgate.store.master import unpack_doubles

    master, _ = shared(Domain("api", (Rule.parse("1/s burst 9"), Rule.parse("1/min burst 1"))))
    assert unpack_doubles(master.shared["api"].arguments[2])[0] == 5.0 + 60.0 + 1.0


def test_the_last_requests_of_a_report_are_shared():
    master, records = shared(Domain("api", (Rule.parse("10/s burst 3"),), exempt=("b",)))
    for identifier in (b"a", b"b"):
        master.record_many("api", identifier, accepted=50, rejected=7, start=NOW - 5.0, now=NOW)
    assert records == [("api", b"a", pytest.approx(NOW - ago), NOW) for ago in (0.3, 0.2, 0.1)]
    assert (master.totals["api"].accepted, master.totals["api"].rejected) == (100, 14)
    master, records = shared(Domain("api", (Rule.parse("1000/s burst 999"),)))
    master.record_many("api", b"a", accepted=999, rejected=0, start=NOW - 5.0, now=NOW)
    assert len(records) == 256


def test_a_report_counts_as_that_of_a_master_alone():
    (master, _), alone = shared(), Master([Domain("api", ONE)])
    for one in (master, alone):
        account(one)
    report = {"accepted": 1, "rejected": 0, "start": NOW - 0.5, "now": NOW}
    assert master.record_many("api", b"a", **report) == alone.record_many("api", b"a", **report)


def test_a_request_of_a_report_is_shared_although_it_may_be_late():
    master, records = shared()
    master.record_many("api", b"a", accepted=1, rejected=0, start=NOW - 5.0, now=NOW)
    master.record_many("api", b"a", accepted=0, rejected=5, start=NOW - 5.0, now=NOW)
    master.record_many("other", b"a", accepted=1, rejected=0, start=NOW - 5.0, now=NOW)
    assert records == [("api", b"a", NOW - MAX_LATENESS, NOW)]
