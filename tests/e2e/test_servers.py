"""What holds for every server process: its log never blocks it, its counters exist from the start, its admin hosts."""

import os
import re
import signal
from contextlib import contextmanager

import pytest

from headgate.config.file import field_docs
from headgate.link.gatekeeper import GatekeeperCounters
from headgate.link.master import MasterCounters
from headgate.link.router import RouterCounters
from headgate.observe import GatekeeperTotals, MasterTotals
from headgate.origin.gateway.record import GatewayCounters
from headgate.origin.sidecar.data_plane import SidecarCounters
from headgate.runtime.log import LogCounters
from headgate.runtime.snapshot import SnapshotCounters
from tests.e2e.programs import PATIENCE, headgate, request
from tests.servers import free_port

NOTHING = "127.0.0.1:9"
GATEKEEPER = {"gatekeeper": GatekeeperTotals, "link": GatekeeperCounters, "log": LogCounters}
GATE = {**GATEKEEPER, "gateway": GatewayCounters, "master": MasterTotals}
SERVE = ("serve", "--listen", "127.0.0.1:0", "--origin", f"http://{NOTHING}", "--rule", "10/s")
MASTER = {"master": MasterTotals, "bus": MasterCounters, "snapshot": SnapshotCounters, "log": LogCounters}
SERVERS = {
    "gate": (SERVE, GATE),
    "workers": ((*SERVE, "--workers", "2"), GATE),
    "master": (("master", "--listen", "127.0.0.1:0", "--domain", "api=10/s"), MASTER),
    "router": (("router", "--master", NOTHING), {"router": RouterCounters, "log": LogCounters}),
    "sidecar": (
        ("sidecar", "--master", NOTHING, "--domain", "api", "--auth-request", "s"),
        {**GATEKEEPER, "sidecar": SidecarCounters},
    ),
    "proxy": (("proxy", "--listen", "127.0.0.1:0", "--plaintext"), {"log": LogCounters}),
}


@pytest.fixture(params=SERVERS)
def server(request):
    """Return the name of a kind of server."""
    return request.param


@contextmanager
def running(folder, server):
    """Run a server whose stderr is a pipe; give it, the pipe, the port of its admin listener and what is ready."""
    (folder / "headgate.toml").write_text('[admin]\nhosts = ["server.prod"]\n')
    reading, writing = os.pipe()
    port = free_port()
    arguments = [*SERVERS[server][0], "--admin", f"127.0.0.1:{port}"]
    if server == "router":
        arguments += ["--listen", f"127.0.0.1:{free_port()}"]
    with os.fdopen(reading, "rb") as pipe, headgate(folder, *arguments, err=writing) as program:
        os.close(writing)
        address = next(line.split()[1].decode() for line in pipe if line.startswith(b"ready "))
        yield program, pipe, port, address


def fill(pipe):
    """Write into a pipe until it is full."""
    # Opened again: O_NONBLOCK is for all descriptors of one opening, and the server has the other one.
    descriptor = os.open(f"/proc/self/fd/{pipe.fileno()}", os.O_WRONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "wb", buffering=0) as full:
        for size in (4096, 1):
            while full.write(b"\n" * size):
                pass


def test_a_reader_of_stderr_that_stalls_blocks_nothing(tmp_path, server):
    with running(tmp_path, server) as (program, pipe, port, address):
        fill(pipe)
        program.process.send_signal(signal.SIGHUP)  # each server writes a line
        for _ in range(3):
            assert request(port, "/livez").status == 200
            if address.startswith("http://"):
                assert request(int(address.rpartition(":")[2])).status in {405, 502}
        for line in pipe:  # the line was not lost
            if b"headgate: " in line and (b"read again" in line or b"reload" in line):
                break
        fill(pipe)
        assert program.end() == 0
        assert program.process.wait(PATIENCE) == 0


def test_all_counters_exist_from_the_start_and_a_configured_host_may_read_them(tmp_path, server):
    with running(tmp_path, server) as (_, _, port, _):
        text = request(port, "/metrics", Host="server.prod").body.decode()
        assert b"admin.hosts" in request(port, "/metrics", Host="other.prod").body
    samples = [line for line in text.splitlines() if line.startswith("headgate_")]
    found = {re.match("[a-z_]+", sample)[0] for sample in samples}
    declared = {
        f"headgate_{group}_{name}_total" for group, kind in SERVERS[server][1].items() for name in field_docs(kind)
    }
    assert declared <= found
    labels = [value for sample in samples for value in re.findall(r'="([^"]*)"', sample)]
    assert not [value for value in labels if " " in value]
