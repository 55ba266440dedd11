from headgate.limit import Accounting
from headgate.link.announcement import announcement, split_resent_topic
from headgate.link.batch import MAX_RECORDS, decode_batch
from headgate.link.recent_accounting import RecentAccounting
from headgate.link.resender import IN_TRANSIT, Resender
from headgate.release import ASAP, NEVER, Status

NOW = 1_700_000_000.0
ONE, OTHER = announcement("0123456789abcdef"), announcement("fedcba9876543210")


class Setup:
    """A memory of verdicts, whose identifiers number them, and what is sent again from it.

    At first, all domains are routed to the connection "a".
    """

    def __init__(self, *domains, **options):
        self.recent = RecentAccounting(domains or ["api"], **options)
        self.resender = Resender(self.recent)
        self.routes = dict.fromkeys(domains or ["api"], "a")
        self.announcements = {}
        self.number = 0
        self.holds = {}

    def held(self, domain, identifier):
        return self.holds.get((domain, identifier), ASAP)

    def account(self, times=1, *, domain="api", now=NOW - 10.0):
        for _ in range(times):
            self.recent.extend([Accounting(domain, Status.ACCEPTED, b"%d" % self.number, now, now)])
            self.number += 1

    def connect(self, *announced, connection="a"):
        self.announcements[connection] = announced
        self.resender.update(self.routes, self.announcements, arrived=connection, now=NOW)

    def announce(self, *announced, connection="a", now=NOW):
        self.announcements[connection] = announced
        self.resender.update(self.routes, self.announcements, now=now)

    def route(self, **routes):
        self.routes |= routes
        self.resender.update(self.routes, self.announcements, now=NOW)

    def sent(self):
        """Send all that is to be sent; return the numbers of the verdicts."""
        return [number for _, _, numbers in self.batches() for number in numbers]

    def batches(self):
        found = []
        while (batch := self.resender.next_batch(self.held)) is not None:
            connection, (frame, payload), count = batch
            records, _ = decode_batch(payload)
            assert count == len(records) > 0
            assert split_resent_topic(frame)[0] in (ONE, OTHER)
            found.append((connection, split_resent_topic(frame), [int(record[1]) for record in records]))
            self.resender.sent()
        return found


def test_a_new_master_gets_what_was_accounted_for_before_its_connection():
    setup = Setup()
    setup.account(3)
    setup.connect(ONE)
    setup.account()
    assert setup.sent() == [0, 1, 2]
    setup.announce(ONE)
    assert setup.sent() == []


def test_an_announcement_that_follows_the_connection_repeats_nothing_sent_on_it():
    setup = Setup()
    setup.account(2)
    setup.connect()
    setup.account(2, now=NOW)
    setup.announce(ONE, now=NOW + IN_TRANSIT / 2)
    assert setup.sent() == [0, 1]


def test_a_master_that_does_not_announce_itself_gets_nothing():
    setup = Setup()
    setup.account(3)
    setup.connect()
    assert setup.sent() == []


def test_batches_are_of_one_domain_and_in_order():
    setup = Setup("api", "web")
    setup.account(MAX_RECORDS + 1)
    setup.account(domain="web")
    setup.connect(ONE)
    assert setup.resender.batches("a") == 3
    first, second, third = setup.batches()
    assert first == ("a", (ONE, "api"), list(range(MAX_RECORDS)))
    assert second == ("a", (ONE, "api"), [MAX_RECORDS])
    assert third == ("a", (ONE, "web"), [MAX_RECORDS + 1])
    assert setup.resender.batches("a") == 0


def test_a_batch_that_cannot_be_sent_stays_the_next():
    setup = Setup()
    setup.account()
    setup.connect(ONE)
    assert setup.resender.next_batch(setup.held) == setup.resender.next_batch(setup.held)
    assert setup.sent() == [0]


def test_a_master_that_connects_again_gets_what_was_made_meanwhile():
    setup = Setup()
    setup.account(2)
    setup.connect(ONE)
    setup.account(2)
    assert setup.sent() == [0, 1]
    setup.announce()
    setup.account(2)
    setup.connect(ONE)
    setup.account()
    assert setup.sent() == [4, 5]


def test_what_was_not_sent_before_the_connection_ended_is_sent_on_the_next():
    setup = Setup()
    setup.account(MAX_RECORDS + 1)
    setup.connect(ONE)
    setup.resender.sent()
    setup.announce()
    assert setup.resender.next_batch(setup.held) is None
    setup.account()
    setup.connect(ONE)
    assert setup.sent() == [MAX_RECORDS, MAX_RECORDS + 1]


def test_a_master_gets_the_domains_that_it_owns():
    setup = Setup("api", "web")
    setup.account(2)
    setup.account(domain="web")
    setup.route(web="b")
    setup.connect(ONE)
    setup.connect(OTHER, connection="b")
    assert setup.batches() == [("a", (ONE, "api"), [0, 1]), ("b", (OTHER, "web"), [2])]


def test_a_domain_that_moves_is_sent_again_to_its_new_owner():
    """Each master gets each verdict once, however often the domain moves."""
    setup = Setup()
    setup.connect(ONE)
    setup.connect(OTHER, connection="b")
    setup.account(2)
    setup.announce()
    setup.route(api="b")
    assert setup.batches() == [("b", (OTHER, "api"), [0, 1])]
    setup.account(2)
    setup.connect(ONE)
    setup.route(api="a")
    assert setup.batches() == [("a", (ONE, "api"), [2, 3])]
    setup.account()
    setup.route(api="b")
    assert setup.batches() == [("b", (OTHER, "api"), [4])]


def test_a_domain_that_moves_away_waits_with_what_was_not_sent():
    setup = Setup()
    setup.account(2)
    setup.connect(ONE)
    setup.route(api="b")
    assert setup.sent() == []
    setup.account()
    setup.route(api="a")
    assert setup.sent() == [0, 1, 2]


def test_a_domain_that_is_removed_is_not_sent():
    setup = Setup("api", "web")
    setup.account(2)
    setup.account(domain="web")
    setup.connect(ONE)
    del setup.routes["api"]
    setup.recent.set_domains(["web"])
    setup.route()
    assert setup.sent() == [2]


def test_a_successor_gets_everything_that_its_predecessor_got():
    setup = Setup()
    setup.account(2)
    setup.connect(ONE)
    setup.account()
    setup.sent()
    setup.connect(ONE, OTHER)  # the end of a connection can arrive after the start of the next
    setup.announce(OTHER)
    assert setup.sent() == [0, 1, 2]


def test_through_a_router_verdicts_that_may_have_reached_the_master_are_not_repeated():
    setup = Setup()
    setup.connect()
    setup.account(now=NOW - 50.0)
    setup.account(now=NOW - IN_TRANSIT)
    setup.account(now=NOW - IN_TRANSIT / 2)
    setup.announce(ONE)
    setup.account()
    assert setup.sent() == [0, 1]


def test_a_master_behind_two_routers_gets_everything_once():
    setup = Setup()
    setup.connect(connection="a")
    setup.connect(connection="b")
    setup.account(2)
    setup.announce(ONE, connection="a")
    setup.announce(ONE, connection="b")
    setup.route(api="b")  # the first router is lost
    setup.announce(connection="a")
    assert setup.batches() == [("b", (ONE, "api"), [0, 1])]
    setup.account()
    setup.announce(ONE, connection="a")
    setup.route(api="a")
    setup.announce(connection="b")
    assert setup.sent() == []


def test_the_number_of_announcements_is_bounded():
    setup = Setup()
    setup.account()
    many = [announcement(f"{number:016x}") for number in range(100)]
    setup.connect(*many)
    assert setup.resender.batches("a") == 64
    for number in range(100, 200):
        setup.connect(announcement(f"{number:016x}"))
    assert setup.resender.batches("a") == 1


def test_what_has_left_the_window_is_not_sent():
    setup = Setup(windows={"api": 20.0})
    setup.account(now=NOW - 25.0)
    setup.account(now=NOW - 15.0)
    setup.connect(ONE)
    assert setup.sent() == [1]


def test_the_last_record_of_an_identifier_has_its_hold():
    setup = Setup()
    for identifier in (b"held", b"free", b"held", b"ever", b"free"):
        setup.recent.extend([Accounting("api", Status.ACCEPTED, identifier, NOW - 10.0, NOW - 10.0)])
    setup.holds = {("api", b"held"): NOW + 1.5, ("web", b"free"): NOW, ("api", b"ever"): NEVER}
    setup.connect(ONE)
    _, (_, payload), _ = setup.resender.next_batch(setup.held)
    assert [(record[1], record[4]) for record in decode_batch(payload)[0]] == [
        (b"held", b""),
        (b"free", b""),
        (b"held", b"1700000001500"),
        (b"ever", b""),
        (b"free", b""),
    ]
