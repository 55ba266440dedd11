"""A master on the bus against a loop over `recv_multipart` without logic, and batches against the document's frames.

Each receiver runs in this process, and reads what `bench.bus_load` sends in another. Every run, the timed ones too, has
to count each message and to publish exactly the holds that the core works out when it is handed the same accounting
directly; and the sender has to have waited for the receiver most of the time.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import zmq

from bench.bus_load import DOMAIN, MESSAGES, NOW, accountings
from bench.measure import Row, compared, in_turns, verify
from headgate.limit import Master
from headgate.link import MasterLink

_PATIENCE = 120.0


@contextmanager
def sender(way: str, port: str) -> Iterator[list[float]]:
    """Start the sender; the receiver adds the seconds that it took to the list, and hangs up before the end."""
    took: list[float] = []
    command = [sys.executable, "-m", "bench.bus_load", way, port]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as sending:
        yield took
        computed = float(sending.communicate(timeout=_PATIENCE)[0])
    verify("the sender waited for the receiver", right=computed < took[0] / 2)


def bare() -> float:
    """The peer: a loop over `recv_multipart` without any logic; thousands of messages a second."""
    with zmq.Context() as context:
        socket = context.socket(zmq.SUB)
        socket.setsockopt(zmq.RCVHWM, 10_000)
        socket.setsockopt(zmq.RCVTIMEO, int(1_000 * _PATIENCE))
        socket.setsockopt(zmq.LINGER, 0)
        socket.subscribe(b"")
        with sender("frames", str(socket.bind_to_random_port("tcp://127.0.0.1"))) as took:
            receive, frames = socket.recv_multipart, len(socket.recv_multipart())
            start = time.perf_counter()
            for _ in range(MESSAGES - 1):
                frames += len(receive())
            took.append(time.perf_counter() - start)
            socket.close()
    verify("each message has six frames", right=frames == 6 * MESSAGES)
    return MESSAGES / took[0] / 1e3


def master(way: str, expected: dict[bytes, float]) -> float:
    """Ours: a master on the bus, turn by turn, until it has seen everything; thousands of records a second."""
    link = MasterLink(Master([DOMAIN]), "tcp://127.0.0.1:0", clock=lambda: NOW)
    counters = link.counters
    with sender(way, link.endpoints.accounting.rpartition(":")[2]) as took:
        while not counters.accounted:
            link.turn()
        start = time.perf_counter()
        while counters.accounted < MESSAGES and time.perf_counter() < start + _PATIENCE:
            link.turn()
        took.append(time.perf_counter() - start)
        holds = {control.identifier: control.release for control in link.master.holds(DOMAIN.name, now=NOW)}
        totals = link.master.totals[DOMAIN.name]
        link.close()
    verify("the master counts every verdict", right=totals.accepted + totals.rejected == MESSAGES)
    verify("the master holds whom it should, until when it should", right=holds == expected)
    verify("it published each hold", right=counters.controls >= len(expected))
    return MESSAGES / took[0] / 1e3


def run(rounds: int) -> list[Row]:
    """Give the two rows."""
    core = Master([DOMAIN])
    for accounting in accountings():
        core.account(accounting, NOW)
    expected = {control.identifier: control.release for control in core.holds(DOMAIN.name, now=NOW)}
    verify("some are held", right=len(expected) > 100)
    sides: dict[str, Callable[[], float]] = {
        "bare": bare,
        "frames": partial(master, "frames", expected),
        "batch": partial(master, "batch", expected),
    }
    figures = in_turns(sides, rounds)
    bare_peer, frames_peer = ("recv_multipart, no logic", figures["bare"]), ("the same, six-frame", figures["frames"])
    return [
        compared("master, six-frame messages/s", figures["frames"], ("≥", 0.4), bare_peer, "k/s"),
        compared("master, batched records/s", figures["batch"], ("≥", 3.0), frames_peer, "k/s"),
    ]
