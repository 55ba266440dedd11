"""A gate, nginx, HAProxy and Envoy with one master share one limit for each client: identifiers are the same bytes."""

from contextlib import ExitStack

import pytest

from headgate.config import Address
from tests.e2e.programs import command, headgate, origin, request
from tests.servers import find_program, free_port, started

BURST = 6
KEY = "a key with 'quotes' and ;"
LONG_KEY = "a key, of 300 bytes " + "x" * 280
"""Envoy identifies this client by its address: the value has a comma, and more than 255 bytes."""
SIDECARS = {
    "nginx-lua": ("nginx", "-p", ".", "-c"),
    "auth-request": ("nginx", "-p", ".", "-c"),
    "haproxy": ("haproxy", "-f"),
}
"""The command of each server with a sidecar; a dot stands for its folder."""
ENVOY = ("envoy", "--disable-hot-restart", "--concurrency", "1", "-c")


class System:
    """A master, a gate, and each other kind of server, all of which identify clients by one method."""

    def __init__(self, stack, folder, host, identify, key):
        self.host, self.key = host, key
        self.origin = stack.enter_context(origin())
        domain = ("--domain", f"api=1/min burst {BURST}")
        admin = ("--admin", "127.0.0.1:0")
        rlqs = ("--rlqs", f"127.0.0.1:{free_port()}")
        listen = ("--listen", "127.0.0.1:0", *rlqs)
        self.master = stack.enter_context(headgate(folder, "master", *listen, *domain, *admin))
        bus = self.master.ready["address"]
        file = folder / "gate.toml"
        file.write_text('[[domain]]\nname = "api"\n')
        gate = ("serve", "--config", file, "--listen", Address(host, 0), "--origin", self.origin.url, *admin)
        running = stack.enter_context(headgate(folder, *gate, "--master", bus, "--identify", identify))
        self.gatekeepers = [running]
        self.ports = [running.port]
        flags = ("--domain", "api", "--identify", identify)
        for server, run in SIDECARS.items():
            home, socket = folder / server, ("--socket", str(folder / server / "s"))
            home.mkdir()
            sidecar = headgate(home, "sidecar", "--master", bus, f"--{server}", home / "s", *flags, *admin)
            self.gatekeepers.append(stack.enter_context(sidecar))
            self.ports.append(self.start(stack, home, server, run, (*flags, *socket)))
        if key != LONG_KEY:
            self.ports.append(self.start(stack, folder, "envoy", ENVOY, (*flags, *rlqs, "--rejection-status", "503")))
        for one in self.gatekeepers[1:]:
            one.until(lambda one=one: one.readyz() == "ready\n", "connection of the server")

    def start(self, stack, home, server, run, flags):
        """Start a server with the configuration that headgate prints; return its port."""
        port = free_port()
        site = ("--listen", str(Address(self.host, port)), "--origin", self.origin.url)
        file = home / ("server.yaml" if server == "envoy" else "server.conf")
        file.write_text(command("sidecar", "--print-conf", server, *site, *flags, folder=home).out)
        words = [find_program(run[0]), *(str(home) if word == "." else word for word in run[1:]), file]
        stack.enter_context(started(words, port, home, host=self.host))
        return port

    def get(self, port):
        return request(port, host=self.host, X_Api_Key=self.key).status

    def accounted(self):
        (domain,) = self.master.state()["domains"]
        return domain["accepted"] + domain["rejected"]


@pytest.mark.needs("nginx-lua", "haproxy", "envoy")
@pytest.mark.parametrize(
    ("host", "identify", "key", "shown"),
    [
        pytest.param("127.0.0.1", "client-address", KEY, "127.0.0.1", marks=pytest.mark.deep),
        pytest.param("::1", "client-address", KEY, "::/64", marks=pytest.mark.deep),
        ("127.0.0.1", "header:X-Api-Key", KEY, "sha256:"),
        ("127.0.0.1", "header:X-Api-Key", LONG_KEY, "sha256:"),
    ],
    ids=["IPv4", "IPv6", "header", "long header"],
)
def test_requests_to_all_servers_use_up_one_burst(tmp_path, host, identify, key, shown):
    with ExitStack() as stack:
        system = System(stack, tmp_path, host, identify, key)
        for number in range(BURST):
            assert system.get(system.ports[number % len(system.ports)]) == 200
            system.master.until(lambda: system.accounted() == number + 1, "accounting")  # noqa: B023  # called at once
        for one in system.gatekeepers:
            one.until(lambda: one.state()["domains"][0]["held"], "hold")  # noqa: B023  # called at once
        for port in system.ports:
            system.master.until(lambda: system.get(port) == 503, "rejection")  # noqa: B023  # called at once
        held = [one.state()["domains"][0]["held"] for one in system.gatekeepers]
        assert [len(identifiers) for identifiers in held] == [1] * len(held)
        (identifier,) = {identifiers[0]["identifier"] for identifiers in held}
        assert identifier.startswith(shown)
        # A request may be accepted while a hold is on the way from a sidecar to its server.
        assert BURST <= len(system.origin.seen) <= BURST + len(system.ports)
