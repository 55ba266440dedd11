"""Hostile bytes and connections at a master's two ports: counted, and never fatal.

tests/unit/link/test_accounting_receiver.py has malformed messages, and tests/fuzz draws more of them.
"""

import socket
import struct
import time
from contextlib import ExitStack, suppress
from random import Random

import psutil
import pytest
import zmq

from headgate.link.batch import batch_topic
from headgate.link.curve import new_key_pair
from tests.e2e import programs
from tests.e2e.bus_setup import running_master

MEBIBYTE = 1024 * 1024
PATIENCE = 15.0
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)


@pytest.fixture
def master():
    with running_master() as running:
        yield running


@pytest.fixture
def publisher(master):
    """Return an accounting socket that waits when the master is slow, so that nothing is dropped."""
    with zmq.Context() as context:
        sender = context.socket(zmq.XPUB)
        sender.setsockopt(zmq.XPUB_NODROP, 1)
        sender.connect(master.address)
        assert sender.poll(PATIENCE * 1_000)
        yield sender
        context.destroy(linger=0)


def ports(master):
    port = int(master.address.rpartition(":")[2])
    return port, port + 1


def connected(port):
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)


def resident(master):
    return psutil.Process(master.process.pid).memory_info().rss


def settled(master, condition):
    """Return the counts once they fulfil a condition, as long as the master makes progress."""
    before, deadline = None, 0.0
    while not condition(found := master.counts()):
        if found != before:
            before, deadline = found, time.monotonic() + PATIENCE
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found


def serves(master, publisher):
    """Return whether a burst is counted and answered with a hold."""
    before = master.counts()["accepted"]
    with publisher.context.socket(zmq.SUB) as control:
        control.connect(f"tcp://127.0.0.1:{ports(master)[1]}")
        control.subscribe(b"api\0")
        name, now = b"honest %d" % time.monotonic_ns(), b"%d" % (time.time() * 1_000)
        for _ in range(5):
            publisher.send_multipart([b"api\0", b"ACCEPTED", name, now, b"", b""])
        while control.poll(PATIENCE * 1_000):
            if control.recv_multipart()[2] == name:
                return master.counts()["accepted"] - before >= 5
    return False


def zmtp_stream(random, kind):
    """Draw the bytes of one connection: a handshake as socket `kind`, then frames of which some are malformed."""
    if random.random() < 0.2:
        broken = bytearray(GREETING)
        broken[random.randrange(len(broken))] = random.randrange(256)
        yield bytes(broken)
    else:
        yield GREETING
    ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind
    yield frame(4, ready if random.random() < 0.9 else random.randbytes(30))
    for _ in range(random.randint(1, 300)):
        flags = random.choice((0, 1)) if random.random() < 0.99 else random.randrange(256)
        yield frame(flags, random.choice((b"\1", b"\0", b"")) + random.randbytes(random.choice((0, 3, 40, 300))))


def curve_stream(random):
    """Draw the bytes of one connection: commands of a CURVE handshake with random content."""
    yield GREETING.replace(b"NULL\0", b"CURVE")
    for _ in range(random.randint(1, 4)):
        name, size = random.choice(((b"\x05HELLO", 194), (b"\x08INITIATE", 248), (b"\x07MESSAGE", 40), (b"", 8)))
        content = random.choice((b"\1\0", b"")) + random.randbytes(random.choice((size, size - 2, 0, 500)))
        yield frame(4, name + content)


def frame(flags, content):
    if len(content) > 255 or flags & 2:
        return bytes([flags | 2]) + struct.pack(">Q", len(content)) + content
    return bytes([flags, len(content)]) + content


@pytest.mark.parametrize(
    "count", [pytest.param(100, id="few"), pytest.param(10_000, id="many", marks=pytest.mark.deep)]
)
def test_connections_with_malformed_zmtp_are_survived(master, publisher, count):
    """Both ports; a million frames in the long run."""
    random, before = Random(count), resident(master)
    for number in range(count):
        # The master closes the connection at the first malformed frame.
        with connected(ports(master)[number % 2]) as peer, suppress(OSError):
            peer.sendall(b"".join(zmtp_stream(random, (b"PUB", b"SUB", b"XPUB", b"REQ")[number % 4])))
    assert serves(master, publisher)
    settled(master, lambda counts: counts["failed_handshakes"] > 0)
    assert resident(master) - before < 64 * MEBIBYTE


def test_connections_with_malformed_curve_handshakes_are_survived(tmp_path):
    """Commands of CURVE of the right and of a wrong size, with random content; a gatekeeper with a key is admitted."""
    random, server, client = Random(1), new_key_pair(), new_key_pair()
    key, allowed = tmp_path / "secret.key", tmp_path / "allowed.keys"
    key.write_bytes(server.secret)
    allowed.write_bytes(client.public)
    words = ("--domain", "api=1/min burst 5", "--curve-key", key, "--curve-allow", allowed, "--json")
    with programs.headgate(tmp_path, "master", "--listen", "127.0.0.1:0", *words) as master, zmq.Context() as context:
        port = int(master.ready["address"].rpartition(":")[2])
        for _ in range(300):
            with connected(port) as peer, suppress(OSError):
                peer.sendall(b"".join(curve_stream(random)))

        master.until(lambda: master.counts().get("failed_handshakes", 0) >= 100, "failed handshakes")
        assert master.said().count("failed its handshake") == 1
        sender = context.socket(zmq.XPUB)
        sender.curve_publickey, sender.curve_secretkey = client
        sender.curve_serverkey = server.public
        sender.connect(master.ready["address"])
        assert sender.poll(PATIENCE * 1_000)
        assert "Traceback" not in master.said()
        context.destroy(linger=0)


def test_thousands_of_silent_connections_are_survived(master, publisher):
    with ExitStack() as stack:
        for number in range(2_000):
            stack.enter_context(connected(ports(master)[number % 2]))
        assert serves(master, publisher)


def test_oversized_messages_and_batches_are_dropped(master, publisher):
    publisher.send_multipart([b"api\0", b"ACCEPTED", b"many", b"1", b"", b"", *[b"x"] * 100_000])
    publisher.send_multipart([batch_topic("api"), b"\xdd\x00\x03\xff\xff" + b"\x90" * 250_000])
    publisher.send_multipart([b"api\0", b"ACCEPTED", b"x" * 200_000, b"1", b"", b""])
    counts = settled(master, lambda counts: counts["dropped"]["too_long"] == 1)
    assert (counts["dropped"]["malformed"], counts["accepted"]) == (1, 1)
    assert serves(master, publisher)
    assert resident(master) < 200 * MEBIBYTE


def test_subscribers_that_never_read_do_not_grow_memory(master, publisher):
    kept = [publisher.context.socket(zmq.SUB) for _ in range(50)]
    for subscriber in kept:
        subscriber.setsockopt(zmq.RCVHWM, 1)
        subscriber.setsockopt(zmq.RCVBUF, 4_096)
        subscriber.connect(f"tcp://127.0.0.1:{ports(master)[1]}")
        subscriber.subscribe(b"api\0")
        subscriber.poll(0)
    settled(master, lambda counts: counts["subscriptions"] == 50)
    now = b"%d" % (time.time() * 1_000)
    for number in range(30_000):  # five of each identifier
        publisher.send_multipart([b"api\0", b"DELAYED", b"%d" % (number // 5), now, now, b""])
    settled(master, lambda counts: counts["delayed"] == 30_000)
    assert serves(master, publisher)
    assert resident(master) < 400 * MEBIBYTE
    for subscriber in kept:
        subscriber.close(linger=0)
