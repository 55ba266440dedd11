import asyncio
import threading
import time

import pytest

from headgate.errors import ConfigurationError
from headgate.limit import Accounting, Gatekeeper
from headgate.link import GatekeeperLink
from headgate.link.batch import BATCH, MAX_RECORDS, batch_topic, decode_batch
from headgate.release import Status
from tests.holds import top
from tests.quotes import quotes
from tests.unit.link.peers import CONTROL, MALFORMED_CONTROLS, PATIENCE, new_master, received

NOW = 1_700_000_000.0


class Setup:
    """A link, and two sockets that stand for its master."""

    def __init__(self, context, *subscriptions, **options):
        self.master = new_master(context, "inproc://bus", *subscriptions, hwm=options.pop("hwm", 100_000))
        self.accounting, self.control = self.master.accounting, self.master.control
        self.link = GatekeeperLink("inproc://bus", ["api", "web"], clock=lambda: NOW, context=context, **options)
        self.counters = self.link.counters
        self.master.touch()

    def run(self, *steps, settled=lambda: True):
        """Start the link in a loop, call each step, and go on until `settled`."""

        async def main():
            loop = asyncio.get_running_loop()
            self.link.start(loop)
            for step in steps:
                step()
                await asyncio.sleep(0)
            deadline = time.monotonic() + PATIENCE
            while not settled():
                assert time.monotonic() < deadline
                await asyncio.sleep(0.001)
            self.link.close()

        asyncio.run(main())

    def received(self):
        return received(self.accounting)


def verdict(identifier=b"id", domain="api", status=Status.ACCEPTED, loginfo=b""):
    return Accounting(domain, status, identifier, NOW, NOW + 1, loginfo)


def account(setup, *verdicts):
    def step():
        for one in verdicts:
            setup.link.account(one, NOW)

    return step


@quotes("smockron Protocol", "Gatekeepers and masters communicate using a pair of ZeroMQ PUB/SUB sockets.")
@quotes("smockron Low-Level Proto", "The domain should be encoded with a trailing null")
def test_an_original_master_receives_the_frames_of_the_document(context):
    setup = Setup(context, b"")
    delayed = verdict(status=Status.DELAYED, loginfo=b"x" * 10_000)
    setup.run(account(setup, verdict(), delayed), settled=lambda: setup.counters.sent == 2)
    assert setup.received() == [
        [b"api\0", b"ACCEPTED", b"id", b"1700000000000", b"", b""],
        [b"api\0", b"DELAYED", b"id", b"1700000000000", b"1700000001000", b"x" * 255],
    ]
    assert setup.counters.batches == 0


def test_a_headgate_master_receives_batches_of_one_domain_each(context):
    setup = Setup(context, b"", BATCH)
    verdicts = [verdict(b"%d" % number, domain) for number in range(300) for domain in ("api", "web")]
    setup.run(account(setup, *verdicts), settled=lambda: setup.counters.sent == 600)
    received = [(frames[0], decode_batch(frames[1])) for frames in setup.received()]
    assert all(len(records) <= MAX_RECORDS for _, records in received)
    for domain in ("api", "web"):
        records = [record for frame, records in received if frame == batch_topic(domain) for record in records]
        assert [record[1] for record in records] == [b"%d" % number for number in range(300)]
    assert setup.counters.batches == len(received) == 4


@pytest.mark.parametrize(
    ("subscriptions", "frames"),
    [([b"", BATCH], 2), ([b""], 6), ([b"api\0"], 6), ([b"", b"", b"web\0", BATCH], 6)],
    ids=["headgate", "original", "one domain", "both"],
)
def test_the_encoding_follows_the_subscriptions(context, subscriptions, frames):
    setup = Setup(context, *subscriptions)
    setup.run(account(setup, verdict()), settled=lambda: setup.counters.sent == 1)
    assert [len(message) for message in setup.received()] == [frames]


def test_a_subscription_whose_event_a_send_consumed_is_received(context):
    setup = Setup(context, b"")

    def subscribe_and_send():
        setup.accounting.subscribe(BATCH)
        setup.accounting.poll(0)
        account(setup, verdict())()
        setup.link._flush_and_check()
        assert next(iter(setup.link.connections)).reads_batches

    setup.run(subscribe_and_send)


@quotes("smockron Fault-Tolerance", "If the master crashes, accounting messages from the gatekeepers will be dropped")
def test_without_a_master_verdicts_are_dropped_and_counted(context):
    link = GatekeeperLink("tcp://127.0.0.1:9", ["api"])
    setup = Setup(context)
    setup.link, setup.counters = link, link.counters
    setup.run(account(setup, *[verdict()] * 500), settled=lambda: link.counters.dropped["no_master"] == 500)
    assert not link.has_master


def test_the_queue_of_a_link_that_is_not_started_is_bounded(context):
    setup = Setup(context, b"", max_queue=100)
    account(setup, *[verdict()] * 1_000)()
    assert (len(setup.link._waiting), setup.counters.dropped["queue_full"]) == (100, 900)
    setup.run(settled=lambda: setup.counters.sent == 100)


@pytest.mark.parametrize("subscriptions", [[b""], [b"", BATCH]])
def test_verdicts_for_a_master_that_does_not_read_are_dropped(context, subscriptions):
    setup = Setup(context, *subscriptions, hwm=10, max_queue=50)
    steps = [account(setup, *[verdict(domain=("api", "web")[n % 2]) for n in range(40)])] * 200
    setup.run(*steps, settled=lambda: setup.counters.sent + setup.counters.dropped["queue_full"] == 8_000)
    assert setup.counters.dropped["queue_full"] > 4_000
    assert len(setup.received()) <= 200


def test_a_domain_that_is_not_listed_is_counted(context):
    """An application chooses it: one with a NUL cannot be sent."""
    setup = Setup(context, b"", BATCH)
    setup.run(account(setup, verdict(domain="a\0b"), verdict()), settled=lambda: setup.counters.sent == 1)
    assert setup.counters.dropped["no_master"] == 1


def test_identifiers_too_long_for_a_control_are_not_sent(context):
    setup = Setup(context, b"")
    setup.run(account(setup, verdict(b"x" * 256), verdict(b"x" * 255)), settled=lambda: setup.counters.sent == 1)
    assert setup.counters.dropped["too_long"] == 1


@pytest.mark.parametrize("frames", [*MALFORMED_CONTROLS, [b"api\0more", *CONTROL[1:]]])
def test_malformed_controls_are_counted(context, frames):
    setup = Setup(context, b"")
    gatekeeper = Gatekeeper(setup.link.account)
    setup.link.attach(gatekeeper)
    setup.control.recv()
    setup.control.send_multipart(frames)
    setup.control.send_multipart(CONTROL)
    setup.run(settled=lambda: setup.counters.controls == 1)
    assert setup.counters.malformed == 1
    assert top(gatekeeper, "api", now=NOW) == [(b"id", NOW + 60)]


def test_an_absurd_control_is_shortened_when_it_is_received(context):
    """Nothing else ends it for an identifier without requests, even if the last request was long ago."""
    setup = Setup(context, b"")
    gatekeeper = Gatekeeper(setup.link.account, max_hold=5.0)
    gatekeeper.admit("api", b"other", now=NOW - 7_200)
    setup.link.attach(gatekeeper)
    setup.control.recv()
    setup.control.send_multipart(CONTROL)
    setup.run(settled=lambda: setup.counters.controls == 1)
    assert gatekeeper.held("api", b"id", now=NOW) == NOW + 5.0
    assert gatekeeper.shortened == 1


def test_a_link_in_a_thread_serves_many_threads(context):
    setup = Setup(context, b"", BATCH)
    gatekeeper = Gatekeeper()
    setup.link.attach(gatekeeper)
    setup.link.start_thread()
    threads = [threading.Thread(target=account(setup, *[verdict()] * 500)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    deadline = time.monotonic() + PATIENCE
    while setup.counters.sent + setup.counters.dropped["no_master"] < 4_000 and time.monotonic() < deadline:
        time.sleep(0.001)
    setup.control.recv()
    setup.control.send_multipart(CONTROL)
    while not gatekeeper.held("api", b"id", now=NOW) > NOW and time.monotonic() < deadline:
        time.sleep(0.001)
    assert gatekeeper.held("api", b"id", now=NOW) == NOW + 60
    sockets = [socket for one in setup.link.connections for socket in one.sockets]
    setup.link.close()
    setup.link.close()
    assert all(socket.closed for socket in sockets)
    assert sum(len(decode_batch(frames[1])) for frames in setup.received()) == setup.counters.sent


def test_a_closed_link_sends_nothing(context):
    setup = Setup(context, b"")
    setup.run()
    account(setup, verdict())()
    assert setup.counters.sent == 0


def test_invalid_arguments_are_rejected():
    with pytest.raises(ConfigurationError, match="invalid shard 'some'; expected one of domain, identifier"):
        GatekeeperLink("127.0.0.1", ["api"], shard="some")
    with pytest.raises(ConfigurationError, match="invalid master address"):
        GatekeeperLink("http://127.0.0.1", ["api"])
    with pytest.raises(ConfigurationError, match="no master is listed"):
        GatekeeperLink([], ["api"])
    with pytest.raises(ConfigurationError, match="' is listed twice"):
        GatekeeperLink(["127.0.0.1", "tcp://127.0.0.1:10004"], ["api"])


def test_verdicts_that_wait_are_sent_before_the_domains_change(context):
    """The connection stays: a gatekeeper is never without a master."""
    setup = Setup(context, b"")

    def change():
        account(setup, *[verdict(domain="web")] * 3)()
        setup.link.set_domains(["api", "new"])

    last = account(setup, verdict(domain="new"), verdict(domain="web"))
    setup.run(
        account(setup, verdict()),
        change,
        last,
        settled=lambda: setup.counters.sent + setup.counters.dropped["no_master"] == 6,
    )
    assert [message[0] for message in setup.received()] == [b"api\0", b"web\0", b"web\0", b"web\0", b"new\0"]
    assert setup.counters.dropped["no_master"] == 1


@quotes("smockron Low-Level Proto", "Gatekeeper subscribes to all domains for which it will receive traffic")
def test_controls_are_obeyed_for_the_present_domains_only(context):
    setup, gatekeeper = Setup(context, b""), Gatekeeper()
    setup.link.attach(gatekeeper)
    subscribed = []

    def received_all():
        while setup.control.poll(0):
            subscribed.append(setup.control.recv())
        return b"\1new\0" in subscribed and b"\0web\0" in subscribed

    def publish():
        assert received_all()
        for name in (b"web\0", b"new\0", b"api\0"):
            setup.control.send_multipart([name, *CONTROL[1:]])

    setup.link.set_domains(["api", "new"])
    received_all()
    setup.run(publish, settled=lambda: setup.counters.controls == 2)
    assert {name for name in ("api", "web", "new") if gatekeeper.held(name, b"id", now=NOW) > 0} == {"api", "new"}
