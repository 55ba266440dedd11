import asyncio
import threading
import time
from itertools import pairwise

import pytest
import zmq

from headgate.errors import LinkError
from headgate.limit import Domain, Master, Rule
from headgate.limit.messages import topic
from headgate.link import MasterLink
from headgate.link.accounting_receiver import MasterCounters
from headgate.link.batch import BATCH
from headgate.link.master import RESEND_EVERY, ControlPublisher
from headgate.release import NEVER, Status

MS = b"1700000000000"
NOW = 1_700_000_000.0


def new_master(*names, rule="1/min burst 1"):
    return Master(Domain(name, (Rule.parse(rule),)) for name in names or ("api",))


@pytest.fixture
def link(context):
    link = MasterLink(new_master(), "inproc://bus", clock=lambda: NOW, context=context)
    yield link
    link.close()


def peers(context, link):
    """Give a publisher of accounting and a subscriber to controls, connected."""
    sender, subscriber = context.socket(zmq.XPUB), context.socket(zmq.SUB)
    sender.connect("inproc://bus")
    subscriber.connect("inproc://bus.control")
    subscriber.subscribe(topic("api"))
    link.turn()  # within one process a socket notices who connects when it is touched
    return sender, subscriber


def message(identifier):
    return [b"api\0", b"ACCEPTED", identifier, MS, b"", b""]


def test_it_subscribes_to_everything_and_to_batches(context, link):
    sender, _ = peers(context, link)
    assert {sender.recv(), sender.recv()} == {b"\1", b"\1" + BATCH}


def test_run_serves_until_it_is_told_to_stop(context, link):
    sender, subscriber = peers(context, link)
    thread = threading.Thread(target=link.run)
    thread.start()
    for _ in range(2):
        sender.recv()
    sender.send_multipart(message(b"id"))
    assert subscriber.recv_multipart() == [b"api\0", b"DELAY_UNTIL", b"id", b"%d" % ((NOW + 60) * 1_000)]
    link.stop()
    thread.join()
    assert link.counters.accounted == 1


def test_run_ends_when_its_question_is_answered(context, link):
    sender, _ = peers(context, link)
    for identifier in (b"a", b"b", b"c"):
        sender.send_multipart(message(identifier))
    link.run(until=lambda: link.counters.accounted == 3)
    assert len(link.master) == 3


def test_an_event_loop_serves_too(context, link):
    sender, subscriber = peers(context, link)

    async def main():
        link.start(asyncio.get_running_loop())
        for number in range(1_000):
            sender.send_multipart(message(b"%d" % number))
        while link.counters.controls < 1_000:  # noqa: ASYNC110 - what is waited for is a counter
            await asyncio.sleep(0.001)
        link.close()

    asyncio.run(asyncio.wait_for(main(), 10))
    assert subscriber.recv_multipart()[2] == b"0"


def test_the_loop_is_not_starved(context, link):
    """However much waits, other callbacks have their turn."""
    sender, _ = peers(context, link)
    for number in range(5_000):
        sender.send_multipart(message(b"%d" % number))
    seen = []

    async def main():
        loop = asyncio.get_running_loop()
        link.start(loop)
        while link.counters.accounted < 5_000 and len(seen) < 1_000:
            seen.append(link.counters.accounted)
            await asyncio.sleep(0)

    asyncio.run(main())
    assert max(later - earlier for earlier, later in pairwise(seen)) <= 256
    assert len(set(seen)) > 10


def test_histories_are_forgotten_in_time(context, link):
    sender, _ = peers(context, link)
    sender.send_multipart(message(b"id"))
    link.run(until=lambda: link.counters.accounted == 1)
    link._clock = lambda: NOW + 1_000
    link._forget_at = time.monotonic()
    link.turn()
    assert len(link.master) == 0


def test_another_master_takes_over_with_what_the_first_knew(context, link):
    sender, subscriber = peers(context, link)
    sender.send_multipart(message(b"id"))
    link.run(until=lambda: link.counters.controls and link.counters.subscriptions)
    later = new_master("api", "web")
    later.adopt(link.master)
    link.set_master(later)
    for _ in range(3):
        link.turn()
    sender.send_multipart([b"web\0", *message(b"id")[1:]])
    link.run(until=lambda: link.counters.accounted == 2)
    assert later.totals["web"].accepted == 1
    while subscriber.poll(0):
        assert subscriber.recv_multipart()[0] == b"api\0"


def test_closing_twice_is_closing_once(context):
    link = MasterLink(new_master(), "tcp://127.0.0.1:0")
    link.close()
    link.close()
    again = MasterLink(new_master(), link.endpoints.accounting)
    again.close()


def test_what_cannot_be_bound_leaves_nothing_open():
    with pytest.raises(LinkError, match=r"ipc:///no/such/folder/bus"):
        MasterLink(new_master(), "ipc:///no/such/folder/bus")


RULE = (Rule.parse("1/min burst 1"),)


class World:
    """A publisher on a real XPUB socket, and a master that holds one identifier in each domain."""

    def __init__(self, context, *names, held=1):
        self.context = context
        self.socket = context.socket(zmq.XPUB)
        self.socket.setsockopt(zmq.XPUB_VERBOSE, 1)
        self.socket.bind("inproc://control")
        self.master, self.counters = Master(Domain(name, RULE) for name in names), MasterCounters()
        for name in names:
            for number in range(held):
                self.master.record(name, Status.ACCEPTED, b"%d" % number, NOW, NOW)
        self.publisher = ControlPublisher(self.socket, self.master, self.counters, lambda: NOW)
        self.moment = time.monotonic() + 60.0

    def subscribe(self, topic, hwm=0):
        subscriber = self.context.socket(zmq.SUB)
        subscriber.set_hwm(hwm)
        subscriber.connect("inproc://control")
        subscriber.subscribe(topic)
        return subscriber

    def turn(self, seconds=0.0):
        """Hear, then send again what is due; give how many controls that was."""
        self.moment += seconds
        while self.publisher.receive_subscriptions(256):
            pass
        before = self.counters.resent
        self.publisher.resend(self.moment)
        return self.counters.resent - before


def received(subscriber):
    messages = []
    while subscriber.poll(0):
        messages.append(subscriber.recv_multipart())
    return messages


def test_a_control_has_four_frames(context):
    world = World(context, "api")
    subscriber = world.subscribe(b"api\0")
    world.turn()
    received(subscriber)
    world.publisher.publish("api", b"\xff\xfe", NOW + 0.0004)
    assert received(subscriber) == [[b"api\0", b"DELAY_UNTIL", b"\xff\xfe", b"1700000000001"]]
    assert world.counters.controls >= 1


def test_a_new_subscription_is_answered_with_the_holds_in_force(context):
    """Also a second one to the same domain: a gatekeeper that reconnects loses nothing."""
    world = World(context, "api", "web")
    hold = [b"api\0", b"DELAY_UNTIL", b"0", b"%d" % ((NOW + 60) * 1_000)]
    first = world.subscribe(b"api\0")
    assert world.turn() == 1
    assert received(first) == [hold]
    second = world.subscribe(b"api\0")
    assert world.turn(1.0) == 1
    assert received(second) == [hold]
    assert world.counters.subscriptions == 2


@pytest.mark.parametrize(
    ("prefix", "names"),
    [
        (b"api\0", ["api"]),
        (b"api", ["api", "api2"]),  # as original gatekeepers subscribe
        (b"a", ["api", "api2"]),
        (b"", ["api", "api2", "web"]),
        (b"ap\0", []),
        (b"api\0more", []),
        (b"\0headgate.batch.1\0", []),
    ],
)
def test_a_subscription_asks_for_the_domains_whose_topics_it_begins(context, prefix, names):
    world = World(context, "api", "api2", "web")
    subscriber = world.subscribe(prefix)
    world.turn()
    assert sorted(message[0] for message in received(subscriber)) == [name.encode() + b"\0" for name in names]


def test_holds_that_are_over_are_not_sent_again(context):
    world = World(context, "api")
    world.publisher._clock = lambda: NOW + 61
    world.subscribe(b"api\0")
    assert world.turn() == 0


def test_a_flood_of_subscriptions_is_answered_once_in_a_while(context):
    world = World(context, "api")
    for _ in range(50):
        subscriber = world.subscribe(b"api\0")
        world.turn()
    for _ in range(1_000):
        subscriber.unsubscribe(b"api\0")
        subscriber.subscribe(b"api\0")
    assert world.counters.resent == 1
    assert world.turn() == 0
    assert world.publisher.due() == pytest.approx(world.moment + RESEND_EVERY)
    assert world.turn(RESEND_EVERY) == 1
    assert world.turn(RESEND_EVERY) == 0
    assert world.publisher.due() == NEVER


def test_many_holds_are_sent_a_piece_at_a_time(context):
    world = World(context, "api", held=2_500)
    subscriber = world.subscribe(b"api\0")
    pieces = [world.turn(), world.turn(), world.turn(0.01), world.turn(0.01), world.turn(0.01)]
    assert pieces == [1_000, 0, 1_000, 500, 0]
    assert len({message[2] for message in received(subscriber)}) == 2_500


def test_who_comes_while_holds_are_sent_again_gets_all_of_them(context):
    world = World(context, "api", held=1_500)
    world.subscribe(b"api\0")
    world.turn()
    late = world.subscribe(b"api\0")
    while world.turn(RESEND_EVERY):
        pass
    assert len({message[2] for message in received(late)}) == 1_500


def test_a_subscriber_that_never_reads_holds_up_nobody(context):
    world = World(context, "api", held=0)
    world.subscribe(b"api\0", hwm=10)
    reader = world.subscribe(b"api\0")
    world.turn()
    for number in range(20_000):
        world.publisher.publish("api", b"%d" % number, NOW)
    assert len(received(reader)) >= 1_000


def test_another_masters_holds_are_told_at_once(context):
    world = World(context, "api")
    subscriber = world.subscribe(b"")
    world.turn()
    received(subscriber)
    later = Master([Domain("web", RULE)])
    later.record("web", Status.ACCEPTED, b"new", NOW, NOW)
    world.publisher.set_master(later)
    world.turn(1.0)
    assert [message[:3] for message in received(subscriber)] == [[b"web\0", b"DELAY_UNTIL", b"new"]]


def test_what_is_no_subscription_is_passed_over(context):
    world = World(context, "api")
    stranger = context.socket(zmq.XSUB)
    stranger.connect("inproc://control")
    for message in (b"", b"\2api\0", b"\0api\0", b"garbage", b"x" * 10_000):
        stranger.send(message)
    assert world.turn() == 0
    assert world.counters.subscriptions == 0
