import pytest
import zmq

from headgate.limit import Domain, Master, Rule
from headgate.link.accounting_receiver import AccountingReceiver, MasterCounters, domains_by_frame, split_messages
from headgate.link.batch import BATCH, batch_topic, encode_batch

NOW = 1_700_000_000.0
MS = b"1700000000000"
WHOLE = [b"api\0", b"ACCEPTED", b"id", MS, b"", b""]
TOPICS = {b"api\0", b"api"}
COUNTED = ("too_short", "unknown_status", "bad_timestamp", "bad_record", "bad_batch", "too_long", "excess_frames")


class World:
    """A receiver over a real socket, with a real master whose rule holds from the first request on."""

    def __init__(self, pair, *names):
        self.send, receiver = pair(zmq.PUSH, zmq.PULL)
        self.counters, self.published = MasterCounters(), []
        self.master = Master(Domain(name, (Rule.parse("1/min burst 1"),)) for name in names or ("api",))
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
def world(pair):
    return World(pair)


@pytest.mark.parametrize(
    ("message", "moment"),
    [
        (WHOLE, NOW),
        (WHOLE[:5], NOW),
        ([b"api", *WHOLE[1:]], NOW),  # the original's gatekeeper leaves the NUL out
        ([*WHOLE[:5], b"log"], NOW),
        ([*WHOLE[:5], b"api"], NOW),
        ([*WHOLE[:2], b"\xff\xfe", *WHOLE[3:]], NOW),
        ([*WHOLE[:2], b"ACCEPTED", *WHOLE[3:]], NOW),
        ([b"api\0", b"DELAYED", b"id", MS, b"1700000000000.5", b""], NOW + 0.0005),
        # Of a sender whose clock is ahead by a minute, and of one whose clock, or whose delay, is past all sense.
        ([*WHOLE[:3], b"1700000060000", b"", b""], NOW),
        ([*WHOLE[:3], b"1700000060000.5", b"", b""], NOW),
        ([b"api\0", b"DELAYED", b"id", b"1700000060000", b"1700000062500", b""], NOW + 2.5),
        ([batch_topic("api"), encode_batch([(1, b"id", 1_700_000_060_000, 1_700_000_062_500, b"")])], NOW + 2.5),
        ([*WHOLE[:3], b"999999999999999", b"", b""], NOW),
        ([b"api\0", b"DELAYED", b"id", MS, b"999999999999999", b""], NOW + 86_400),
        ([*WHOLE[:3], b"-1", b"", b""], None),
        ([b"api\0", b"DELAYED", b"id", MS, b"1700000002500", b""], NOW + 2.5),
        ([b"api\0", b"DELAYED", b"id", b"soon", b"1700000002500", b""], None),
        ([b"api\0", b"REJECTED", b"id", MS, b"", b""], None),
    ],
)
def test_a_message_of_the_document_is_weighed(world, message, moment):
    counted = world.receive(message)
    held = [(name, identifier, release) for name, identifier, release in world.published]
    assert held == ([] if moment is None else [("api", message[2] if len(message) > 2 else b"id", moment + 60.0)])
    if len(message) > 3 and message[3] == b"soon":
        assert counted == {"bad_timestamp": 1}
    else:
        assert (counted, world.counters.accounted) == ({}, 1)


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


@pytest.mark.parametrize(("message", "kind"), MALFORMED)
def test_what_is_malformed_is_counted_by_kind(world, message, kind):
    assert world.receive(message) == {kind: 1}
    assert [control for control in world.published if control[1] != b"a"] == []


@pytest.mark.parametrize(("message", "kind"), MALFORMED)
def test_it_costs_no_other_message(world, message, kind):
    """Whatever stands between two messages, both are weighed, and neither is mixed with it."""
    first = [*WHOLE[:2], b"first", *WHOLE[3:]]
    last = [*WHOLE[:2], b"last", *WHOLE[3:]]
    world.receive(first, message, message, last)
    assert [identifier for _, identifier, _ in world.published if identifier != b"a"] == [b"first", b"last"]
    assert getattr(world.counters, kind) >= 1


@pytest.mark.parametrize("size", range(1, 7))
@pytest.mark.parametrize("other", range(1, 7))
def test_messages_cut_short_are_never_glued_together(world, size, other):
    world.receive(WHOLE[:size], WHOLE[:other], WHOLE[:size], WHOLE)
    assert world.accepted == (2 if size >= 5 else 0) + (other >= 5) + 1
    assert world.counters.too_short == (2 if size < 5 else 0) + (other < 5) or size < 3 or other < 3


def test_a_batch_behind_a_message_of_five_frames_is_read(world):
    batch = [batch_topic("api"), encode_batch([(0, b"a", 1_700_000_000_000, 0, b"")])]
    assert world.receive(WHOLE[:5], batch, WHOLE[:5], WHOLE) == {}
    assert world.accepted == 4


@pytest.mark.parametrize("size", range(1, 5))
def test_a_batch_at_the_end_behind_a_message_cut_short_is_read(world, size):
    batch = [batch_topic("api"), encode_batch([(0, b"a", 1_700_000_000_000, 0, b"")])]
    assert world.receive(WHOLE[:size], batch) == {"too_short": 1}
    assert world.accepted == 1


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(WHOLE, id="frames"),
        pytest.param(WHOLE[:5], id="five frames"),
        pytest.param([batch_topic("api"), encode_batch([(0, b"id", int(MS), 0, b"")])], id="batch"),
    ],
)
def test_after_the_clock_was_set_back_releases_are_told_in_wall_clock_time(world, message):
    world.master.clock.read(NOW + 3_600)
    world.receive(message)
    assert world.published == [("api", b"id", NOW + 60)]


def test_unknown_domains_are_counted(world):
    world.receive([b"other\0", *WHOLE[1:]], [batch_topic("other"), encode_batch([(0, b"a", 1, 0, b"")] * 3)])
    assert (world.master.unknown, world.published) == (4, [])


def test_a_batch_is_weighed_record_by_record(world):
    records = [(0, b"a", 1_700_000_000_000, 0, b""), (1, b"b", 0, 1_700_000_003_000, b"log"), (2, b"c", 0, 0, b"")]
    assert world.receive([batch_topic("api"), encode_batch(records), b"more", b"frames"]) == {"excess_frames": 2}
    assert world.published == [("api", b"a", NOW + 60), ("api", b"b", NOW + 63)]
    totals = world.master.totals["api"]
    assert (totals.accepted, totals.delayed, totals.rejected) == (1, 1, 1)
    assert (world.counters.accounted, world.counters.batches) == (3, 1)


def test_a_delayed_record_without_its_timestamp_is_malformed(world):
    assert world.receive([batch_topic("api"), encode_batch([(1, b"b", 1_700_000_000_000, 0, b"")])]) == {
        "bad_timestamp": 1
    }
    assert world.master.totals["api"].delayed == 0


@pytest.mark.parametrize("beginning", [WHOLE, [b"garbage"], WHOLE[:2], [batch_topic("api"), encode_batch([])]])
def test_a_message_of_thousands_of_frames_is_drained_a_piece_a_turn(world, beginning):
    world.send.send_multipart([*beginning, *[b"x"] * 5_000])
    world.send.send_multipart([*WHOLE[:2], b"next", *WHOLE[3:]])
    turns = 1
    while world.receiver.receive(256, NOW):
        turns += 1
    assert turns > 5_000 // 256
    assert world.published[-1][1] == b"next"
    assert world.counters.excess_frames >= 5_000 - 64


def test_a_turn_is_bounded(world):
    for _ in range(100):
        world.send.send_multipart(WHOLE)
    assert world.receiver.receive(30, NOW)
    assert world.counters.accounted == 30
    batch = [batch_topic("api"), encode_batch([(0, b"a", 1, 0, b"")] * 200)]
    for _ in range(10):
        world.send.send_multipart(batch)
    assert world.receiver.receive(256, NOW)
    assert 30 + 70 + 256 <= world.counters.accounted + 70 <= 30 + 256 + 70 + 200


def test_another_master_takes_over(pair):
    world = World(pair, "api")
    later = Master([Domain("web")])
    world.receiver.set_master(later)
    world.receive(WHOLE, [b"web\0", *WHOLE[1:]])
    assert (later.unknown, later.totals["web"].accepted, world.accepted) == (1, 1, 0)


def test_a_bare_name_that_looks_like_another_frame_is_read_all_the_same(pair):
    world = World(pair, "123", "ACCEPTED", "api")
    world.receive(*[[name, *WHOLE[1:]] for name in (b"123", b"ACCEPTED", b"api", b"123\0", b"ACCEPTED\0", b"api\0")])
    assert {name: totals.accepted for name, totals in world.master.totals.items()} == dict.fromkeys(
        ("123", "ACCEPTED", "api"), 2
    )
    assert b"123" not in domains_by_frame(world.master.domains)


@pytest.mark.parametrize("size", range(1, 6))
@pytest.mark.parametrize("times", [1, 3])
def test_what_is_too_short_costs_no_frame_of_the_next(size, times):
    short = WHOLE[:size]
    assert list(split_messages(short * times + WHOLE, TOPICS))[-1] == WHOLE


def test_a_message_for_an_unknown_domain_is_seen_by_its_nul():
    unknown = [b"other\0", *WHOLE[1:]]
    assert list(split_messages([*WHOLE[:4], *unknown], TOPICS)) == [WHOLE[:4], unknown]


@pytest.mark.parametrize("frame", [b"ACCEPTED", b"api\0", b"api"])
@pytest.mark.parametrize("at", [2, 5, 6])
def test_identifiers_and_log_info_that_look_like_other_frames_stay(frame, at):
    message = [*WHOLE, b"more"]
    message[at] = frame
    assert list(split_messages(message, TOPICS)) == [message]
