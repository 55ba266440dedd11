import asyncio
import threading
import time

import pytest
import zmq

from headgate.errors import ConfigurationError
from headgate.limit import Accounting, Gatekeeper
from headgate.link import GatekeeperLink
from headgate.link.batch import BATCH, MAX_RECORDS, batch_topic, decode_batch
from headgate.release import Status

NOW = 1_700_000_000.0
HOLD = [b"api\0", b"DELAY_UNTIL", b"id", b"1700000060000"]


class World:
    """A link, and the two sockets of a master played by hand."""

    def __init__(self, context, *subscriptions, **options):
        self.accounting, self.control = context.socket(zmq.SUB), context.socket(zmq.XPUB)
        for socket in (self.accounting, self.control):
            socket.set_hwm(options.pop("hwm", 100_000))
        self.accounting.bind("inproc://bus")
        self.control.bind("inproc://bus.control")
        for prefix in subscriptions:
            self.accounting.subscribe(prefix)
        self.link = GatekeeperLink("inproc://bus", ["api", "web"], context=context, **options)
        self.counters = self.link.counters
        for socket in (self.accounting, self.control):
            socket.poll(0)  # within one process a socket notices who connects when it is touched

    def run(self, *steps, settled=lambda: True):
        """Start the link in a loop, call each step, and go on until `settled`."""

        async def main():
            loop = asyncio.get_running_loop()
            self.link.start(loop)
            for step in steps:
                step()
                await asyncio.sleep(0)
            deadline = time.monotonic() + 10
            while not settled():
                assert time.monotonic() < deadline
                await asyncio.sleep(0.001)
            self.link.close()

        asyncio.run(main())

    def received(self):
        messages = []
        while self.accounting.poll(0):
            messages.append(self.accounting.recv_multipart())
        return messages


def verdict(identifier=b"id", domain="api", status=Status.ACCEPTED, loginfo=b""):
    return Accounting(domain, status, identifier, NOW, NOW + 1, loginfo)


def account(world, *verdicts):
    def step():
        for one in verdicts:
            world.link.account(one, NOW)

    return step


def test_an_original_master_gets_the_documents_frames(context):
    world = World(context, b"")
    delayed = verdict(status=Status.DELAYED, loginfo=b"x" * 10_000)
    world.run(account(world, verdict(), delayed), settled=lambda: world.counters.sent == 2)
    assert world.received() == [
        [b"api\0", b"ACCEPTED", b"id", b"1700000000000", b"", b""],
        [b"api\0", b"DELAYED", b"id", b"1700000000000", b"1700000001000", b"x" * 255],
    ]
    assert world.counters.batches == 0


def test_ours_gets_batches_of_one_domain_each(context):
    world = World(context, b"", BATCH)
    verdicts = [verdict(b"%d" % number, domain) for number in range(300) for domain in ("api", "web")]
    world.run(account(world, *verdicts), settled=lambda: world.counters.sent == 600)
    received = [(frames[0], decode_batch(frames[1])[0]) for frames in world.received()]
    assert all(len(records) <= MAX_RECORDS for _, records in received)
    for domain in ("api", "web"):
        records = [record for frame, records in received if frame == batch_topic(domain) for record in records]
        assert [record[1] for record in records] == [b"%d" % number for number in range(300)]
    assert world.counters.batches == len(received) == 4


def test_a_few_verdicts_go_together_and_one_goes_in_the_end(context):
    world = World(context, b"", BATCH)
    world.run(account(world, verdict(), verdict()), settled=lambda: world.counters.sent == 2)
    assert (len(world.received()), world.counters.batches) == (1, 1)


@pytest.mark.parametrize(
    ("mode", "subscriptions", "kinds"),
    [
        ("frames", [b"", BATCH], {6}),
        ("batch", [b"", BATCH], {2}),
        ("batch", [b""], set()),
        ("auto", [b"", batch_topic("api")], {2}),
        ("auto", [b"web\0"], set()),
    ],
)
def test_accounting_goes_as_it_is_asked_to_and_as_it_is_heard(context, mode, subscriptions, kinds):
    world = World(context, *subscriptions, accounting=mode)
    world.run(account(world, verdict()), settled=lambda: world.counters.sent + world.counters.unheard == 1)
    assert {len(frames) for frames in world.received()} == kinds
    assert world.counters.unheard == (not kinds)


def test_without_a_master_verdicts_are_dropped_and_counted(context):
    link = GatekeeperLink("tcp://127.0.0.1:9", ["api"])
    world = World(context)
    world.link, world.counters = link, link.counters
    world.run(account(world, *[verdict()] * 500), settled=lambda: link.counters.unheard == 500)
    assert not link.has_master


def test_a_link_that_is_not_driven_stays_small(context):
    world = World(context, b"", max_queue=100)
    account(world, *[verdict()] * 1_000)()
    assert (len(world.link._waiting), world.counters.dropped) == (100, 900)
    world.run(settled=lambda: world.counters.sent == 100)


@pytest.mark.parametrize("subscriptions", [[b""], [b"", BATCH]])
def test_a_master_that_does_not_read_costs_verdicts_and_no_time(context, subscriptions):
    world = World(context, *subscriptions, hwm=10, max_queue=50)
    steps = [account(world, *[verdict(domain=("api", "web")[n % 2]) for n in range(40)])] * 200
    world.run(*steps, settled=lambda: world.counters.sent + world.counters.dropped == 8_000)
    assert world.counters.dropped > 4_000
    assert len(world.received()) <= 200


def test_identifiers_no_control_can_name_are_not_sent(context):
    world = World(context, b"")
    world.run(account(world, verdict(b"x" * 256), verdict(b"x" * 255)), settled=lambda: world.counters.sent == 1)
    assert world.counters.too_long == 1


def test_controls_are_obeyed(context):
    world = World(context, b"")
    gatekeeper = Gatekeeper(world.link.account)
    world.link.attach(gatekeeper)
    world.control.recv()
    for number in range(1_000):
        world.control.send_multipart([*HOLD[:2], b"%d" % number, HOLD[3]])
    world.run(settled=lambda: world.counters.controls == 1_000)
    assert gatekeeper.held("api", b"999", now=NOW) == NOW + 60


@pytest.mark.parametrize(
    "frames",
    [
        HOLD[:1],
        HOLD[:3],
        [HOLD[0], b"DELAY", *HOLD[2:]],
        [*HOLD[:3], b"soon"],
        [b"api\0more", *HOLD[1:]],
        [HOLD[0], *[b"x"] * 5_000],
    ],
)
def test_what_is_no_control_is_counted(context, frames):
    world = World(context, b"")
    gatekeeper = Gatekeeper(world.link.account)
    world.link.attach(gatekeeper)
    world.control.recv()
    world.control.send_multipart(frames)
    world.control.send_multipart(HOLD)
    world.run(settled=lambda: world.counters.controls == 1)
    assert world.counters.malformed == 1
    assert gatekeeper.top("api", now=NOW) == [(b"id", NOW + 60)]


def test_a_thread_works_for_many(context):
    world = World(context, b"", BATCH)
    gatekeeper = Gatekeeper()
    world.link.attach(gatekeeper)
    world.link.start_thread()
    threads = [threading.Thread(target=account(world, *[verdict()] * 500)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    deadline = time.monotonic() + 10
    while world.counters.sent + world.counters.unheard < 4_000 and time.monotonic() < deadline:
        time.sleep(0.001)
    world.control.recv()
    world.control.send_multipart(HOLD)
    while not gatekeeper.held("api", b"id", now=NOW) > NOW and time.monotonic() < deadline:
        time.sleep(0.001)
    assert gatekeeper.held("api", b"id", now=NOW) == NOW + 60
    world.link.close()
    world.link.close()
    assert sum(len(decode_batch(frames[1])[0]) for frames in world.received()) == world.counters.sent


def test_after_closing_nothing_happens_any_more(context):
    world = World(context, b"")
    world.run()
    account(world, verdict())()
    assert world.counters.sent == 0


def test_a_wrong_word_is_told_of():
    with pytest.raises(ConfigurationError, match="invalid accounting 'some'"):
        GatekeeperLink("127.0.0.1", ["api"], accounting="some")
    with pytest.raises(ConfigurationError, match="invalid master address"):
        GatekeeperLink("http://127.0.0.1", ["api"])


def test_domains_change_and_no_verdict_is_lost(context):
    """The verdicts that wait are sent, and the connection stays, so that there is no moment without a master."""
    world = World(context, b"")

    def change():
        account(world, *[verdict(domain="web")] * 3)()
        world.link.set_domains(["api", "new"])

    last = account(world, verdict(domain="new"), verdict(domain="web"))
    world.run(
        account(world, verdict()), change, last, settled=lambda: world.counters.sent + world.counters.unheard == 6
    )
    assert [message[0] for message in world.received()] == [b"api\0", b"web\0", b"web\0", b"web\0", b"new\0"]
    assert world.counters.unheard == 1


def test_controls_are_obeyed_for_the_domains_there_are_now(context):
    world, gatekeeper = World(context, b""), Gatekeeper()
    world.link.attach(gatekeeper)
    subscribed = []

    def heard():
        while world.control.poll(0):
            subscribed.append(world.control.recv())
        return b"\1new\0" in subscribed and b"\0web\0" in subscribed

    def publish():
        assert heard()
        for name in (b"web\0", b"new\0", b"api\0"):
            world.control.send_multipart([name, *HOLD[1:]])

    world.link.set_domains(["api", "new"])
    heard()
    world.run(publish, settled=lambda: world.counters.controls == 2)
    assert {name for name in ("api", "web", "new") if gatekeeper.held(name, b"id", now=NOW) > 0} == {"api", "new"}
