"""What receives in the benchmarks of the master's bus: ``python -m bench.bus_receiver bare|master``.

It prints the port it listens on, reads all that `bench.bus_load` sends, and prints one line of JSON: the seconds from
the first message to the last, and what it knows then.
"""

import json
import sys
import time

import zmq

from bench.bus_load import DOMAIN, MESSAGES, NOW
from headgate.limit import Master
from headgate.link import MasterLink


def bare() -> None:
    """The peer: a loop over `recv_multipart` without any logic."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
    socket = context.socket(zmq.SUB)
    socket.setsockopt(zmq.RCVHWM, 10_000)
    socket.setsockopt(zmq.LINGER, 0)
    socket.subscribe(b"")
    print(socket.bind_to_random_port("tcp://127.0.0.1"), flush=True)
    receive, frames = socket.recv_multipart, len(socket.recv_multipart())
    start = time.perf_counter()
    for _ in range(MESSAGES - 1):
        frames += len(receive())
    seconds = time.perf_counter() - start
    socket.close()
    print(json.dumps({"seconds": seconds, "count": MESSAGES, "frames": frames}))


def master() -> None:
    """Ours: a master on the bus, turn by turn, until it has seen everything."""
    link = MasterLink(Master([DOMAIN]), "tcp://127.0.0.1:0", clock=lambda: NOW)
    print(link.endpoints.accounting.rpartition(":")[2], flush=True)
    counters = link.counters
    while not counters.accounted:
        link.turn()
    start = time.perf_counter()
    while counters.accounted < MESSAGES:
        link.turn()
    seconds = time.perf_counter() - start
    holds = {control.identifier.decode(): control.release for control in link.master.holds(DOMAIN.name, now=NOW)}
    totals = link.master.totals[DOMAIN.name]
    link.close()
    counted = {"count": counters.accounted, "accepted": totals.accepted, "rejected": totals.rejected}
    print(json.dumps({"seconds": seconds, "controls": counters.controls, "holds": holds, **counted}))


def main() -> None:
    """Run the one that is asked for."""
    {"bare": bare, "master": master}[sys.argv[1]]()


if __name__ == "__main__":
    main()
