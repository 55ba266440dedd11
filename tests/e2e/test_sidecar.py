"""`headgate sidecar` as a process: its start, socket, admin listener and end; each server has a file of its own."""

import re
import socket
import stat
import subprocess

import pytest

from tests.e2e.bus_setup import running_master
from tests.e2e.programs import command, headgate
from tests.servers import find_program, free_port

NO_MASTER = "127.0.0.1:9"


@pytest.fixture(params=["--nginx-lua", "--auth-request"])
def server(request):
    """The flag of a server that connects to the sidecar."""
    return request.param


def sidecar(folder, *arguments, master=NO_MASTER):
    """Run a sidecar with its socket at `s` in the folder."""
    return headgate(folder, "sidecar", "--master", master, "--domain", "api", *arguments)


def test_sidecar_without_a_running_master_is_ready_and_sigterm_ends_it(server, tmp_path):
    path = tmp_path / "s"
    with sidecar(tmp_path, server, path) as running:
        assert running.ready == {
            "server": server.removeprefix("--"),
            "domains": "1",
            "masters": NO_MASTER,
            "admin": "none",
            "address": str(path),
        }
        assert running.said().endswith(f"ready {path}\n")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
        assert stat.S_IMODE(path.stat().st_mode) == 0o666
        assert running.end() == 0
    assert not path.exists()


def test_admin_listener_shows_what_is_missing(server, tmp_path):
    with (
        running_master("tcp://127.0.0.1:0", "api=10/s") as master,
        sidecar(tmp_path, server, tmp_path / "s", "--admin", "127.0.0.1:0", master=master.address) as running,
    ):
        assert running.admin("/livez") == "alive\n"
        assert 'headgate_master_up{master="' in running.admin("/metrics")
        running.until(lambda: running.state()["masters"] == [{"address": master.address, "up": True}], "master")
        master.process.kill()
        running.until(lambda: running.readyz() == "no master is connected\n", "page that misses the master")
        expected = f"headgate: warning: master {master.address} is not connected; no master is connected"
        running.wait_for(expected)


HEADER = ("--identify", "header:X-Api-Key")


@pytest.mark.parametrize(
    ("server", "program", "words", "listen", "options"),
    [
        pytest.param(*case, marks=pytest.mark.needs(needed), id=f"{case[0]} {case[3]} {len(case[4])}")
        for needed, *case in (
            ("nginx-lua", "nginx-lua", "nginx", ("-t", "-p", ".", "-e", "stderr", "-c"), "127.0.0.1", HEADER),
            ("nginx-lua", "nginx-lua", "nginx", ("-t", "-p", ".", "-e", "stderr", "-c"), "[::1]", ()),
            ("nginx", "auth-request", "nginx", ("-t", "-p", ".", "-e", "stderr", "-c"), "127.0.0.1", HEADER),
            ("nginx", "auth-request", "nginx", ("-t", "-p", ".", "-e", "stderr", "-c"), "127.0.0.1", ()),
            ("envoy", "envoy", "envoy", ("--mode", "validate", "-c"), "[::1]", HEADER),
            ("envoy", "envoy", "envoy", ("--mode", "validate", "-c"), "*", ("--rlqs", "master.example:1")),
            ("haproxy", "haproxy", "haproxy", ("-c", "-f"), "[::1]", HEADER),
            ("haproxy", "haproxy", "haproxy", ("-c", "-f"), "*", ("--table", "holds", "--rejection-status", "429")),
        )
    ],
)
def test_servers_accept_the_printed_configuration_without_warnings(tmp_path, server, program, words, listen, options):
    port = free_port()
    site = ("--listen", f"{listen}:{port}", "--origin", "http://[::1]:1", "--domain", 'a"b $x {} \\;ü%')
    place = () if server == "envoy" else ("--socket", "s")
    printed = command("sidecar", "--print-conf", server, *site, *place, *options, folder=tmp_path)
    assert (printed.code, printed.err) == (0, "")
    file = tmp_path / "server.yaml"  # which Envoy reads by its ending
    file.write_text(printed.out, encoding="utf-8")
    checked = subprocess.run(
        [find_program(program), *(tmp_path if word == "." else word for word in words), file],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert checked.returncode == 0, checked.stderr
    assert not re.search("warn|work-in-progress", checked.stderr, re.IGNORECASE)
