"""The life-cycle of `headgate proxy`: reload, drain, stop, and its workers."""

import os
import re
import signal
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from headgate.token import new_key
from headgate.token.keys import write_keys
from tests.e2e import programs
from tests.e2e.proxy_setup import proxy

WORKERS = pytest.mark.parametrize("workers", [1, 2])


@WORKERS
def test_sigterm_refuses_new_tunnels_and_waits_for_open_ones(tmp_path, workers):
    with ExitStack() as stack:
        running = stack.enter_context(proxy(tmp_path, "--workers", workers, "--drain", 15))
        clients = [stack.enter_context(running.client()) for _ in range(12)]
        to = f"www.example.org:{running.origin.port}"
        assert clients[0].ask(to).status == 200
        for client in clients[1:]:
            assert client.ask("www.example.org:25").status == 403  # each is in use by now
        running.program.process.send_signal(signal.SIGTERM)
        running.program.until(lambda: cannot_connect(running.port), "end of listening")
        for client in clients[1:]:
            answer = client.ask(to)
            assert (answer.status, answer.reason) == (503, "draining")
            assert 1 <= int(answer.fields["retry-after"]) <= 15
        assert running.program.state()["draining"]
        with pytest.raises(Exception, match="503"):
            running.program.admin("/readyz")
        assert clients[0].echoes(b"still there")
        clients[0].sock.close()
        assert running.program.process.wait(programs.PATIENCE) == 0
        assert "cut" not in running.program.said()


def cannot_connect(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except ConnectionRefusedError:
        return True
    return False


@WORKERS
def test_tunnels_that_outlast_the_drain_are_closed_and_counted(tmp_path, workers):
    with ExitStack() as stack:
        running = stack.enter_context(proxy(tmp_path, "--workers", workers, "--drain", 0.3))
        clients = [stack.enter_context(running.client()) for _ in range(3)]
        for client in clients:
            assert client.ask(f"www.example.org:{running.origin.port}").status == 200
        assert running.program.end() == 0
        assert re.search(r"^headgate: 3 tunnels had not ended and were cut$", running.program.said(), re.MULTILINE)
        assert [client.read_to_end() for client in clients] == [b""] * 3
        (line,) = running.log()
        assert {"event": "tunnels", "accepted": 3}.items() <= line.items()


def test_the_slots_of_a_killed_worker_are_released(tmp_path):
    with proxy(tmp_path, "--workers", 2, "--max-tunnels", 4) as running, ExitStack() as stack:
        to = f"www.example.org:{running.origin.port}"
        tunnels = [stack.enter_context(running.client()) for _ in range(4)]
        assert [client.ask(to).status for client in tunnels] == [200] * 4
        assert running.ask().reason == "tunnels"
        assert running.metrics()["headgate_proxy_tunnels"] == 4  # and all has been told to their parent
        for pid in running.program.children():
            os.kill(pid, signal.SIGKILL)
        running.program.until(lambda: len(ended_workers(running)) == 2, "two that ended")
        running.program.until(lambda: listeners(running.port) == 2, "two that listen")
        again = [stack.enter_context(running.client()) for _ in range(4)]
        assert [client.ask(to).status for client in again] == [200] * 4
        assert running.ask().reason == "tunnels"
        assert len(running.origin.asked) == 1  # their parent remembers
        counts = running.metrics()
        assert counts['headgate_proxy_connects_total{result="accepted"}'] == 8
        assert counts['headgate_proxy_connects_total{result="tunnels"}'] == 2


def ended_workers(running):
    return re.findall(
        r"^headgate: warning: worker \d+ ended \(SIGKILL\); another one starts in", running.program.said(), re.M
    )


def listeners(port):
    """How many sockets listen at a port of loopback."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1] == f"0100007F:{port:04X}" and row[3] == "0A" for row in rows)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_signal_during_the_start_leaves_nothing_behind(tmp_path):
    words = ("proxy", "--self-signed", "--listen", "127.0.0.1:0", "--workers", 2)
    with programs.headgate(tmp_path, *words) as running:
        running.until(running.children, "worker")
        workers = running.children()
        assert running.end() == 0
        assert not any(is_running(pid) for pid in workers)
    assert list(tmp_path.glob("headgate-*/")) == []


@WORKERS
def test_sighup_reads_the_files_again_or_leaves_all_as_it_is(tmp_path, workers):
    keys = tmp_path / "key.json"
    keys.write_bytes(write_keys([new_key(entropy=os.urandom)]))
    with proxy(tmp_path, "--token-key", keys, "--workers", workers) as running:
        first = certificates(running)
        assert len(first) == 1
        issued = running.origin.authority.issue_cert("localhost", "127.0.0.1")
        issued.cert_chain_pems[0].write_to_path(str(tmp_path / "proxy.pem"))
        issued.private_key_pem.write_to_path(str(tmp_path / "proxy.key"))
        keys.write_text("no key\n")
        running.program.process.send_signal(signal.SIGHUP)
        running.program.wait_for(
            r"^headgate: \S+key.json: invalid key file.*; the configuration in force stays as it is$"
        )
        assert certificates(running) == first
        keys.write_bytes(write_keys([new_key(entropy=os.urandom)]))
        running.program.process.send_signal(signal.SIGHUP)
        running.program.wait_for(r"^headgate: the certificate and the token keys read again$")
        running.program.until(lambda: first.isdisjoint(certificates(running)), "new certificate")


def certificates(running):
    """The certificates that are shown, as often as it takes to meet every worker."""
    shown = set()
    for _ in range(8):
        with running.client() as client:
            shown.add(client.sock.getpeercert(binary_form=True))
    return shown
