import msgspec
import pytest

from headgate.link.accounting_router import AccountingRouter, RouterCounters
from headgate.link.announcement import announcement, resent_topic
from headgate.link.batch import BATCH, MAX_RECORDS, batch_topic, decode_batch, encode_batch
from headgate.link.routing_table import MasterTraffic, RoutedMaster, RoutingTable
from headgate.link.subscriptions import Subscriptions

ALL, BATCHES = b"\1", b"\1" + BATCH
NAMES = ["tcp://a:1", "tcp://b:1"]
ACCEPTED = [b"api\0", b"ACCEPTED", b"id", b"1700000000000", b"", b"info"]
RECORD = (0, b"id", 1_700_000_000_000, 0, b"info")


class Connection:
    """A connection that keeps what is sent on it, up to `room` messages."""

    def __init__(self, *messages):
        self.is_up = True
        self.subscriptions = Subscriptions((), "auto")
        for message in messages:
            self.subscriptions.update(message)
        self.sent = []
        self.room = 1_000_000

    def send(self, frames):
        if len(self.sent) >= self.room:
            return False
        self.sent.append(list(frames))
        return True


class Setup:
    """A router of accounting, to masters that read batches, or of which the first is an original one."""

    def __init__(self, shard="domain", *, original=False, count=1):
        kinds = [(ALL,) if original and not number else (ALL, BATCHES) for number in range(count)]
        self.connections = [Connection(*kind) for kind in kinds]
        masters = {
            name: RoutedMaster(connection, MasterTraffic())
            for name, connection in zip(NAMES, self.connections, strict=False)
        }
        self.masters = list(masters.values())
        self.counters = RouterCounters()
        self.router = AccountingRouter(RoutingTable(masters, shard), self.counters)

    def handle(self, *messages):
        """Handle messages that arrive together; return what the first master is sent."""
        for message in messages:
            assert self.router.handle(message) >= 1
        self.router.flush()
        return self.connections[0].sent

    def counted(self):
        """Return the counters that are not 0."""
        return {name: count for name, count in msgspec.structs.asdict(self.counters).items() if count}


def records_of(messages):
    return [record for _, payload in messages for record in decode_batch(payload)[0]]


def test_a_batch_passes_unopened():
    setup = Setup()
    payload = encode_batch([RECORD, RECORD])[:-1] + b"\xff"  # not a valid record: the router does not look
    assert setup.handle([batch_topic("api"), payload]) == [[batch_topic("api"), payload]]
    assert setup.counted() == {"accounted": 2, "batches": 1}
    assert setup.masters[0].traffic.sent == 2


def test_frames_that_arrive_together_leave_in_one_batch():
    setup = Setup()
    delayed = [b"api", b"DELAYED", b"\xff", b"1700000000000", b"1700000001000", b""]
    rejected = [b"web\0", b"REJECTED", b"id", b"1700000000000", b""]
    sent = setup.handle(ACCEPTED, delayed, rejected)
    assert [message[0] for message in sent] == [batch_topic("api"), batch_topic("web")]
    assert records_of(sent) == [
        RECORD,
        (1, b"\xff", 1_700_000_000_000, 1_700_000_001_000, b""),
        (2, b"id", 1_700_000_000_000, 0, b""),
    ]
    assert setup.counted() == {"accounted": 3}


def test_timestamps_with_a_fraction_are_rounded_up():
    setup = Setup()
    sent = setup.handle([b"api\0", b"DELAYED", b"id", b"1700000000000.25", b"1700000000001.5", b""])
    assert records_of(sent) == [(1, b"id", 1_700_000_000_001, 1_700_000_000_002, b"")]


def test_a_batch_has_a_limited_number_of_records():
    setup = Setup()
    sent = setup.handle(*[ACCEPTED] * (MAX_RECORDS + 1))
    assert [len(decode_batch(payload)[0]) for _, payload in sent] == [MAX_RECORDS, 1]


def test_an_original_master_receives_frames():
    setup = Setup(original=True)
    delayed = (1, b"id", 1_700_000_000_000, 1_700_000_001_000, b"")
    sent = setup.handle([batch_topic("api"), encode_batch([RECORD, delayed])], ACCEPTED)
    assert sent == [
        ACCEPTED,
        [b"api\0", b"DELAYED", b"id", b"1700000000000", b"1700000001000", b""],
        ACCEPTED,
    ]
    assert setup.counted() == {"accounted": 3, "batches": 1}


def test_records_of_a_batch_have_masters_of_their_own_with_shard_identifier():
    setup = Setup("identifier", count=2)
    records = [(0, b"%d" % number, 1, 0, b"") for number in range(40)]
    setup.handle([batch_topic("api"), encode_batch(records)])
    received = [records_of(connection.sent) for connection in setup.connections]
    assert all(received)
    assert sorted(received[0] + received[1]) == sorted(records)
    assert [master.traffic.sent for master in setup.masters] == [len(one) for one in received]


@pytest.mark.parametrize("shard", ["domain", "identifier"])
def test_a_batch_to_a_master_is_never_longer_than_it_accepts(shard):
    """Records from several messages share a batch, so their log info is cut."""
    setup = Setup(shard)
    frames = [*ACCEPTED[:5], b"x" * 200_000]
    sent = setup.handle(*[frames] * MAX_RECORDS)
    assert [len(records_of([message])) for message in sent] == [MAX_RECORDS]
    assert all(len(payload) < 256 * 1024 for _, payload in sent)


MALFORMED = [
    ([b""], "too_short"),
    (ACCEPTED[:4], "too_short"),
    ([b"api\0", b"ATE", *ACCEPTED[2:]], "unknown_status"),
    ([*ACCEPTED[:3], b"soon", b"", b""], "bad_timestamp"),
    ([*ACCEPTED[:3], b"9" * 30, b"", b""], "bad_timestamp"),
    ([b"api\0", b"DELAYED", b"id", b"1", b"", b""], "bad_timestamp"),
    ([b"api\0", b"DELAYED", b"id", b"1", b"9" * 29, b""], "bad_timestamp"),
    ([b"a\0b\0", *ACCEPTED[1:]], "bad_domain"),
    ([b"", *ACCEPTED[1:]], "bad_domain"),
    ([b"x" * 255, *ACCEPTED[1:]], "bad_domain"),
    ([b"api\0", b"ACCEPTED", b"x" * 256, b"1", b""], "too_long"),
    ([batch_topic("api")], "bad_batch"),
    ([batch_topic("api"), b""], "bad_batch"),
    ([batch_topic("api"), b"\x90"], "bad_batch"),
    ([batch_topic("api"), b"\xdc\x01\x01"], "bad_batch"),
    ([batch_topic("api"), b"\x81\x01\x02"], "bad_batch"),
    ([BATCH, encode_batch([RECORD])], "bad_domain"),
    ([BATCH + b"a\0b\0", encode_batch([RECORD])], "bad_domain"),
    ([BATCH + b"api", encode_batch([RECORD])], "bad_domain"),
    ([b"\0headgate.new.1\0", encode_batch([RECORD])], "bad_domain"),
    ([resent_topic(announcement("0" * 16), "api"), b"\xc1"], "bad_batch"),
    ([resent_topic(announcement("0" * 16), "api")], "bad_batch"),
]


@pytest.mark.parametrize("shard", ["domain", "identifier"])
@pytest.mark.parametrize("original", [False, True])
@pytest.mark.parametrize(("message", "counter"), MALFORMED)
def test_malformed_messages_are_counted_and_not_sent(message, counter, original, shard):
    setup = Setup(shard, original=original)
    assert setup.handle(message) == []
    assert setup.counted() == {counter: 1}


def test_a_malformed_record_does_not_drop_its_batch():
    setup = Setup(original=True)
    payload = msgspec.msgpack.encode([RECORD, "what", [0, b"x" * 256, 1, 0, b""]])
    assert setup.handle([batch_topic("api"), payload]) == [ACCEPTED]
    assert setup.counted() == {"accounted": 1, "batches": 1, "bad_record": 1, "too_long": 1}


def test_excess_frames_are_counted_and_not_passed_on():
    setup = Setup(original=True)
    sent = setup.handle([*ACCEPTED, b"7", b"8"], [batch_topic("api"), encode_batch([RECORD]), b"3"])
    assert sent == [ACCEPTED, ACCEPTED]
    assert setup.counters.excess_frames == 3


def test_a_full_queue_drops_and_counts_only_for_its_master():
    setup = Setup("identifier", count=2)
    setup.connections[0].room = 0
    records = [(0, b"%d" % number, 1, 0, b"") for number in range(40)]
    setup.handle([batch_topic("api"), encode_batch(records)])
    traffic = [(master.traffic.sent, master.traffic.dropped) for master in setup.masters]
    assert traffic == [(0, 40 - traffic[1][0]), (traffic[1][0], 0)]
    assert traffic[1][0] > 0


@pytest.mark.parametrize("message", [ACCEPTED, [batch_topic("api"), encode_batch([RECORD])]])
def test_what_no_master_reads_is_counted(message):
    setup = Setup(count=0)
    assert setup.router.handle(message) == 1
    setup.router.flush()
    assert setup.counters.unheard == setup.counters.accounted == 1


class Announced(Setup):
    """Two masters, of which the first has announced itself."""

    def __init__(self, shard):
        super().__init__(shard, count=2)
        self.announced = announcement("0123456789abcdef")
        self.router.announced = {self.announced: self.masters[0]}

    def resend(self, domain, records):
        return self.handle([resent_topic(self.announced, domain), encode_batch(records)])


def test_re_sent_records_go_to_the_announced_master_as_far_as_it_owns_them():
    setup = Announced("identifier")
    records = [(0, b"%d" % number, 1, 0, b"") for number in range(40)]
    sent = setup.resend("api", records)
    assert [message[0] for message in sent] == [resent_topic(setup.announced, "api")]
    assert 0 < len(records_of(sent)) < 40
    assert setup.connections[1].sent == []
    assert setup.counted() == {"resent": len(records_of(sent)), "unowned": 40 - len(records_of(sent))}
    setup.handle([batch_topic("api"), encode_batch(records)])
    assert records_of(setup.connections[0].sent[1:]) == records_of(sent[:1])  # those that it owns


def test_re_sent_domains_of_other_masters_are_dropped():
    setup = Announced("domain")
    for number in range(20):
        setup.resend(f"domain-{number}", [RECORD])
    assert setup.counters.resent == len(setup.connections[0].sent)
    assert 0 < setup.counters.resent < 20
    assert setup.counters.unowned == 20 - setup.counters.resent
    assert setup.connections[1].sent == []


def test_records_for_an_unknown_announcement_are_dropped():
    setup = Announced("domain")
    setup.router.announced = {}
    for number in range(20):
        setup.resend(f"domain-{number}", [RECORD, (0, b"x" * 256, 1, 0, b"")])
    assert setup.counted() == {"unowned": 40}
