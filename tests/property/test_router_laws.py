"""A router of accounting: whatever arrives, masters receive only valid messages of domains that they own."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headgate.limit.messages import decode_accounting, domain_of
from headgate.limit.sharding import Sharding, sharding_item
from headgate.link.accounting_router import AccountingRouter, RouterCounters
from headgate.link.announcement import announcement, resent_topic, split_resent_topic
from headgate.link.batch import BATCH, batch_topic, decode_batch, encode_batch
from headgate.link.routing_table import MasterTraffic, RoutedMaster, RoutingTable
from headgate.link.subscriptions import Subscriptions

NAMES = ["tcp://a:1", "tcp://b:1"]
NEW = announcement("0123456789abcdef")
LARGEST = 256 * 1024

TOPICS = st.sampled_from([b"api\0", b"api", b"web\0", b"", b"\0", b"a\0b\0", b"x" * 300, b"\xff\0"]) | st.binary(
    max_size=9
)
NUMBERS = st.sampled_from([b"", b"0", b"1700000000000", b"1700000000000.5", b"-5", b"9" * 15, b"9" * 30, b"nan"])
STATUSES = st.sampled_from([b"ACCEPTED", b"DELAYED", b"REJECTED", b"", b"accepted"])
IDENTIFIERS = st.sampled_from([b"", b"id", b"x" * 255, b"x" * 256]) | st.binary(max_size=9)
LOGINFO = st.sampled_from([b"", b"info", b"x" * 2_000])
RECORD = st.tuples(st.integers(0, 2), IDENTIFIERS, st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), LOGINFO)
PAYLOADS = (
    st.lists(RECORD, max_size=12).map(encode_batch)
    | st.lists(RECORD | st.integers() | st.text(max_size=3), min_size=1, max_size=6).map(
        lambda items: msgspec.msgpack.encode([item if not isinstance(item, int) else 7 for item in items])
    )
    | st.binary(max_size=20)
)
FRAMES = st.tuples(TOPICS, STATUSES, IDENTIFIERS, NUMBERS, NUMBERS, LOGINFO).map(list)
MESSAGES = (
    FRAMES
    | FRAMES.flatmap(lambda frames: st.integers(1, 6).map(lambda size: frames[:size]))
    | st.tuples(TOPICS.map(lambda topic: BATCH + topic), PAYLOADS).map(list)
    | st.tuples(TOPICS.map(lambda topic: NEW + topic), PAYLOADS).map(list)
    | st.lists(st.binary(max_size=9), min_size=1, max_size=70)
)


class Connection:
    """A connection that keeps what is sent on it."""

    def __init__(self, *messages):
        self.is_up = True
        self.subscriptions = Subscriptions((), "auto")
        for message in messages:
            self.subscriptions.update(message)
        self.sent = []

    def send(self, frames):
        self.sent.append(list(frames))
        return True


def is_opened(frames, shard):
    """Return whether the router has looked at the records of a batch: it passes others as they are."""
    return shard == "identifier" or not frames[0].startswith(BATCH)


def records_of(frames):
    """Return the domain and the records of a valid message to a master."""
    if frames[0].startswith(BATCH):
        assert len(frames) == 2
        assert len(frames[1]) <= LARGEST
        domain = domain_of(frames[0][len(BATCH) :])
        assert frames[0] == batch_topic(domain)
    elif split_resent_topic(frames[0])[0]:
        assert len(frames) == 2
        domain = split_resent_topic(frames[0])[1]
        assert frames[0] == resent_topic(NEW, domain)
    else:
        assert len(frames) == 6
        accounting = decode_accounting(frames)
        assert frames[0].endswith(b"\0")
        return accounting.domain, [accounting.identifier]
    return domain, frames[1]


@given(
    st.lists(MESSAGES, max_size=20), st.sampled_from(["domain", "identifier"]), st.booleans(), st.lists(st.booleans())
)
def test_masters_receive_only_valid_messages_that_they_own(messages, shard, original, flushes):
    kinds = [(b"\1",) if original else (b"\1", b"\1" + BATCH), (b"\1", b"\1" + BATCH)]
    connections = {name: Connection(*kind) for name, kind in zip(NAMES, kinds, strict=True)}
    masters = {name: RoutedMaster(connection, MasterTraffic()) for name, connection in connections.items()}
    counters, sharding = RouterCounters(), Sharding(NAMES)
    router = AccountingRouter(RoutingTable(masters, shard), counters)
    router.announced = {NEW: masters[NAMES[1]]}
    for message, flush in zip(messages, [*flushes, *[False] * len(messages)], strict=False):
        assert router.handle(message) >= 1
        if flush:
            router.flush()
    router.flush()
    for name, connection in connections.items():
        for frames in connection.sent:
            domain, content = records_of(frames)
            if isinstance(content, bytes):
                if not is_opened(frames, shard):
                    assert sharding.owner(sharding_item(domain), NAMES) == name
                    continue
                records, bad = decode_batch(content)
                assert not bad
                content = [record[1] for record in records]
            for identifier in content:
                assert len(identifier) <= 255
                item = sharding_item(domain, identifier if shard == "identifier" else b"")
                assert sharding.owner(item, NAMES) == name
    sent = sum(master.traffic.sent for master in masters.values())
    assert sent == counters.accounted + counters.resent - counters.unheard


def test_a_hot_domain_is_spread_over_masters_by_identifier():
    connections = [Connection(b"\1", b"\1" + BATCH) for _ in NAMES]
    masters = {name: RoutedMaster(one, MasterTraffic()) for name, one in zip(NAMES, connections, strict=True)}
    router = AccountingRouter(RoutingTable(masters, "identifier"), RouterCounters())
    for start in range(0, 4_000, 200):
        records = [(0, b"192.0.2.%d" % number, 1, 0, b"") for number in range(start, start + 200)]
        router.handle([batch_topic("api"), encode_batch(records)])
    router.flush()
    sent = [master.traffic.sent for master in masters.values()]
    assert sum(sent) == 4_000
    assert abs(sent[0] - sent[1]) < 800
