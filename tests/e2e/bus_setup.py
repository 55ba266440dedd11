"""A gatekeeper on the bus in this process, and a master in a process of its own, which tests may stop and kill.

``python bus_setup.py ADDRESS NAME=RULE …`` prints the accounting endpoint it is bound to, then, for each line it
reads, one line of JSON with what it has counted; it ends with its input.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count, islice
from typing import Any, Self

import msgspec
import zmq

from headgate.limit import Domain, Gatekeeper, Master, Rule
from headgate.link import GatekeeperLink, MasterLink
from headgate.link.master_connection import Sharding, sharding_item
from headgate.release import Status

PATIENCE = 30.0
BURST = 5
RULE = f"1/min burst {BURST}"


async def until(condition: Callable[[], object], patience: float = PATIENCE) -> None:
    """Wait until `condition` returns true."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "condition not reached in time"
        await asyncio.sleep(0.005)


def domain_owned_by(owner: str, masters: Sequence[str], number: int = 0) -> str:
    """Return a domain that belongs to `owner` when all `masters` are connected; with another number, another one."""
    sharding = Sharding(masters)
    names = (f"domain-{index}" for index in count())
    owned = (name for name in names if sharding.owner(sharding_item(name), masters) == owner)
    return next(islice(owned, number, None))


class Gate:
    """A gatekeeper on the bus, in this process and its event loop."""

    def __init__(self, address: str | Sequence[str], domains: Sequence[str] = ("api",), **options: Any) -> None:
        self.link = GatekeeperLink(address, domains, **options)
        self.gatekeeper = Gatekeeper(self.link.account, max_delay=0.0)
        self.link.attach(self.gatekeeper)
        self.link.start(asyncio.get_running_loop())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.link.close()

    def admit(self, identifier: bytes = b"id", times: int = 1, domain: str = "api") -> list[Status]:
        """Return the verdicts on so many requests."""
        return [self.gatekeeper.admit(domain, identifier, now=time.time()).status for _ in range(times)]

    def holds(self, identifier: bytes = b"id", domain: str = "api") -> bool:
        """Return whether the gatekeeper holds an identifier now."""
        return self.gatekeeper.held(domain, identifier, now=time.time()) > time.time()

    async def lost(self, address: str) -> None:
        """Wait until accounting goes to other masters than this one: of its two connections, either may end first."""
        (connection,) = [each for each in self.link.connections if each.address == address]
        await until(lambda: not connection.is_subscribed)

    async def spend(self, domain: str, identifier: bytes = b"id") -> None:
        """Use up the burst of an identifier, and wait for its hold."""
        assert self.admit(identifier, times=BURST, domain=domain) == [Status.ACCEPTED] * BURST
        await until(lambda: self.holds(identifier, domain))


class PlainGatekeeper:
    """The two sockets of a gatekeeper, without its logic."""

    def __init__(self, ready: Mapping[str, str], *domains: bytes) -> None:
        """`ready` has the addresses of a master, which has subscribed when this returns."""
        self._context = zmq.Context()
        self.accounting, self.control = self._context.socket(zmq.XPUB), self._context.socket(zmq.SUB)
        for socket in (self.accounting, self.control):
            socket.setsockopt(zmq.RCVTIMEO, 20_000)
        self.accounting.connect(ready["address"])
        self.control.connect(ready["control"])
        for domain in domains or (b"default\0",):
            self.control.subscribe(domain)
        while self.accounting.recv() != b"\1":
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._context.destroy(linger=0)

    def accept(self, *identifiers: bytes, domain: bytes = b"default\0") -> None:
        """Report a request of each identifier that was accepted now."""
        now = b"%d" % int(time.time() * 1_000)
        for identifier in identifiers:
            self.accounting.send_multipart([domain, b"ACCEPTED", identifier, now, b"", b""])


class RunningMaster:
    """A started master: its process, its address, and what it counts."""

    def __init__(self, address: str, *domains: str) -> None:
        command = [sys.executable, __file__, address, *(domains or (f"api={RULE}",))]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._input, self._output = self.process.stdin, self.process.stdout
        self.address = self._output.readline().strip()

    def counts(self) -> Any:
        """Return its counts: totals over all domains, and those of the bus."""
        self._input.write("counts\n")
        self._input.flush()
        return json.loads(self._output.readline())

    def accepted(self) -> dict[str, int]:
        """Return the accepted requests it has counted, of each domain that has any."""
        accepted: dict[str, int] = self.counts()["domains"]
        return accepted

    def end(self) -> None:
        """Kill it if it still runs, and close its pipes."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self._input, self._output):
            pipe.close()


@contextmanager
def running_master(address: str = "tcp://127.0.0.1:0", *domains: str) -> Iterator[RunningMaster]:
    """Run a master until the end of the block."""
    master = RunningMaster(address, *domains)
    try:
        yield master
    finally:
        master.end()


class TwoMasters:
    """Two masters with the same domains, and a domain that belongs to each of them."""

    def __init__(self, *masters: RunningMaster) -> None:
        self.masters = masters
        self.addresses = [master.address for master in masters]
        self.domains = [domain_owned_by(address, self.addresses) for address in self.addresses]


@contextmanager
def two_masters() -> Iterator[TwoMasters]:
    """Run two masters until the end of the block."""
    words = ("tcp://127.0.0.1:0", *(f"domain-{number}={RULE}" for number in range(40)))
    with running_master(*words) as first, running_master(*words) as second:
        yield TwoMasters(first, second)


def counts(link: MasterLink) -> dict[str, Any]:
    totals = link.master.totals.values()
    return {
        "accepted": sum(one.accepted for one in totals),
        "delayed": sum(one.delayed for one in totals),
        "rejected": sum(one.rejected for one in totals),
        "domains": {name: one.accepted for name, one in link.master.totals.items() if one.accepted},
        "unknown": link.master.unknown,
        **msgspec.structs.asdict(link.counters),
    }


async def serve(links: Sequence[MasterLink], answer: Callable[[], object]) -> None:
    """Serve until the end of stdin; print an answer for each line of it."""

    def answer_each() -> None:
        for _ in sys.stdin:
            print(answer(), flush=True)

    for link in links:
        link.start(asyncio.get_running_loop())
    await asyncio.to_thread(answer_each)
    for link in links:
        link.close()


def main(address: str, *domains: str) -> None:
    named = (text.partition("=") for text in domains)
    link = MasterLink(Master(Domain(name, (Rule.parse(rule),)) for name, _, rule in named), address)
    print(link.endpoints.accounting, flush=True)
    asyncio.run(serve([link], lambda: json.dumps(counts(link))))


if __name__ == "__main__":
    main(*sys.argv[1:])
