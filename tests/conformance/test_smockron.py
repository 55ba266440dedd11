"""smockron.txt: rules that no test of a single part shows; the others are quoted by those (`make conformance`)."""

import pytest

from headgate.limit import Accounting, DelayUntil, Domain, Gatekeeper, Master, Rule
from headgate.limit.messages import encode_accounting
from headgate.release import Status
from tests.quotes import quotes


def master(rule="1/s burst 2", algorithm="log"):
    return Master([Domain("api", (Rule.parse(rule),), algorithm)])


def accepted(moment, identifier=b"alice", domain="api"):
    return Accounting(domain, Status.ACCEPTED, identifier, moment, moment)


def delayed(moment, until):
    return Accounting("api", Status.DELAYED, b"alice", moment, until)


def releases(subject, *messages):
    """Return the release time that follows from each (message, arrival)."""
    controls = [subject.account(message, now) for message, now in messages]
    return [None if control is None else control.release for control in controls]


@quotes("smockron Definitions", "Rate-limiting is performed on a per-domain basis.")
@quotes("smockron Definitions", "Client Identifier: Something that identifies a client (e.g. IP address or username).")
def test_domains_and_clients_are_limited_separately():
    rules = (Rule.parse("1/s burst 1"),)
    gatekeeper = Gatekeeper.embedded([Domain("api", rules), Domain("web", rules)])
    for domain, identifier, status in (
        ("api", b"alice", Status.ACCEPTED),
        ("api", b"alice", Status.DELAYED),
        ("web", b"alice", Status.ACCEPTED),
        ("api", b"192.0.2.1", Status.ACCEPTED),
    ):
        assert gatekeeper.admit(domain, identifier, now=100.0).status is status


@quotes(
    "smockron Definitions",
    "monitors traffic through the gatekeepers, applies rate limiting logic, and instructs the gatekeepers as to when "
    "and whether requests are allowed.",
)
def test_a_master_applies_logic_and_instructs():
    one, two = Gatekeeper(), Gatekeeper()
    control = master("1/s burst 1").account(one.admit("api", b"alice", now=100.0), 100.0)
    for gatekeeper in (one, two):
        gatekeeper.obey(control)
        assert gatekeeper.admit("api", b"alice", now=100.5).release == 101.0


@quotes(
    "smockron Definitions",
    "A domain can have zero or more rules; it will throttle a request if any rule says it should be throttled.",
)
@pytest.mark.parametrize("algorithm", ["log", "gcra"])
@pytest.mark.parametrize(
    ("rules", "expected"), [((), None), (("1/s burst 1",), 101.0), (("1/s burst 1", "1/min burst 1"), 160.0)]
)
def test_a_domain_has_zero_or_more_rules(rules, expected, algorithm):
    subject = Master([Domain("api", tuple(map(Rule.parse, rules)), algorithm)])
    assert releases(subject, (accepted(100.0), 100.0)) == [expected]


@quotes(
    "smockron Logic",
    "If the number of requests in the past `(burst / rate)` is less than `burst`, then another request is acceptable "
    "immediately.",
)
def test_fewer_than_burst_in_the_window():
    messages = [(accepted(moment), moment) for moment in (100.0, 100.0, 103.0, 103.5)]
    assert releases(master("1/s burst 3"), *messages) == [None, None, None, None]


@quotes(
    "smockron Logic",
    "Otherwise let `start` be the greater of the current time and the last timestamp in the history; the next request "
    "will be allowed at the time `start + (1 / rate)`.",
)
def test_otherwise_one_interval_after_the_current_time_or_the_last_timestamp():
    assert releases(master(), (accepted(100.0), 100.5), (accepted(100.0), 100.75)) == [None, 101.75]
    assert releases(master(), (accepted(100.0), 100.0), (delayed(100.0, 103.0), 100.25)) == [None, 104.0]


@quotes(
    "smockron Logic",
    "The timestamps stored in the history should be the received timestamp for accepted requests, and the delayed "
    "timestamp for delayed requests",
)
def test_what_the_history_stores():
    subject = master()
    messages = [(accepted(100.0), 100.0), (accepted(100.0), 100.0), (delayed(100.0, 101.0), 100.0)]
    assert releases(subject, *messages) == [None, 101.0, 102.0]
    # It counts as one at 101: as one at 100, when it was received, it would have left the window.
    assert releases(subject, (accepted(102.75), 102.75)) == [103.75]


@quotes(
    "smockron Protocol",
    'it applies the "Throttling logic" above to determine when the next request for the given identifier is allowed '
    "on the given domain, using the rules for that domain.",
    "If the next request is allowable right now it does nothing (except logging and statistics collection)",
    "otherwise it publishes a control message informing gatekeepers of the next allowable request timestamp for the "
    "identifier.",
)
def test_the_master_publishes_if_the_next_request_is_held():
    subject = Master([Domain("api", (Rule.parse("1/s burst 1"),)), Domain("web", (Rule.parse("4/s burst 2"),))])
    assert subject.account(accepted(100.0), 100.0) == DelayUntil("api", b"alice", 101.0)
    assert releases(subject, (accepted(100.0, domain="web"), 100.0)) == [None]
    assert releases(subject, (accepted(100.0, domain="web"), 100.0), (accepted(100.0, b"bob"), 100.0)) == [
        100.25,
        101.0,
    ]
    assert (subject.totals["api"].accepted, subject.totals["web"].accepted) == (2, 2)


@quotes(
    "smockron Protocol",
    'A gatekeeper must send an "accepted" accounting message for each request it accepts, with the identifier and '
    "request timestamp.",
    'A gatekeeper must send a "delayed" accounting message for each request it delays, with the identifier, request '
    "timestamp, and timestamp to which the request was delayed.",
    'A gatekeeper may send a "rejected" accounting message for each request it rejects, with the identifier and '
    "request timestamp.",
    "All accounting messages may have an optional final field which contains information of use for debugging",
)
@pytest.mark.parametrize(("hold", "status"), [(0.0, "ACCEPTED"), (1.0, "DELAYED"), (9.0, "REJECTED")])
def test_every_verdict_is_accounted(hold, status):
    sent = []
    gatekeeper = Gatekeeper(lambda accounting, now: sent.append(encode_accounting(accounting)))
    gatekeeper.obey(DelayUntil("api", b"alice", 100.0 + hold))
    gatekeeper.admit("api", b"alice", now=100.0, loginfo=b"curl/8")
    timestamp = b"101000" if status == "DELAYED" else b""
    assert sent == [[b"api\0", status.encode(), b"alice", b"100000", timestamp, b"curl/8"]]


@quotes(
    "smockron Fault-Tolerance",
    "the gatekeeper uses local information to decide the disposition of each request instead of consulting the master",
    "In the absence of control messages, the gatekeepers will allow all requests",
)
def test_without_control_messages_all_requests_are_allowed():
    asked = []
    gatekeeper = Gatekeeper(lambda accounting, now: asked.append(accounting.status))
    verdicts = [gatekeeper.admit("api", b"alice", now=100.0).status for _ in range(1_000)]
    assert set(verdicts) == {Status.ACCEPTED}
    assert asked == verdicts, "the master is told of the verdict, not asked for it"


@quotes(
    "smockron Fault-Tolerance",
    "requests might be allowed that would have been dropped in the ideal case of a master that responds instantly, but "
    "no requests will be delayed or rejected that would not have been otherwise.",
)
@pytest.mark.parametrize("lost", range(1, 8))
def test_lost_messages_cause_no_hold(lost):
    ideal = Gatekeeper.embedded([Domain("api", (Rule.parse("1/s burst 2"),), "log")])
    behind, forgetful, kinder = Gatekeeper(), master(), 0
    for number in range(24):
        now = 100.0 + number / 4
        wanted = ideal.admit("api", b"alice", now=now)
        got = behind.admit("api", b"alice", now=now)
        assert got.release <= wanted.release
        kinder += got.release < wanted.release
        if number % 8 != lost and wanted.status is not Status.REJECTED:
            control = forgetful.account(wanted, now)
            if control is not None:
                behind.obey(control)
    assert kinder
