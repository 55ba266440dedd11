"""Envoys with a master that serves their quotas, each a process that a test may stop, kill and start again."""

import http.client
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from headgate.config import Address
from headgate.origin.sidecar.envoy_conf import configuration
from headgate.origin.sidecar.site import Site
from tests import servers
from tests.e2e.fault_node import Node
from tests.e2e.fault_system import ORIGIN, ORIGIN_HTTP, headgate_command, port_pair
from tests.e2e.programs import PATIENCE, Answer

DOMAIN = "api"

FIRST = ("nice", "-n", "-15")
"""What a command begins with that is to run at once on a machine with other work.

An Envoy that waits for a processor for 0.1 s refuses what a rule with a small burst permits. Without the permission for
it, the command runs all the same.
"""


class EnvoyNode(Node):
    """An Envoy."""

    def get(self, client: str = "", *more: tuple[str, str]) -> Answer:
        """Return the response to a request on a connection of its own; texts are Latin-1."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.putrequest("GET", "/")
            for name, value in [("X-Client", client), *more] if client else more:
                connection.putheader(name, value.encode("latin-1"))
            connection.endheaders()
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()

    def statuses(self, count: int, client: str = "") -> list[int]:
        """Return the statuses of so many requests, one after another."""
        return [self.get(client).status for _ in range(count)]


class Fleet:
    """Envoys and their master."""

    def __init__(self, master: Node, envoys: Sequence[EnvoyNode], bus: int) -> None:
        self.master = master
        self.envoys = envoys
        self.bus = bus
        """The port of the master's accounting address."""


def envoy_node(folder: Path, name: str, text: str, port: int) -> EnvoyNode:
    """Return an Envoy that has not started, with this configuration, which has a listener at this port."""
    file = folder / f"{name}.yaml"
    file.write_text(text)
    program = servers.find_program("envoy") or "envoy"
    options = ["--disable-hot-restart", "--concurrency", "1", "--log-level", "warning"]
    return EnvoyNode(name, [*FIRST, program, "-c", str(file), *options], folder, port=port, announces=False)


@contextmanager
def fleet(folder: Path, rule: str, *, envoys: int = 1, edit: Any = str) -> Iterator[Fleet]:
    """Run Envoys before one origin, and their master with one rule; `edit` changes the configuration of the Envoys."""
    with ExitStack() as running:
        origin = running.enter_context(servers.nginx(folder, server=ORIGIN, http=ORIGIN_HTTP))
        quota, bus = servers.free_port(), port_pair()
        options = ["--listen", f"127.0.0.1:{bus}", "--rlqs", f"127.0.0.1:{quota}", "--domain", f"{DOMAIN}={rule}"]
        nodes: list[EnvoyNode] = []
        for number in range(envoys):
            port = servers.free_port()
            site = Site(
                listen=Address("127.0.0.1", port),
                origin=origin.url,
                domain=DOMAIN,
                identify="header:x-client",
                rlqs=Address("127.0.0.1", quota),
                rejection_status=429,
            )
            nodes.append(envoy_node(folder, f"envoy{number}", edit(configuration(site)), port))
        command = [*FIRST, *headgate_command("master", *options)]
        system = Fleet(Node("master", command, folder, port=bus), nodes, bus)
        for node in [system.master, *nodes]:
            running.callback(node.close)
            node.launch()
        for node in [system.master, *nodes]:
            node.wait_until_ready()
        yield system
