from itertools import product

import pytest
import zmq

from headgate.limit import Domain, Master, Rule
from headgate.link.accounting_receiver import AccountingReceiver, domains_by_frame, split_messages
from headgate.link.batch import BATCH, batch_topic, encode_batch
from headgate.link.master_counters import MasterCounters

NOW = 1_700_000_000.0
MS = b"1700000000000"
WHOLE = [b"api\0", b"ACCEPTED", b"id", MS, b"", b""]
TOPICS = {b"api\0", b"api"}
COUNTED = ("too_short", "unknown_status", "bad_timestamp", "bad_record", "bad_batch", "too_long", "excess_frames")


class Setup:
    """A receiver over a real socket, with a real master whose rule holds from the first request on."""

    def __init__(self, pair, *names, rule="1/min burst 1", algorithm="log"):
        self.send, receiver = pair(zmq.PUSH, zmq.PULL)
        self.counters, self.published = MasterCounters(), []
        self.master = Master(Domain(name, (Rule.parse(rule),), algorithm) for name in names or ("api",))
        self.receiver = AccountingReceiver(
            receiver, self.master, lambda *control: self.published.append(control), self.counters
        )

    def receive(self, *messages, most=256):
        for message in messages:
            self.send.send_multipart(message)
        while self.receiver.receive(most, NOW):
            pass
        return {name: getattr(self.counters, name) for name in COUNTED if getattr(self.counters, name)}

    @property
    def accepted(self):
        return sum(totals.accepted for totals in self.master.totals.values())


@pytest.fixture
def setup(pair):
    return Setup(pair)


DOCUMENTED = [
    (WHOLE, NOW),
    (WHOLE[:5], NOW),
    ([b"api", *WHOLE[1:]], NOW),  # the original's gatekeeper leaves the NUL out
    ([*WHOLE[:5], b"log"], NOW),
    ([*WHOLE[:5], b"api"], NOW),
    ([*WHOLE[:2], b"\xff\xfe", *WHOLE[3:]], NOW),
    ([*WHOLE[:2], b"ACCEPTED", *WHOLE[3:]], NOW),
    ([b"api\0", b"DELAYED", b"id", MS, b"1700000000000.5", b""], NOW + 0.0005),
    # A clock that is ahead by a minute, and timestamps that are years ahead.
    ([*WHOLE[:3], b"1700000060000", b"", b""], NOW),
    ([*WHOLE[:3], b"1700000060000.5", b"", b""], NOW),
    ([b"api\0", b"DELAYED", b"id", b"1700000060000", b"1700000062500", b""], NOW + 2.5),
    ([batch_topic("api"), encode_batch([(1, b"id", 1_700_000_060_000, 1_700_000_062_500, b"")])], NOW + 2.5),
    ([*WHOLE[:3], b"999999999999999", b"", b""], NOW),
    ([b"api\0", b"DELAYED", b"id", MS, b"999999999999999", b""], NOW + 3_600),
    # A clock that is years behind.
    ([*WHOLE[:3], b"1", b"", b""], NOW - 60.0),
    ([b"api\0", b"DELAYED", b"id", b"1", b"2", b""], NOW - 60.0),
    ([b"api\0", b"DELAYED", b"id", b"1", b"1700000002500", b""], NOW + 2.5),
    ([batch_topic("api"), encode_batch([(0, b"id", 1, 0, b"")])], NOW - 60.0),
    ([batch_topic("api"), encode_batch([(1, b"id", 1, 2, b"")])], NOW - 60.0),
    ([batch_topic("api"), encode_batch([(1, b"id", 1, 1_700_000_002_500, b"")])], NOW + 2.5),
    # A delay that ends before the request was received.
    ([b"api\0", b"DELAYED", b"id", MS, b"1699999999000", b""], NOW),
    ([batch_topic("api"), encode_batch([(1, b"id", 1_700_000_000_000, 1_699_999_999_000, b"")])], NOW),
    ([batch_topic("api"), encode_batch([(1, b"id", 1_700_000_000_000, 1_700_000_002_500, b"")])], NOW + 2.5),
    ([batch_topic("api"), encode_batch([(1, b"id", 1_700_000_000_000, 999_999_999_999_999, b"")])], NOW + 3_600),
    ([*WHOLE[:3], b"-1", b"", b""], NOW - 60.0),
    ([b"api\0", b"DELAYED", b"id", MS, b"1700000002500", b""], NOW + 2.5),
    ([b"api\0", b"DELAYED", b"id", b"soon", b"1700000002500", b""], None),
    ([b"api\0", b"REJECTED", b"id", MS, b"", b""], None),
]
"""Messages, and the instant that each counts as; None if it holds no identifier."""


def test_messages_of_the_document_are_recorded(pair):
    for message, moment in DOCUMENTED:
        # The release is two minutes after the timestamp that counts, also after one of a minute ago.
        setup = Setup(pair, rule="1/2min burst 1", algorithm="gcra")
        counted = setup.receive(message)
        identifier = message[2] if len(message) > 2 else b"id"
        assert setup.published == ([] if moment is None else [("api", identifier, moment + 120.0)]), message
        if len(message) > 3 and message[3] == b"soon":
            assert counted == {"bad_timestamp": 1}
        else:
            assert (counted, setup.counters.accounted) == ({}, 1), message


MALFORMED = [
    ([b""], "too_short"),
    ([b"garbage"], "too_short"),
    (WHOLE[:1], "too_short"),
    (WHOLE[:2], "too_short"),
    (WHOLE[:3], "too_short"),
    (WHOLE[:4], "too_short"),
    ([b"other\0", *WHOLE[1:4]], "too_short"),
    ([b"", b"", b"", b"", b""], "unknown_status"),
    ([b"api\0", b"accepted", b"id", MS, b"", b""], "unknown_status"),
    ([b"api\0", b"ACCEPTED\0", b"id", MS, b"", b""], "unknown_status"),
    ([b"api\0", b"ACCEPTED", b"id", b"", b"", b""], "bad_timestamp"),
    ([b"api\0", b"ACCEPTED", b"id", b"nan", b"", b""], "bad_timestamp"),
    ([b"api\0", b"ACCEPTED", b"id", b"1e3", b"", b""], "bad_timestamp"),
    ([b"api\0", b"ACCEPTED", b"id", b"9" * 31, b"", b""], "bad_timestamp"),
    ([b"api\0", b"ACCEPTED", b"id", "１２".encode(), b"", b""], "bad_timestamp"),
    ([b"api\0", b"DELAYED", b"id", MS, b"", b""], "bad_timestamp"),
    ([b"api\0", b"DELAYED", b"id", MS, b"inf", b""], "bad_timestamp"),
    ([b"api\0", b"ACCEPTED", b"x" * 256, MS, b"", b""], "too_long"),
    ([BATCH + b"api\0"], "too_short"),
    ([BATCH + b"api\0", b"garbage"], "bad_batch"),
    ([BATCH + b"api\0", encode_batch([(0, b"x" * 256, 1, 0, b"")])], "too_long"),
    ([BATCH + b"api\0", b"\x92\x95\x00\xc4\x01a\x01\x00\xc4\x00\x01"], "bad_record"),
]


class TestAges:
    """The seconds from the receipt of a request to the arrival of its accounting."""

    def ages(self, setup):
        found = setup.receiver.ages.read(NOW)
        return None if found is None else (round(found.least, 3), round(found.greatest, 3))

    def test_of_the_last_message_of_a_call(self, setup):
        setup.receive([*WHOLE[:3], b"1699999990000", b"", b""], [*WHOLE[:3], b"1700000003000", b"", b""])
        assert self.ages(setup) == (-3.0, -3.0)
        setup.receive([*WHOLE[:3], b"1699999998500", b"", b""])
        assert self.ages(setup) == (-3.0, 1.5)

    def test_of_the_last_record_of_a_batch(self, setup):
        records = [(0, b"a", 1_699_999_990_000, 0, b""), (1, b"a", 1_699_999_998_500, 1_700_000_000_000, b"")]
        setup.receive([batch_topic("api"), encode_batch(records)], [batch_topic("api"), encode_batch([])])
        assert self.ages(setup) == (1.5, 1.5)

    def test_malformed_messages_have_none(self, pair):
        for message, kind in MALFORMED:
            if kind not in {"too_long", "bad_record"}:
                setup = Setup(pair)
                setup.receive(message)
                assert self.ages(setup) is None


def test_malformed_messages_are_counted_by_kind(pair):
    for message, kind in MALFORMED:
        setup = Setup(pair)
        assert setup.receive(message) == {kind: 1}, message
        assert [control for control in setup.published if control[1] != b"a"] == [], message


def test_a_malformed_message_does_not_affect_its_neighbours(pair):
    first, last = [*WHOLE[:2], b"first", *WHOLE[3:]], [*WHOLE[:2], b"last", *WHOLE[3:]]
    for message, kind in MALFORMED:
        setup = Setup(pair)
        setup.receive(first, message, message, last)
        held = [identifier for _, identifier, _ in setup.published if identifier != b"a"]
        assert held == [b"first", b"last"], message
        assert getattr(setup.counters, kind) >= 1, message


def test_truncated_messages_are_never_joined(pair):
    for size, other in product(range(1, 7), range(1, 7)):
        setup = Setup(pair)
        setup.receive(WHOLE[:size], WHOLE[:other], WHOLE[:size], WHOLE)
        assert setup.accepted == (2 if size >= 5 else 0) + (other >= 5) + 1, (size, other)
        if size >= 3 and other >= 3:
            assert setup.counters.too_short == (2 if size < 5 else 0) + (other < 5), (size, other)


def test_a_batch_after_messages_of_five_frames_is_read(setup):
    batch = [batch_topic("api"), encode_batch([(0, b"a", 1_700_000_000_000, 0, b"")])]
    assert setup.receive(WHOLE[:5], batch, WHOLE[:5], WHOLE) == {}
    assert setup.accepted == 4


@pytest.mark.parametrize("size", range(1, 5))
def test_a_batch_after_a_truncated_message_is_read(setup, size):
    batch = [batch_topic("api"), encode_batch([(0, b"a", 1_700_000_000_000, 0, b"")])]
    assert setup.receive(WHOLE[:size], batch) == {"too_short": 1}
    assert setup.accepted == 1


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(WHOLE, id="frames"),
        pytest.param(WHOLE[:5], id="five frames"),
        pytest.param([batch_topic("api"), encode_batch([(0, b"id", int(MS), 0, b"")])], id="batch"),
    ],
)
def test_after_the_clock_was_set_back_releases_are_published_in_wall_clock_time(setup, message):
    setup.master.clock.read(NOW + 3_600)
    setup.receive(message)
    assert setup.published == [("api", b"id", NOW + 60)]


def test_unknown_domains_are_counted(setup):
    setup.receive([b"other\0", *WHOLE[1:]], [batch_topic("other"), encode_batch([(0, b"a", 1, 0, b"")] * 3)])
    assert (setup.master.unknown, setup.published) == (4, [])


def test_each_record_of_a_batch_is_recorded(setup):
    records = [(0, b"a", 1_700_000_000_000, 0, b""), (1, b"b", 0, 1_700_000_003_000, b"log"), (2, b"c", 0, 0, b"")]
    assert setup.receive([batch_topic("api"), encode_batch(records), b"more", b"frames"]) == {"excess_frames": 2}
    assert setup.published == [("api", b"a", NOW + 60), ("api", b"b", NOW + 63)]
    totals = setup.master.totals["api"]
    assert (totals.accepted, totals.delayed, totals.rejected) == (1, 1, 1)
    assert (setup.counters.accounted, setup.counters.batches) == (3, 1)


def test_a_delayed_record_without_its_timestamp_is_malformed(setup):
    assert setup.receive([batch_topic("api"), encode_batch([(1, b"b", 1_700_000_000_000, 0, b"")])]) == {
        "bad_timestamp": 1
    }
    assert setup.master.totals["api"].delayed == 0


@pytest.mark.parametrize("beginning", [WHOLE, [b"garbage"], WHOLE[:2], [batch_topic("api"), encode_batch([])]])
def test_a_message_of_thousands_of_frames_is_discarded_in_parts(setup, beginning):
    setup.send.send_multipart([*beginning, *[b"x"] * 5_000])
    setup.send.send_multipart([*WHOLE[:2], b"next", *WHOLE[3:]])
    turns = 1
    while setup.receiver.receive(256, NOW):
        turns += 1
    assert turns > 5_000 // 256
    assert setup.published[-1][1] == b"next"
    assert setup.counters.excess_frames >= 5_000 - 64


def test_a_call_reads_a_limited_number_of_messages(setup):
    for _ in range(100):
        setup.send.send_multipart(WHOLE)
    assert setup.receiver.receive(30, NOW)
    assert setup.counters.accounted == 30
    batch = [batch_topic("api"), encode_batch([(0, b"a", 1, 0, b"")] * 200)]
    for _ in range(10):
        setup.send.send_multipart(batch)
    assert setup.receiver.receive(256, NOW)
    assert 30 + 70 + 256 <= setup.counters.accounted + 70 <= 30 + 256 + 70 + 200


def test_the_master_can_be_replaced(pair):
    setup = Setup(pair, "api")
    later = Master([Domain("web")])
    setup.receiver.set_master(later)
    setup.receive(WHOLE, [b"web\0", *WHOLE[1:]])
    assert (later.unknown, later.totals["web"].accepted, setup.accepted) == (1, 1, 0)


def test_a_domain_named_like_another_frame_is_read(pair):
    setup = Setup(pair, "123", "ACCEPTED", "api")
    setup.receive(*[[name, *WHOLE[1:]] for name in (b"123", b"ACCEPTED", b"api", b"123\0", b"ACCEPTED\0", b"api\0")])
    assert {name: totals.accepted for name, totals in setup.master.totals.items()} == dict.fromkeys(
        ("123", "ACCEPTED", "api"), 2
    )
    assert b"123" not in domains_by_frame(setup.master.domains)


def test_a_short_message_takes_no_frame_of_the_next():
    for size, times in product(range(1, 6), (1, 3)):
        run = WHOLE[:size] * times + WHOLE
        assert list(split_messages(run, TOPICS))[-1] == WHOLE, (size, times)


def test_an_unknown_domain_is_recognized_by_its_nul():
    unknown = [b"other\0", *WHOLE[1:]]
    assert list(split_messages([*WHOLE[:4], *unknown], TOPICS)) == [WHOLE[:4], unknown]


@pytest.mark.parametrize("frame", [b"ACCEPTED", b"api\0", b"api"])
@pytest.mark.parametrize("at", [2, 5, 6])
def test_identifiers_and_log_info_may_equal_other_frames(frame, at):
    message = [*WHOLE, b"more"]
    message[at] = frame
    assert list(split_messages(message, TOPICS)) == [message]
