"""A gatekeeper's link over real sockets, and masters that announce that they have no history."""

import asyncio
import time

import pytest
import zmq

from headgate.limit import Accounting, DelayUntil, Gatekeeper
from headgate.link import GatekeeperLink
from headgate.link.announcement import announcement, resent_topic
from headgate.link.batch import BATCH, MAX_RECORDS, batch_topic, decode_batch
from headgate.link.subscriptions import Subscriptions
from headgate.release import Status

ONE, OTHER = announcement("0123456789abcdef"), announcement("fedcba9876543210")


class Setup:
    """A link in an event loop, and masters that bind its address one after the other."""

    def __init__(self, context, tmp_path, **options):
        self.context = context
        self.address = f"ipc://{tmp_path}/bus"
        self.link = GatekeeperLink(self.address, ["api"], **options)
        self.number = 0
        self.master = None

    async def __aenter__(self):
        self.link.start(asyncio.get_running_loop())
        return self

    async def __aexit__(self, *_):
        self.link.close()

    def account(self, times=1):
        """Account for requests whose identifiers number them."""
        now = time.time()
        for _ in range(times):
            self.link.account(Accounting("api", Status.ACCEPTED, b"%d" % self.number, now, now), now)
            self.number += 1

    async def flushed(self):
        await until(lambda: not self.link._waiting)

    async def start(self, *subscriptions):
        """Start a master, and wait until it is connected."""
        self.master = self.context.socket(zmq.SUB)
        self.master.set_hwm(0)
        for prefix in subscriptions:
            self.master.subscribe(prefix)
        self.master.bind(self.address)
        await until(lambda: self.master.poll(0) or self.link.has_master)

    async def end(self):
        self.master.close(linger=0)
        await until(lambda: not self.link.has_master)

    async def received(self, count):
        """Return the identifiers of `count` records that the master receives: live, and for each announcement."""
        found = {}
        while count > 0:
            await until(lambda: self.master.poll(0))
            frames = self.master.recv_multipart()
            kinds = {batch_topic("api"): "live"} | {resent_topic(one, "api"): one for one in (ONE, OTHER)}
            numbers = [int(record[1]) for record in decode_batch(frames[1])[0]]
            found.setdefault(kinds[frames[0]], []).extend(numbers)
            count -= len(numbers)
        assert not self.master.poll(50)
        return found


async def until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


def test_successive_masters_get_each_verdict_once(context, tmp_path):
    async def main():
        async with Setup(context, tmp_path) as setup:
            setup.account(2)
            await setup.flushed()
            await setup.start(b"", BATCH, ONE)
            setup.account(2)
            await until(lambda: (setup.link.counters.sent, setup.link.counters.resent) == (2, 2))
            assert await setup.received(4) == {ONE: [0, 1], "live": [2, 3]}
            await setup.end()
            setup.account(2)
            await setup.flushed()
            await setup.start(b"", BATCH, OTHER)
            setup.account(2)
            await until(lambda: (setup.link.counters.sent, setup.link.counters.resent) == (4, 8))
            assert await setup.received(8) == {OTHER: [0, 1, 2, 3, 4, 5], "live": [6, 7]}
            assert setup.link.counters.unheard == 4

    asyncio.run(main())


def test_a_master_that_connects_again_gets_what_was_unheard(context, tmp_path):
    async def main():
        async with Setup(context, tmp_path) as setup:
            await setup.start(b"", BATCH, ONE)
            setup.account(2)
            await until(lambda: setup.link.counters.sent == 2)
            await setup.end()
            setup.account(2)
            await setup.flushed()
            await setup.start(b"", BATCH, ONE)
            assert await setup.received(2) == {ONE: [2, 3]}

    asyncio.run(main())


def test_holds_in_force_are_sent_again_with_the_verdicts(context, tmp_path):
    async def main():
        gatekeeper = Gatekeeper()
        release = float(round(time.time()) + 60)
        gatekeeper.obey(DelayUntil("api", b"0", release))
        async with Setup(context, tmp_path) as setup:
            setup.link.attach(gatekeeper, held=gatekeeper.held)
            setup.account(2)
            await setup.flushed()
            await setup.start(b"", BATCH, ONE)
            await until(lambda: setup.master.poll(0))
            _, payload = setup.master.recv_multipart()
            assert [record[4] for record in decode_batch(payload)[0]] == [b"%d" % (release * 1_000), b""]

    asyncio.run(main())


@pytest.mark.parametrize("subscriptions", [[b""], [b"", BATCH]])
def test_other_masters_get_nothing_again(context, tmp_path, subscriptions):
    async def main():
        async with Setup(context, tmp_path) as setup:
            setup.account(2)
            await setup.flushed()
            await setup.start(*subscriptions)
            setup.account()
            await until(lambda: setup.link.counters.sent == 1)
            assert setup.link.counters.resent == 0

    asyncio.run(main())


def test_nothing_is_sent_to_a_new_connection_before_its_subscription_is_read(context, tmp_path):
    """The loop is busy while one master is replaced by the next: it sends to the first one, which is gone."""

    async def main():
        async with Setup(context, tmp_path) as setup:
            await setup.start(b"", BATCH, ONE)
            setup.account(2)
            await until(lambda: setup.link.counters.sent == 2)
            setup.master.close(linger=0)
            time.sleep(0.05)  # noqa: ASYNC251 - a busy loop, on purpose
            setup.master = setup.context.socket(zmq.SUB)
            for prefix in (b"", BATCH, OTHER):
                setup.master.subscribe(prefix)
            setup.master.bind(setup.address)
            for _ in range(20):
                setup.master.poll(20)  # the sockets connect
                setup.account()
                setup.link._flush()
            await until(lambda: setup.link.counters.resent >= 2)
            setup.account()
            found = await setup.received(setup.number)
            assert found[OTHER] + found["live"] == list(range(setup.number))
            assert len(found[OTHER]) > 2

    asyncio.run(main())


def test_live_accounting_is_sent_while_much_is_sent_again(context, tmp_path):
    async def main():
        async with Setup(context, tmp_path, max_queue=20 * MAX_RECORDS) as setup:
            setup.account(20 * MAX_RECORDS)
            await setup.flushed()
            await setup.start(b"", BATCH, ONE)
            setup.account()
            await until(lambda: setup.link.counters.sent == 1)
            assert 0 < setup.link.counters.resent < 20 * MAX_RECORDS
            expected = {ONE: list(range(20 * MAX_RECORDS)), "live": [20 * MAX_RECORDS]}
            assert await setup.received(20 * MAX_RECORDS + 1) == expected

    asyncio.run(main())


def test_a_master_that_does_not_read_makes_no_live_accounting_be_dropped(context, tmp_path):
    """What is sent again has its own room in the queue."""

    async def main():
        async with Setup(context, tmp_path) as setup:
            for _ in range(100):
                setup.account(MAX_RECORDS)
                await setup.flushed()
            slow = context.socket(zmq.SUB)
            slow.setsockopt(zmq.RCVHWM, 1)
            slow.setsockopt(zmq.RCVBUF, 4_096)
            for prefix in (b"", BATCH, ONE):
                slow.subscribe(prefix)
            slow.bind(setup.address)
            await until(lambda: slow.poll(0) or setup.link.has_master)
            await until(lambda: setup.link.counters.resent == 100 * MAX_RECORDS)
            for _ in range(256):
                setup.account(MAX_RECORDS)
                setup.link._flush()
            assert setup.link.counters.dropped == 0

    asyncio.run(main())


def test_a_link_in_a_thread_sends_again(context, tmp_path):
    setup = Setup(context, tmp_path)
    setup.link.start_thread()
    setup.account(MAX_RECORDS + 1)
    deadline = time.monotonic() + 10
    while setup.link._waiting and time.monotonic() < deadline:
        time.sleep(0.001)
    master = setup.master = context.socket(zmq.SUB)
    for prefix in (b"", BATCH, ONE):
        master.subscribe(prefix)
    master.bind(setup.address)
    while setup.link.counters.resent < MAX_RECORDS + 1 and time.monotonic() < deadline:
        master.poll(1)
    setup.link.close()
    assert asyncio.run(setup.received(MAX_RECORDS + 1)) == {ONE: list(range(MAX_RECORDS + 1))}


def test_the_announcement_counts_only_if_all_peers_read_batches():
    for mode, messages, expected in (
        ("auto", [b"", BATCH, ONE], [ONE]),
        ("batch", [b"", BATCH, ONE], [ONE]),
        ("frames", [b"", BATCH, ONE], []),
        ("auto", [b"", b"", BATCH, ONE], []),
        ("auto", [b"", BATCH, ONE + b"api\0"], []),
    ):
        subscriptions = Subscriptions(["api"], mode)
        for prefix in messages:
            subscriptions.update(b"\1" + prefix)
        assert subscriptions.announcements == expected
    assert subscriptions.encodings == {"api": "batch"}
