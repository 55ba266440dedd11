"""TunnelSlots for tunnels: never one too many, whoever takes them, and none lost with a worker that dies."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from headgate.proxy.admission import shared_memory as memory
from headgate.proxy.admission.shared_memory import locked
from headgate.proxy.admission.tunnel_slots import TunnelSlots, create_slots


@pytest.fixture
def descriptor():
    descriptor = create_slots(4)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def places(descriptor):
    made = []

    def make(most, worker=0):
        made.append(TunnelSlots(most, os.dup(descriptor), worker=worker))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_so_many_are_taken_and_no_more(places):
    async def take():
        some = places(3)
        assert [await some.take() for _ in range(5)] == [True, True, True, False, False]
        assert some.taken == 3
        some.leave()
        assert await some.take()
        assert not await some.take()

    asyncio.run(take())


def test_one_worker_alone_takes_no_more_either():
    async def take():
        alone = TunnelSlots(2, create_slots(1))
        assert [await alone.take() for _ in range(3)] == [True, True, False]
        alone.leave()
        assert [await alone.take() for _ in range(2)] == [True, False]
        alone.close()

    asyncio.run(take())


def test_workers_share_them(places):
    async def take():
        one, other = places(2, 0), places(2, 1)
        assert await one.take()
        assert await other.take()
        assert not await one.take()
        other.leave()
        assert await one.take()
        assert other.taken == 2

    asyncio.run(take())


def test_those_of_a_worker_that_is_gone_are_freed(places):
    async def take():
        parent, worker = places(2, 0), places(2, 1)
        assert await worker.take()
        assert await worker.take()
        assert not await parent.take()
        parent.bury(1)
        assert await parent.take()

    asyncio.run(take())


_GRASPING = """
import asyncio, sys
from headgate.proxy.admission.tunnel_slots import TunnelSlots

async def main():
    places = TunnelSlots(100, int(sys.argv[1]), worker=int(sys.argv[2]))
    taken = 0
    for _ in range(100):
        taken += await places.take()
    print(taken)

asyncio.run(main())
"""


def test_processes_that_take_them_at_once_take_no_more_than_there_are(descriptor):
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


def test_a_worker_that_stands_still_with_the_lock_keeps_nobody_waiting_and_lets_nobody_in(
    places, descriptor, monkeypatch
):
    monkeypatch.setattr(memory, "_TRIES", 3)
    some = places(5)
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


def test_the_lock_is_let_go_of_by_whoever_fails(descriptor):
    async def fail():
        with pytest.raises(ZeroDivisionError):
            async with locked(descriptor):
                raise ZeroDivisionError
        async with locked(descriptor):
            return True

    assert asyncio.run(fail())
