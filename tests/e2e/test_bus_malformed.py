"""Random malformed messages at a master, at a gatekeeper's link, and on raw connections: counted, and never fatal.

The messages are those of `hostile_messages`; each test runs with few of them, and with a million.
"""

import asyncio
import json
import socket
import time
from contextlib import contextmanager, suppress
from functools import partial
from random import Random

import psutil
import pytest
import zmq

from headgate.limit import Gatekeeper
from headgate.limit.messages import control_frames
from headgate.link import GatekeeperLink
from headgate.link.curve import new_key_pair
from headgate.link.sockets import bind_pair, open_socket
from tests.e2e import programs
from tests.e2e.bus_setup import until
from tests.e2e.hostile_messages import (
    changed_frames,
    curve_stream,
    random_batch,
    random_control,
    random_frames,
    zmtp_stream,
)

MARKER = [b"mark\0", b"ACCEPTED", b"marker", b"1", b"", b""]
FEW_AND_MANY = [pytest.param(3_000, id="few"), pytest.param(100_000, id="many", marks=pytest.mark.deep)]
MEBIBYTE = 1024 * 1024


@pytest.fixture
def master(tmp_path):
    """Run a master for the domains `api` and `mark`."""
    words = ("--domain", "api=1/min burst 5", "--domain", "mark=1000000/s burst 1000000", "--algorithm", "gcra")
    with programs.headgate(tmp_path, "master", "--listen", "127.0.0.1:0", *words, "--json") as running:
        assert running.ready
        yield running


@pytest.fixture
def publisher(master):
    """Return an accounting socket that waits when the master is slow, so that nothing is dropped."""
    with zmq.Context() as context:
        sender = context.socket(zmq.XPUB)
        sender.setsockopt(zmq.XPUB_NODROP, 1)
        sender.connect(master.ready["address"])
        assert sender.poll(programs.PATIENCE * 1_000)
        yield sender
        context.destroy(linger=0)


def counts(master):
    lines = master.out.read_text().splitlines()
    return json.loads(lines[-1]) if lines else None


def counts_after(master, markers):
    """Return the counts once the master has read so many markers, each sent after a malformed message."""
    before, deadline = -1, 0.0
    while (found := counts(master)) is None or found["domains"]["mark"]["accepted"] < markers:
        if found and found["accounted"] > before:
            before, deadline = found["accounted"], time.monotonic() + programs.PATIENCE
        assert found is None or time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def serves(master, publisher):
    """Return whether a burst is counted and answered with a hold."""
    with publisher.context.socket(zmq.SUB) as control:
        control.connect(master.ready["control"])
        control.subscribe(b"api\0")
        name, now = b"honest %d" % time.monotonic_ns(), b"%d" % (time.time() * 1_000)
        for _ in range(6):
            publisher.send_multipart([b"api\0", b"ACCEPTED", name, now, b"", b""])
        deadline = time.monotonic() + programs.PATIENCE
        while control.poll(max(0, deadline - time.monotonic()) * 1_000):
            if control.recv_multipart()[2] == name:
                return True
    return False


def survived(master):
    return master.process.poll() is None and "Traceback" not in master.said() and "internal error" not in master.said()


@pytest.mark.parametrize("count", FEW_AND_MANY)
def test_each_malformed_message_of_frames_is_counted_once(master, publisher, count):
    random = Random(count)
    resident = psutil.Process(master.process.pid).memory_info().rss
    for number in range(count):
        publisher.send_multipart(random_frames(random) if number % 2 else changed_frames(random))
        publisher.send_multipart(MARKER)
    found = counts_after(master, count)
    assert found["dropped"]["malformed"] + found["accounted"] == 2 * count
    assert all((*found["dropped"].values(), found["unknown"]))
    assert serves(master, publisher)
    assert survived(master)
    assert psutil.Process(master.process.pid).memory_info().rss - resident < 64 * MEBIBYTE


@pytest.mark.parametrize("count", FEW_AND_MANY)
def test_each_malformed_batch_is_counted_once(master, publisher, count):
    random = Random(count)
    resident = psutil.Process(master.process.pid).memory_info().rss
    for _ in range(count):
        publisher.send_multipart(random_batch(random))
        publisher.send_multipart(MARKER)
    found = counts_after(master, count)
    assert 0 < found["batches"] < count
    assert found["dropped"]["malformed"] > count - found["batches"]  # records of batches, too
    assert serves(master, publisher)
    assert survived(master)
    assert psutil.Process(master.process.pid).memory_info().rss - resident < 64 * MEBIBYTE


@pytest.mark.parametrize(
    "count", [pytest.param(100, id="few"), pytest.param(10_000, id="many", marks=pytest.mark.deep)]
)
def test_connections_with_malformed_zmtp_are_survived(master, publisher, count):
    """Both ports; a million frames in the long run."""
    random = Random(count)
    resident = psutil.Process(master.process.pid).memory_info().rss
    ports = [int(master.ready[name].rpartition(":")[2]) for name in ("address", "control")]
    for number in range(count):
        address = ("127.0.0.1", ports[number % 2])
        # The master closes the connection at the first malformed frame.
        with socket.create_connection(address, timeout=programs.PATIENCE) as peer, suppress(OSError):
            peer.sendall(b"".join(zmtp_stream(random, (b"PUB", b"SUB", b"XPUB", b"REQ")[number % 4])))
    assert serves(master, publisher)
    found = counts_after(master, 0)
    assert found["failed_handshakes"] > 0
    assert survived(master)
    assert psutil.Process(master.process.pid).memory_info().rss - resident < 64 * MEBIBYTE


def test_connections_with_malformed_curve_handshakes_are_survived(tmp_path):
    """Commands of CURVE of the right and of a wrong size, with random content; a gatekeeper with a key is admitted."""
    random, server, client = Random(1), new_key_pair(), new_key_pair()
    key, allowed = tmp_path / "secret.key", tmp_path / "allowed.keys"
    key.write_bytes(server.secret_file())
    allowed.write_bytes(client.public)
    words = ("--domain", "api=1/min burst 5", "--curve-key", key, "--curve-allow", allowed, "--json")
    with (
        programs.headgate(tmp_path, "master", "--listen", "127.0.0.1:0", *words) as master,
        zmq.Context() as context,
    ):
        port = int(master.ready["address"].rpartition(":")[2])
        for _ in range(300):
            with socket.create_connection(("127.0.0.1", port), timeout=programs.PATIENCE) as peer, suppress(OSError):
                peer.sendall(b"".join(curve_stream(random)))
        master.until(lambda: (found := counts(master)) and found["failed_handshakes"] >= 100, "failed handshakes")
        assert master.said().count("failed its handshake") == 1
        sender = context.socket(zmq.XPUB)
        sender.curve_publickey, sender.curve_secretkey = client
        sender.curve_serverkey = server.public
        sender.connect(master.ready["address"])
        assert sender.poll(programs.PATIENCE * 1_000)
        assert survived(master)
        context.destroy(linger=0)


class FakeMaster:
    """The two sockets of a master that sends what a test wants."""

    def __init__(self, context, address="tcp://127.0.0.1:0"):
        self.accounting = open_socket(context, zmq.SUB, queue=1_000, largest=-1)
        self.control = open_socket(context, zmq.XPUB, queue=1_000, largest=-1)
        self.control.setsockopt(zmq.XPUB_NODROP, 1)
        self.accounting.subscribe(b"")
        self.address = bind_pair(self.accounting, self.control, address).accounting

    def publish(self, frames):
        """Publish a message; return False if the queue of the gatekeeper is full."""
        try:
            self.control.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def hold(self, name):
        return self.publish(list(control_frames(b"api\0", name, time.time() + 60.0)))


@contextmanager
def connected():
    """Return such a master, and the link of a gatekeeper to it."""
    with zmq.Context() as context:
        master = FakeMaster(context)
        link = GatekeeperLink(master.address, ["api"])
        try:
            yield master, link
        finally:
            link.close()
            context.destroy(linger=0)


@pytest.mark.parametrize("count", FEW_AND_MANY)
def test_malformed_controls_are_counted_and_later_ones_obeyed(count):
    async def main(master, link):
        random = Random(count)
        gatekeeper = Gatekeeper(link.account, max_holds=1_000)
        link.attach(gatekeeper)
        link.start(asyncio.get_running_loop())
        await until(lambda: master.control.poll(0))
        await until(lambda: master.accounting.poll(0) or link.has_master)  # a socket that is used sends subscriptions
        for number in range(count):
            message = random_control(random)
            await until(partial(master.publish, message))
            if number % 100 == 0:
                await asyncio.sleep(0)
        await until(lambda: link.counters.controls + link.counters.malformed == count)
        assert link.counters.malformed > count / 2
        assert master.hold(b"honest")
        await until(lambda: gatekeeper.held("api", b"honest", now=time.time()) > time.time())

    with connected() as (master, link):
        asyncio.run(main(master, link))


def test_link_connects_again_after_a_control_that_is_too_long(run):
    """The connection ends, and libzmq does not connect again."""

    async def main(master, link):
        gatekeeper = Gatekeeper(link.account)
        link.attach(gatekeeper)
        link.start(asyncio.get_running_loop())
        await until(lambda: master.control.poll(0))
        assert master.control.recv() == b"\1api\0"
        master.publish([b"api\0", b"DELAY_UNTIL", b"x" * 10_000, b"1"])
        await until(lambda: master.control.poll(0))
        assert master.control.recv() == b"\0api\0"
        await until(lambda: master.control.poll(0))
        assert master.control.recv() == b"\1api\0"
        assert master.hold(b"honest")
        await until(lambda: gatekeeper.held("api", b"honest", now=time.time()) > time.time())

    with connected() as (master, link):
        run(main(master, link))
