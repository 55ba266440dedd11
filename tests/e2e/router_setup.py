"""Routers as processes, between gatekeepers in this process and masters in processes of their own."""

import urllib.error
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from headgate.release import Status
from tests.e2e import programs
from tests.e2e.bus_setup import Gate, domain_owned_by, running_master, until

BURST = 5
RULE = f"1/min burst {BURST}"
DOMAINS = [f"domain-{number}" for number in range(40)]


class Router:
    """A running router: its process, its address, and its admin listener."""

    def __init__(self, program: programs.Program) -> None:
        self.program = program
        self.address = program.ready["address"]

    def state(self) -> Any:
        """Return what /api/state shows."""
        return self.program.state()

    def counters(self) -> dict[str, Any]:
        """Return its counters, without their common prefix."""
        return {name.removeprefix("router_"): count for name, count in self.state()["counters"].items()}

    def up(self) -> list[str]:
        """Return the addresses of the masters that are connected."""
        return [master["address"] for master in self.state()["masters"] if master["up"]]

    def ready(self) -> tuple[int, str]:
        """Return the status and the text of /readyz."""
        try:
            return 200, self.program.admin("/readyz")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@contextmanager
def running_router(folder: Path, masters: Sequence[str], *options: object) -> Iterator[Router]:
    """Run a router; comes back when it is ready."""
    words = [word for address in masters for word in ("--master", address)]
    own = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
    with programs.headgate(folder, "router", *own, *words, *options) as program:
        yield Router(program)


class System:
    """Two masters with the same domains, a router before them, and a domain of each master."""

    def __init__(self, folder: Path) -> None:
        self._closing = ExitStack()
        self._folder = folder
        self._rules = [f"{name}={RULE}" for name in DOMAINS]

    def __enter__(self) -> Self:
        self.masters = [self._closing.enter_context(running_master("tcp://127.0.0.1:0", *self._rules)) for _ in "12"]
        self.addresses = [master.address for master in self.masters]
        self.domains = [domain_owned_by(address, self.addresses) for address in self.addresses]
        self.router = self._closing.enter_context(running_router(self._folder, self.addresses))
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def gate(self) -> Gate:
        """Return a gatekeeper for both domains."""
        return Gate(self.router.address, self.domains)


async def spend(gate: Gate, domain: str, identifier: bytes = b"id") -> None:
    """Use up the burst of an identifier, and wait for its hold."""
    assert gate.admit(identifier, times=BURST, domain=domain) == [Status.ACCEPTED] * BURST
    await until(lambda: gate.holds(identifier, domain))
