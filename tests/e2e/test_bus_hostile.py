"""Hostile input at a master's two ports: the master counts it and continues."""

import socket
import time
from contextlib import ExitStack

import psutil
import pytest
import zmq

from headgate.link.batch import batch_topic
from tests.e2e.bus_setup import running_master

MEBIBYTE = 1024 * 1024
PATIENCE = 15.0
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03PUB"


@pytest.fixture
def master():
    with running_master() as master:
        yield master


def ports(master):
    port = int(master.address.rpartition(":")[2])
    return port, port + 1


def still_serves(master):
    """Return whether a burst is counted and answered with a hold."""
    port, control = ports(master)
    before = master.counts()["accepted"]
    with zmq.Context() as context:
        publisher, subscriber = context.socket(zmq.XPUB), context.socket(zmq.SUB)
        subscriber.connect(f"tcp://127.0.0.1:{control}")
        subscriber.subscribe(b"api\0")
        publisher.connect(f"tcp://127.0.0.1:{port}")
        publisher.poll(PATIENCE * 1_000)
        name, now = b"honest-%d" % time.monotonic_ns(), b"%d" % (time.time() * 1_000)
        for _ in range(5):
            publisher.send_multipart([b"api\0", b"ACCEPTED", name, now, b"", b""])
        held = False
        while not held and subscriber.poll(PATIENCE * 1_000):
            held = subscriber.recv_multipart()[2] == name
        context.destroy(linger=0)
    return held and master.counts()["accepted"] - before >= 5


def publisher(context, master):
    one = context.socket(zmq.XPUB)
    one.set_hwm(0)
    one.setsockopt(zmq.XPUB_NODROP, 1)
    one.connect(master.address)
    assert one.poll(PATIENCE * 1_000)
    return one


def settled(master, condition):
    deadline = time.monotonic() + PATIENCE
    while not condition(master.counts()):
        assert time.monotonic() < deadline, master.counts()
        time.sleep(0.02)
    return master.counts()


def test_thousands_of_silent_connections_are_survived(master):
    with ExitStack() as stack:
        for number in range(2_000):
            port = ports(master)[number % 2]
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
        assert still_serves(master)


def test_oversized_messages_and_batches_are_dropped(master):
    process = psutil.Process(master.process.pid)
    with zmq.Context() as context:
        one = publisher(context, master)
        one.send_multipart([b"api\0", b"ACCEPTED", b"many", b"1", b"", b"", *[b"x"] * 100_000])
        one.send_multipart([batch_topic("api"), b"\xdd\x00\x03\xff\xff" + b"\x90" * 250_000])
        one.send_multipart([b"api\0", b"ACCEPTED", b"x" * 200_000, b"1", b"", b""])
        counts = settled(master, lambda counts: counts["dropped"]["too_long"] == 1)
        assert (counts["dropped"]["malformed"], counts["accepted"]) == (1, 1)
        assert still_serves(master)
        assert process.memory_info().rss < 200 * MEBIBYTE
        context.destroy(linger=0)


def test_a_flood_of_subscriptions_does_not_block_the_master(master):
    with zmq.Context() as context:
        one = publisher(context, master)
        now = b"%d" % (time.time() * 1_000)
        for number in range(5_000):
            one.send_multipart([b"api\0", b"DELAYED", b"%d" % (number // 5), now, now, b""])
        settled(master, lambda counts: counts["controls"] >= 1_000)
        before, start = master.counts(), time.monotonic()
        flood = [b"\1api\0", b"\0api\0"] * 10_000 + [b"\1%d" % number for number in range(10_000)]
        with socket.create_connection(("127.0.0.1", ports(master)[1]), timeout=PATIENCE) as peer:
            peer.sendall(GREETING + READY.replace(b"PUB", b"SUB"))
            peer.sendall(b"".join(bytes([0, len(message)]) + message for message in flood))
            after = settled(master, lambda counts: counts["subscriptions"] - before["subscriptions"] == 20_000)
        rounds = (time.monotonic() - start) / 0.1 + 2
        assert after["resent"] - before["resent"] <= 1_000 * rounds
        assert still_serves(master)
        context.destroy(linger=0)


def test_subscribers_that_never_read_do_not_grow_memory(master):
    process = psutil.Process(master.process.pid)
    with zmq.Context() as context:
        kept = [context.socket(zmq.SUB) for _ in range(50)]
        for subscriber in kept:
            subscriber.setsockopt(zmq.RCVHWM, 1)
            subscriber.setsockopt(zmq.RCVBUF, 4_096)
            subscriber.connect(f"tcp://127.0.0.1:{ports(master)[1]}")
            subscriber.subscribe(b"api\0")
            subscriber.poll(0)
        settled(master, lambda counts: counts["subscriptions"] == 50)
        one = publisher(context, master)
        now = b"%d" % (time.time() * 1_000)
        for number in range(100_000):
            one.send_multipart([b"api\0", b"DELAYED", b"%d" % (number // 5), now, now, b""])
        settled(master, lambda counts: counts["delayed"] == 100_000)
        assert still_serves(master)
        assert process.memory_info().rss < 400 * MEBIBYTE
        context.destroy(linger=0)
