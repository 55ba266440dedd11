import asyncio
import threading
import time
from itertools import pairwise

import pytest
import zmq

from headgate.errors import LinkError
from headgate.limit import Domain, Master, Rule
from headgate.limit.wire import topic
from headgate.link import MasterLink
from headgate.link.batch import BATCH

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
