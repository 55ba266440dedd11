"""Batches that gatekeepers re-send to a master which has started without a history."""

import pytest
import zmq

from headgate.limit import Domain, Master, Rule
from headgate.link.accounting_receiver import AccountingReceiver
from headgate.link.announcement import announcement, resent_topic
from headgate.link.batch import batch_topic, encode_batch
from headgate.link.master_counters import MasterCounters
from headgate.link.replay_queue import ReplayQueue

NOW = 1_700_000_000.0
NOW_MS = 1_700_000_000_000
OWN, OTHER = announcement("0123456789abcdef"), announcement("fedcba9876543210")
MINUTE = 60_000


class Setup:
    """A receiver over a real socket, for a master with the rule "1 a minute after a burst of 3"."""

    def __init__(self, pair, announced=OWN, **options):
        self.send, receiver = pair(zmq.PUSH, zmq.PULL)
        self.counters, self.published = MasterCounters(), []
        self.master = Master([Domain("api", (Rule.parse("1/min burst 3"),), "log")])
        self.receiver = AccountingReceiver(
            receiver,
            self.master,
            lambda *control: self.published.append(control),
            self.counters,
            announced=announced,
            **options,
        )

    def receive(self, *messages, limit=256):
        for message in messages:
            self.send.send_multipart(message)
        while self.receiver.receive(limit, NOW):
            pass


def resent(*records, announced=OWN, domain="api"):
    return [resent_topic(announced, domain), encode_batch(records)]


def accepted(milliseconds, identifier=b"id"):
    return (0, identifier, milliseconds, 0, b"")


def test_records_count_at_their_own_time(pair):
    """Not at their arrival: the hold is the one that the predecessor published."""
    setup = Setup(pair)
    setup.receive(resent(*[accepted(NOW_MS - age) for age in (2 * MINUTE, 30_000, 20_000)]))
    assert setup.published == [("api", b"id", NOW + 40.0)]
    assert (setup.counters.resent_records, setup.counters.accounted, setup.counters.batches) == (3, 0, 1)
    assert setup.master.totals["api"].accepted == 0


def test_resent_and_live_records_add_up_in_either_order(pair):
    live, batch = [batch_topic("api"), encode_batch([accepted(NOW_MS)])], resent(*[accepted(NOW_MS - MINUTE)] * 2)
    for messages in ([live, batch], [batch, live]):
        setup = Setup(pair)
        setup.receive(*messages)
        assert setup.published == [("api", b"id", NOW + 60.0)]


def test_timestamps_in_the_future_count_as_now(pair):
    setup = Setup(pair)
    delayed = (1, b"id", NOW_MS + 5 * MINUTE, NOW_MS + 5 * MINUTE + 2_000, b"")
    setup.receive(resent(*[accepted(NOW_MS + 5 * MINUTE)] * 2, delayed))
    assert setup.published == [("api", b"id", NOW + 62.0)]
    assert setup.master.ahead == 3


def test_requests_that_a_restored_snapshot_has_are_not_counted_again(pair):
    setup = Setup(pair, accounted_until=NOW - 30.0)
    setup.receive(resent(*[accepted(NOW_MS - age, b"%d" % age) for age in (30_001, 30_000, 29_999)]))
    assert (setup.counters.resent_records, len(setup.master)) == (3, 1)


@pytest.mark.parametrize(("loginfo", "hold"), [(b"1700000030000", 30.0), (b"9" * 15, 60.0)])
def test_the_hold_in_the_log_info_is_published(pair, loginfo, hold):
    setup = Setup(pair)
    setup.receive(resent((0, b"id", NOW_MS - MINUTE, 0, loginfo)))
    assert setup.published == [("api", b"id", NOW + hold)]


@pytest.mark.parametrize("loginfo", [b"", b"1699999999999", b"log", b"1" * 16, b"-5"])
def test_other_log_info_is_ignored(pair, loginfo):
    setup = Setup(pair)
    setup.receive(resent((0, b"id", NOW_MS - MINUTE, 0, loginfo)))
    assert setup.published == []


def test_batches_for_another_master_are_ignored(pair):
    for announced, other in ((OWN, OTHER), (b"", OTHER), (b"", b"\0headgate.new.1\0")):
        setup = Setup(pair, announced)
        setup.receive(resent(*[accepted(NOW_MS)] * 3, announced=other))
        assert setup.published == []
        assert setup.counters == MasterCounters()


def test_malformed_batches_and_records_are_counted(pair):
    setup = Setup(pair)
    bad = resent(accepted(NOW_MS, b"x" * 256), (1, b"id", NOW_MS, 0, b""), (3, b"id", NOW_MS, 0, b""))
    setup.receive([resent_topic(OWN, "api"), b"garbage"], bad, [*resent(accepted(NOW_MS)), b"more"])
    counters = setup.counters
    assert (counters.bad_batch, counters.bad_record, counters.too_long, counters.bad_timestamp) == (1, 1, 1, 1)
    assert (counters.resent_records, counters.excess_frames, len(setup.master)) == (3, 1, 1)


def test_a_short_message_takes_no_frame_of_a_resent_batch(pair):
    setup = Setup(pair)
    setup.receive([b"api\0", b"ACCEPTED"], resent(*[accepted(NOW_MS)] * 3))
    assert (setup.counters.too_short, setup.counters.resent_records) == (1, 3)


def test_live_accounting_is_read_between_resent_batches(pair):
    """One batch per call, so that controls are in time while much is sent again."""
    setup = Setup(pair)
    for _ in range(100):
        setup.send.send_multipart(resent(*[accepted(NOW_MS)] * 200))
    setup.send.send_multipart([batch_topic("api"), encode_batch([accepted(NOW_MS, b"live")] * 3)])
    for call in range(3):
        assert setup.receiver.receive(256, NOW)
        assert setup.counters.resent_records == 200 * call
    assert setup.counters.accounted == 3
    setup.receive()
    assert setup.counters.resent_records == 100 * 200


def test_the_resent_batches_that_wait_are_bounded(pair):
    master, counters = Master([Domain("api", (Rule.parse("1/min"),))]), MasterCounters()
    frames = resent(accepted(NOW_MS))
    waiting = ReplayQueue(lambda *_: None, counters, OWN, max_size=3 * len(frames[1]))
    for _ in range(5):
        waiting.add(*frames)
    assert counters.resent_dropped == 2
    waiting.replay_next(master, NOW)
    waiting.add(*frames)
    while waiting.is_waiting:
        waiting.replay_next(master, NOW)
    assert (counters.resent_records, counters.resent_dropped) == (4, 2)
