import pytest
import zmq

from headgate.limit import Domain, Master, Rule
from headgate.link.batch import BATCH, batch_topic, encode_batch
from headgate.link.master import AccountingReceiver, MasterCounters

NOW = 1_700_000_000.0
MS = b"1700000000000"
WHOLE = [b"api\0", b"ACCEPTED", b"id", MS, b"", b""]


class Setup:
    """A receiver over a real socket, with a real master whose rule holds from the first request on."""

    def __init__(self, pair, *names, rule="1/min burst 1", algorithm="log"):
        self.send, receiver = pair(zmq.PUSH, zmq.PULL)
        self.counters, self.published, self.wrong = MasterCounters(), [], []
        self.master = Master(Domain(name, (Rule.parse(rule),), algorithm) for name in names or ("api",))
        self.receiver = AccountingReceiver(
            lambda: (receiver.recv_multipart(zmq.NOBLOCK), True, zmq.Frame()),
            self.master,
            lambda *control: self.published.append(control),
            self.counters,
            lambda _, ahead, late: self.wrong.append((ahead, late)),
        )

    def receive(self, *messages, most=256):
        for message in messages:
            self.send.send_multipart(message)
        while self.receiver.receive(most, NOW):
            pass
        return {reason: count for reason, count in self.counters.dropped.items() if count}

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
            assert counted == {"malformed": 1}
        else:
            assert (counted, setup.counters.accounted) == ({}, 1), message


MALFORMED = [
    ([b""], "malformed"),
    ([b"garbage"], "malformed"),
    *((WHOLE[:size], "malformed") for size in range(1, 5)),
    ([b"other\0", *WHOLE[1:4]], "malformed"),
    ([b"", b"", b"", b"", b""], "malformed"),
    ([b"api\0", b"accepted", b"id", MS, b"", b""], "malformed"),
    ([b"api\0", b"ACCEPTED\0", b"id", MS, b"", b""], "malformed"),
    ([b"api\0", b"ACCEPTED", b"id", b"", b"", b""], "malformed"),
    ([b"api\0", b"ACCEPTED", b"id", b"9" * 31, b"", b""], "malformed"),
    ([b"api\0", b"ACCEPTED", b"id", "１２".encode(), b"", b""], "malformed"),
    ([b"api\0", b"DELAYED", b"id", MS, b"", b""], "malformed"),
    ([b"api\0", b"DELAYED", b"id", MS, b"inf", b""], "malformed"),
    ([b"api\0", b"ACCEPTED", b"x" * 256, MS, b"", b""], "too_long"),
    ([BATCH + b"api\0"], "malformed"),
    ([BATCH + b"api\0", b"garbage"], "malformed"),
    ([BATCH + b"api\0", encode_batch([(0, b"x" * 256, 1, 0, b"")])], "too_long"),
    ([BATCH + b"api\0", encode_batch([(1, b"b", int(MS), 0, b"")])], "malformed"),
    ([BATCH + b"api\0", b"\x92\x95\x00\xc4\x01a\x01\x00\xc4\x00\x01"], "malformed"),
]


def test_a_malformed_message_does_not_affect_its_neighbours(pair):
    first, last = [*WHOLE[:2], b"first", *WHOLE[3:]], [*WHOLE[:2], b"last", *WHOLE[3:]]
    for message, kind in MALFORMED:
        setup = Setup(pair)
        counted = setup.receive(first, message, message, last)
        held = [identifier for _, identifier, _ in setup.published if identifier != b"a"]
        assert held == [b"first", b"last"], message
        assert counted == {kind: 2}, message


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
    assert setup.receive([batch_topic("api"), encode_batch(records), b"more", b"frames"]) == {}
    assert setup.published == [("api", b"a", NOW + 60), ("api", b"b", NOW + 63)]
    totals = setup.master.totals["api"]
    assert (totals.accepted, totals.delayed, totals.rejected) == (1, 1, 1)
    assert (setup.counters.accounted, setup.counters.batches) == (3, 1)


def test_wrong_timestamps_are_reported_by_message(setup):
    ahead, late, right = int(MS) + 1_001, int(MS) - 5_001, [int(MS) + 1_000, int(MS) - 5_000]
    batch = encode_batch([(0, b"a", received, 0, b"") for received in (ahead, late, *right, late)])
    frames = [[*WHOLE[:3], b"%d" % received, b"", b""] for received in (late, *right, ahead)]
    setup.receive([batch_topic("api"), batch], *frames)
    assert setup.wrong == [(1, 2), (0, 1), (1, 0)]


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
