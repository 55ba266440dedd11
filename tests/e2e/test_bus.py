"""A gatekeeper here, a master in another process, and the bus between them."""

import asyncio
import time

import pytest

from headgate.release import Status
from tests.e2e.bus_setup import Gate, running_master, until


@pytest.mark.parametrize("transport", ["tcp", "ipc"])
async def test_a_burst_is_accepted_and_then_held(run, tmp_path, transport):
    address = "tcp://127.0.0.1:0" if transport == "tcp" else f"ipc://{tmp_path}/bus"

    with running_master(address) as master:
        async with Gate(master.address) as gate:
            await until(lambda: gate.link.has_master)
            assert gate.admit(times=5) == [Status.ACCEPTED] * 5
            await until(gate.holds)
            assert gate.admit() == [Status.REJECTED]
            await until(lambda: gate.link.counters.sent == 6)
            assert gate.link.counters.batches > 0
        await until(lambda: master.counts()["accounted"] == 6)
        counts = master.counts()
        assert (counts["accepted"], counts["rejected"]) == (5, 1)


async def test_a_message_that_arrives_while_the_loop_is_busy_is_not_lost(run):
    """A ZeroMQ descriptor reports an event once: messages that arrive between two reads must be found at the next."""

    with running_master() as master:
        async with Gate(master.address) as gate:
            await until(lambda: gate.link.has_master)
            for number in range(200):
                gate.admit(b"%d" % number, times=5)
                time.sleep(0.002)  # noqa: ASYNC251 - a busy loop, on purpose
                await asyncio.sleep(0)
            await until(lambda: all(gate.holds(b"%d" % number) for number in range(200)))
