"""A gatekeeper here, a master in another process, and the bus between them."""

import asyncio
import time

import pytest
import zmq

from headgate.link.sockets import bind_pair
from headgate.release import Status
from tests.e2e.bus_setup import Gate, running_master, until

PATIENCE = 10.0


@pytest.mark.parametrize("accounting", ["auto", "frames", "batch"])
@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_a_burst_is_accepted_and_then_held(run, tmp_path, transport, accounting):
    address = "tcp://127.0.0.1:0" if transport == "tcp" else f"ipc://{tmp_path}/bus"

    async def main(master):
        async with Gate(master.address, accounting=accounting) as gate:
            await until(lambda: gate.link.has_master)
            assert gate.admit(times=5) == [Status.ACCEPTED] * 5
            await until(gate.holds)
            assert gate.admit() == [Status.REJECTED]
            await until(lambda: gate.link.counters.sent == 6)
            assert (gate.link.counters.batches > 0) == (accounting != "frames")
        await until(lambda: master.counts()["accounted"] == 6)
        counts = master.counts()
        assert (counts["accepted"], counts["rejected"]) == (5, 1)

    with running_master(address) as master:
        run(main(master))


def test_gatekeepers_share_one_masters_holds(run):
    """A burst spread over two gatekeepers is one burst, and both receive the control."""

    async def main(master):
        async with Gate(master.address) as one, Gate(master.address) as other:
            await until(lambda: one.link.has_master and other.link.has_master)
            await until(lambda: master.counts()["subscriptions"] == 2)
            one.admit(times=3)
            other.admit(times=2)
            await until(lambda: one.holds() and other.holds())
            assert not one.holds(b"another")

    with running_master() as master:
        run(main(master))


def test_a_late_gatekeeper_receives_the_current_holds(run):
    async def main(master):
        async with Gate(master.address) as first:
            await until(lambda: first.link.has_master)
            first.admit(times=5)
            await until(first.holds)
        async with Gate(master.address) as second:
            await until(second.holds)
            async with Gate(master.address) as third:
                await until(third.holds)

    with running_master() as master:
        run(main(master))


@pytest.mark.parametrize("topic", [b"api\0", b"api", b""])
def test_an_original_gatekeeper_receives_controls(topic):
    """It sends the domain without its NUL, and subscribes to it without."""
    with running_master() as master, zmq.Context() as context:
        host, _, port = master.address.rpartition(":")
        accounting, control = context.socket(zmq.PUB), context.socket(zmq.SUB)
        control.connect(f"{host}:{int(port) + 1}")
        control.subscribe(topic)
        accounting.connect(master.address)
        control.setsockopt(zmq.RCVTIMEO, 20)
        now, frames = time.time(), []
        deadline = now + PATIENCE
        while not frames and time.time() < deadline:
            accounting.send_multipart([b"api", b"ACCEPTED", b"192.0.2.1", b"%d" % (now * 1_000), b"", b""])
            if control.poll(20):
                frames = control.recv_multipart()
        assert frames[:3] == [b"api\0", b"DELAY_UNTIL", b"192.0.2.1"]
        assert frames[3].isdigit()
        assert len(frames) == 4
        late = context.socket(zmq.SUB)
        late.connect(f"{host}:{int(port) + 1}")
        late.subscribe(topic)
        late.setsockopt(zmq.RCVTIMEO, int(PATIENCE * 1_000))
        assert late.recv_multipart()[:3] == frames[:3]
        context.destroy(linger=0)


def test_an_original_master_receives_accounting(run):
    """It subscribes to everything, and to nothing else; its controls end in arguments."""

    async def main(accounting, control, address):
        async with Gate(address) as gate:
            await until(
                lambda: accounting.poll(0) or gate.link.has_master
            )  # a socket notices connections when it is used
            gate.admit(times=3)
            frames = await asyncio.to_thread(accounting.recv_multipart)
            assert frames[:3] == [b"api\0", b"ACCEPTED", b"id"]
            assert frames[3].isdigit()
            assert frames[4:] == [b"", b""]
            until_ms = b"%d" % ((time.time() + 30) * 1_000)
            await until(lambda: control.send_multipart([b"api\0", b"DELAY_UNTIL", b"id", until_ms]) or gate.holds())

    with zmq.Context() as context:
        accounting, control = context.socket(zmq.SUB), context.socket(zmq.PUB)
        accounting.setsockopt(zmq.RCVTIMEO, int(PATIENCE * 1_000))
        accounting.subscribe(b"")
        run(main(accounting, control, bind_pair(accounting, control, "tcp://127.0.0.1:0").accounting))
        context.destroy(linger=0)
