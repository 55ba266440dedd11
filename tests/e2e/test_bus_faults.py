"""Masters that stop, are killed, return and change: gatekeepers keep working.

"Smockron is resilient against multiple failure scenarios. It attempts to preserve access to the resources it
protects" (smockron.txt, Fault-Tolerance).
"""

import asyncio
import os
import signal
import time

import psutil

from headgate.limit import Accounting
from headgate.release import Status
from tests.e2e.bus_setup import Gate, running_master, until


def verdict(identifier):
    now = time.time()
    return Accounting("api", Status.ACCEPTED, identifier, now, now)


async def account_for(gate, count, size=0):
    """Account for `count` requests, with a turn of the event loop after each thousand."""
    for start in range(0, count, 1_000):
        for number in range(start, min(count, start + 1_000)):
            gate.link.account(verdict(b"%d" % number + b"x" * size), time.time())
        await asyncio.sleep(0)


def test_a_stopped_master_costs_neither_requests_nor_memory(run):
    """SIGSTOP: connected, but not reading. Messages beyond the queues are dropped and counted; later all recovers."""

    async def main(master):
        async with Gate(master.address, max_queue=1_000) as gate:
            await until(lambda: gate.link.has_master)
            os.kill(master.process.pid, signal.SIGSTOP)
            process = psutil.Process()
            await account_for(gate, 20_000, 200)
            before = process.memory_info().rss
            counters, accounted = gate.link.counters, 20_000
            while not counters.dropped["queue_full"]:
                await account_for(gate, 20_000, 200)
                accounted += 20_000
                assert accounted < 2_000_000
            await account_for(gate, 200_000, 200)
            assert gate.admit(b"another") == [Status.ACCEPTED]
            await until(lambda: not gate.link._waiting)
            # Heartbeats may have ended the connection meanwhile.
            assert counters.sent + counters.dropped["queue_full"] + counters.dropped["no_master"] == accounted + 200_001
            assert process.memory_info().rss - before < 64 * 1024 * 1024
            os.kill(master.process.pid, signal.SIGCONT)
            sent = counters.sent
            await until(lambda: gate.link.account(verdict(b"later"), time.time()) or counters.sent > sent)
            await until(gate_holds_later(gate))
            assert master.counts()["accepted"] >= 1_000

    def gate_holds_later(gate):
        def condition():
            gate.link.account(verdict(b"later"), time.time())
            return gate.holds(b"later")

        return condition

    with running_master() as master:
        run(main(master))


def test_a_message_that_arrives_while_the_loop_is_busy_is_not_lost(run):
    """A ZeroMQ descriptor reports an event once: messages that arrive between two reads must be found at the next."""

    async def main(master):
        async with Gate(master.address) as gate:
            await until(lambda: gate.link.has_master)
            for number in range(200):
                name = b"%d" % number
                gate.admit(name, times=5)
                time.sleep(0.002)  # noqa: ASYNC251 - a busy loop, on purpose
                await asyncio.sleep(0)
            await until(lambda: all(gate.holds(b"%d" % number) for number in range(200)))

    with running_master() as master:
        run(main(master))
