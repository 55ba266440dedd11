import asyncio
import socket
import time
from contextlib import suppress

import pytest
import zmq

from headgate.errors import ConfigurationError
from headgate.link.batch import BATCH
from headgate.link.gatekeeper_counters import GatekeeperCounters
from headgate.link.heartbeats import Heartbeats
from headgate.link.master_connection import MasterConnection
from headgate.link.sockets import bind_pair
from headgate.link.subscriptions import Subscriptions

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x05READY\x0bSocket-Type\x00\x00\x00\x03"
PATIENCE = 10.0


def connection(context, address, *, heartbeats=None, queue=100, **options):
    subscriptions, counters = Subscriptions(["api"], "auto"), GatekeeperCounters()
    return MasterConnection(
        context, address, subscriptions, queue=queue, heartbeats=heartbeats, counters=counters, **options
    )


class SilentMaster:
    """A master with the libzmq of long ago: it subscribes to everything, and answers no heartbeat."""

    def __init__(self):
        self.accounting, self.control = listen_on_two_ports()
        self.address = "tcp://{}:{}".format(*self.accounting.getsockname())
        self.connections = 0
        self.open = set()

    async def serve(self):
        return [
            await asyncio.start_server(lambda r, w: self.answer(r, w, b"SUB", b"\x00\x01\x01"), sock=self.accounting),
            await asyncio.start_server(lambda r, w: self.answer(r, w, b"PUB", b""), sock=self.control),
        ]

    async def answer(self, reader, writer, kind, subscription):
        self.connections += kind == b"SUB"
        self.open.add(writer)
        ready = READY + kind
        with suppress(ConnectionError, EOFError):
            writer.write(GREETING)
            await reader.readexactly(len(GREETING))
            writer.write(bytes([4, len(ready)]) + ready + subscription)
            while await reader.read(65_536):
                pass
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        self.open.discard(writer)


def listen_on_two_ports():
    for _ in range(100):
        first, second = socket.socket(), socket.socket()
        first.bind(("127.0.0.1", 0))
        try:
            second.bind(("127.0.0.1", first.getsockname()[1] + 1))
        except OSError:
            first.close()
            second.close()
            continue
        return first, second
    raise AssertionError("no two consecutive ports are free")


def test_a_master_that_answers_no_heartbeats_is_connected_without_them(context):
    """As a libzmq before 4.2: without this, each of its connections ends after a few seconds."""
    heartbeats = Heartbeats(0.05)

    async def main():
        master = SilentMaster()
        servers = await master.serve()
        one = connection(context, master.address, heartbeats=heartbeats)
        deadline = time.monotonic() + PATIENCE
        while not (one.is_up and heartbeats.interval == 0.0):
            assert time.monotonic() < deadline
            one.receive_subscriptions(100)
            one.connections.turn()
            await asyncio.sleep(0.002)
        assert master.connections == 4
        for _ in range(100):  # ten intervals, and more if the machine is slow
            one.receive_subscriptions(100)
            one.connections.turn()
            await asyncio.sleep(0.005)
        assert master.connections == 4
        while not one.is_up:  # the control socket may need 2 s more to connect again
            assert time.monotonic() < deadline
            one.connections.turn()
            await asyncio.sleep(0.005)
        assert master.connections == 4
        one.close()
        for server in servers:
            server.close()
        while master.open:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.001)

    asyncio.run(main())


def test_a_master_that_answers_heartbeats_stays_connected(context):
    heartbeats = Heartbeats(0.02)
    accounting, control = context.socket(zmq.SUB), context.socket(zmq.XPUB)
    accounting.subscribe(b"")
    one = connection(context, bind_pair(accounting, control, "tcp://127.0.0.1:0").accounting, heartbeats=heartbeats)
    deadline = time.monotonic() + PATIENCE
    while not one.is_up:
        assert time.monotonic() < deadline
        accounting.poll(1)  # a socket notices who connects when it is touched
        one.receive_subscriptions(1)
        one.connections.turn()
    for _ in range(50):
        one.receive_subscriptions(1)
        time.sleep(0.005)
        assert one.is_up
    one.close()


def test_a_master_is_up_when_both_sockets_are_connected(context):
    """A master that starts again is connected to twice, up to two seconds apart: until then no control arrives."""
    accounting, control = context.socket(zmq.SUB), context.socket(zmq.XPUB)
    accounting.subscribe(b"")
    address = bind_pair(accounting, control, "tcp://127.0.0.1:0")
    control.unbind(address.control)
    changes = []
    one = connection(context, address.accounting, changed=lambda: changes.append(one.is_up))

    def until(condition):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline
            accounting.poll(1)
            one.receive_subscriptions(1)
            one.connections.turn()

    until(lambda: one.subscriptions and changes)
    assert not one.is_up
    control.bind(address.control)
    until(lambda: one.is_up)
    control.close(linger=0)
    until(lambda: not one.is_up)
    assert one.subscriptions
    assert changes == [False, True, False]
    one.close()


def test_a_full_queue_is_reported(context):
    accounting, control = context.socket(zmq.SUB), context.socket(zmq.XPUB)
    accounting.set_hwm(10)
    accounting.bind("inproc://bus")
    control.bind("inproc://bus.control")
    accounting.subscribe(b"")
    one = connection(context, "inproc://bus", queue=10)
    accounting.poll(0)
    assert not one.receive_subscriptions(10)
    assert one.is_up
    sent = [one.send([b"api\0", b"x"]) for _ in range(100)]
    assert sent == [True] * sent.count(True) + [False] * sent.count(False)
    assert 10 <= sent.count(True) <= 20
    one.close()


def test_a_repeated_subscription_reaches_the_master(context):
    accounting, control = context.socket(zmq.SUB), context.socket(zmq.XPUB)
    control.setsockopt(zmq.XPUB_VERBOSER, 1)
    one = connection(context, bind_pair(accounting, control, "tcp://127.0.0.1:0").accounting)
    for _ in range(2):
        one.subscribe(b"api\0")
        assert control.poll(10_000)
        assert control.recv() == b"\1api\0"
    for _ in range(2):  # the last of the two ends the subscription
        one.unsubscribe(b"api\0")
    assert control.poll(10_000)
    assert control.recv() == b"\0api\0"
    assert not control.poll(50)
    one.close()


def test_an_invalid_address_leaves_no_socket_open(context):
    with pytest.raises(ConfigurationError, match="invalid master address"):
        connection(context, "http://127.0.0.1")


def test_batches_are_seen_in_the_subscriptions(context):
    accounting, control = context.socket(zmq.SUB), context.socket(zmq.XPUB)
    for prefix in (b"", BATCH):
        accounting.subscribe(prefix)
    accounting.bind("inproc://bus")
    control.bind("inproc://bus.control")
    one = connection(context, "inproc://bus")
    accounting.poll(0)
    assert one.has_subscription
    one.receive_subscriptions(10)
    assert one.subscriptions.encodings == {"api": "batch"}
    assert one.subscriptions.encoding("other") == "batch"
    one.close()
