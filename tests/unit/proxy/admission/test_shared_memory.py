"""Slots for tunnels: never more than the maximum, and none lost with a worker that dies."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from headgate.proxy.admission import shared_memory as memory
from headgate.proxy.admission.shared_memory import TunnelSlots, create_slots, locked


@pytest.fixture
def descriptor():
    descriptor = create_slots(4)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def slots(descriptor):
    made = []

    def make(most, worker=0):
        made.append(TunnelSlots(most, os.dup(descriptor), worker=worker))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_no_more_than_the_maximum_are_taken(slots):
    async def take():
        some = slots(3)
        assert [await some.take() for _ in range(5)] == [True, True, True, False, False]
        assert some.taken == 3
        some.release()
        assert await some.take()
        assert not await some.take()

    asyncio.run(take())


def test_one_worker_alone_takes_no_more():
    async def take():
        alone = TunnelSlots(2, create_slots(1))
        assert [await alone.take() for _ in range(3)] == [True, True, False]
        alone.release()
        assert [await alone.take() for _ in range(2)] == [True, False]
        alone.close()

    asyncio.run(take())


def test_workers_share_them(slots):
    async def take():
        one, other = slots(2, 0), slots(2, 1)
        assert await one.take()
        assert await other.take()
        assert not await one.take()
        other.release()
        assert await one.take()
        assert other.taken == 2

    asyncio.run(take())


def test_slots_of_an_ended_worker_are_reclaimed(slots):
    async def take():
        parent, worker = slots(2, 0), slots(2, 1)
        assert await worker.take()
        assert await worker.take()
        assert not await parent.take()
        parent.reclaim(1)
        assert await parent.take()

    asyncio.run(take())


_GRASPING = """
import asyncio, sys
from headgate.proxy.admission.shared_memory import TunnelSlots

async def main():
    slots = TunnelSlots(100, int(sys.argv[1]), worker=int(sys.argv[2]))
    taken = 0
    for _ in range(100):
        taken += await slots.take()
    print(taken)

asyncio.run(main())
"""


def test_concurrent_processes_take_no_more(descriptor):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _GRASPING, str(descriptor), str(worker)], pass_fds=[descriptor], stdout=-1, text=True
        )
        for worker in range(4)
    ]
    assert sum(int(process.communicate(timeout=60)[0]) for process in processes) == 100


_HOLDING = """
import fcntl, sys, time
fcntl.lockf(int(sys.argv[1]), fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


def test_a_stopped_holder_of_the_lock_blocks_no_other_worker(slots, descriptor, monkeypatch):
    monkeypatch.setattr(memory, "_MAX_TRIES", 3)
    some = slots(5)
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDING, str(descriptor)], pass_fds=[descriptor], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        assert asyncio.run(some.take()) is False
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate(timeout=30)
    assert asyncio.run(some.take()) is True


def test_the_lock_is_released_after_an_exception(descriptor):
    async def fail():
        with pytest.raises(ZeroDivisionError):
            async with locked(descriptor):
                raise ZeroDivisionError
        async with locked(descriptor):
            return True

    assert asyncio.run(fail())
