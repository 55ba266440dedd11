"""Restarts and reloads of a gate under load: no request is lost, and systemd is told of each phase."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e import programs

HEADGATE = Path(sys.executable).with_name("headgate")


@pytest.fixture
def origin() -> Iterator[programs.Origin]:
    with programs.origin() as running:
        yield running


@contextmanager
def load(port: int) -> Iterator[Counter[object]]:
    """Send GET and POST over kept and over new connections while inside; count statuses and errors."""
    found: Counter[object] = Counter()
    ended = threading.Event()

    def send(method: str, *, keep: bool) -> None:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=programs.PATIENCE)
        while not ended.is_set():
            try:
                client.request(method, "/", b"x" * 1000 if method == "POST" else None)
                with client.getresponse() as response:
                    response.read()
                found[response.status] += 1
            except (OSError, http.client.HTTPException) as error:
                found[method, keep, repr(error)] += 1
                client.close()
            if not keep:
                client.close()  # it connects again by itself, as after Connection: close
            time.sleep(0.001)
        client.close()

    threads = [
        threading.Thread(target=send, args=(method,), kwargs={"keep": keep})
        for method in ("GET", "POST")
        for keep in (True, True, False)
    ]
    for thread in threads:
        thread.start()
    try:
        yield found
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


class Gates:
    """Starts gates with one file, at one address, as the system or its operator does."""

    def __init__(self, folder: Path, origin: str, *keys: str) -> None:
        self.folder, self.port, self.admin = folder, free_port(), free_port()
        self.file = folder / "gate.toml"
        address = f'listen = "127.0.0.1:{self.port}"\nadmin = "127.0.0.1:{self.admin}"\norigin = "{origin}"'
        rules = '[[domain]]\nname = "a"\nrules = ["100000/s burst 100000"]'
        self.file.write_text("\n".join(["[gate]", address, *keys, rules]))

    def start(self, sock: socket.socket | None = None, **environ: str) -> subprocess.Popen[bytes]:
        """Start a gate, which inherits `sock` as from systemd; return when it is ready."""
        with (self.folder / f"{time.time_ns()}.err").open("w+b") as log:
            inherit = "" if sock is None else f"exec 3<&{sock.fileno()};"
            command = f"export LISTEN_PID=$$; {inherit} exec {HEADGATE} serve --config {self.file}"
            variables = os.environ | environ | ({} if sock is None else {"LISTEN_FDS": "1", "LISTEN_FDNAMES": "web"})
            files = [] if sock is None else [sock.fileno()]
            process = subprocess.Popen(["bash", "-c", command], stderr=log, env=variables, pass_fds=files)
            deadline = time.monotonic() + programs.PATIENCE
            while b"ready http" not in (said := Path(log.name).read_bytes()):
                assert process.poll() is None, said.decode()
                assert time.monotonic() < deadline, said.decode()
                time.sleep(0.02)
        return process


@pytest.mark.parametrize("count", [1, pytest.param(20, marks=pytest.mark.deep)])
@pytest.mark.parametrize("workers", [1, 2])
def test_takeovers_and_reloads_lose_no_request(tmp_path, origin, workers, count):
    gates = Gates(tmp_path, origin.url, f'takeover = "{tmp_path}/t.sock"', f"workers = {workers}")
    process = gates.start()
    with load(gates.port) as found:
        for _ in range(count):
            successor = gates.start()
            assert process.wait(programs.PATIENCE) == 0
            process = successor
            process.send_signal(signal.SIGHUP)
            time.sleep(0.2)
        with http_client(gates.admin) as admin:
            admin.request("GET", "/readyz")
            assert admin.getresponse().status == 200
    process.terminate()
    assert process.wait(programs.PATIENCE) == 0
    assert set(found) == {200}
    assert found[200] > 20 * count


@pytest.mark.parametrize("count", [1, pytest.param(20, marks=pytest.mark.deep)])
def test_restarts_with_the_socket_of_systemd_lose_no_request(tmp_path, origin, count):
    gates = Gates(tmp_path, origin.url)
    with socket.create_server(("127.0.0.1", gates.port), backlog=1024) as kept:
        process = gates.start(kept)
        with load(gates.port) as found:
            for _ in range(count):
                time.sleep(0.3)
                process.terminate()
                assert process.wait(programs.PATIENCE) == 0
                process = gates.start(kept)
            time.sleep(0.3)
        process.terminate()
        assert process.wait(programs.PATIENCE) == 0
    assert set(found) == {200}
    assert found[200] > 20 * count


def test_systemd_is_told_of_each_phase_while_a_load_balancer_has_time_to_notice(tmp_path, origin):
    gates = Gates(tmp_path, origin.url, "drain_delay = 1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(programs.PATIENCE)

        def wait_for(start: bytes) -> None:
            while not manager.recv(1000).startswith(start):
                pass

        process = gates.start(NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="200000")
        wait_for(b"READY=1\nSTATUS=ready")
        for _ in range(2):
            wait_for(b"WATCHDOG=1")
        process.send_signal(signal.SIGHUP)
        wait_for(b"RELOADING=1\nMONOTONIC_USEC=")
        wait_for(b"READY=1\nSTATUS=ready")
        with http_client(gates.port) as kept, http_client(gates.admin) as admin, http_client(gates.port) as new:
            kept.request("GET", "/")
            assert kept.getresponse().read() == b"ok\n"
            process.terminate()
            wait_for(b"STOPPING=1\nSTATUS=draining")
            admin.request("GET", "/readyz")
            assert (answer := admin.getresponse()).status == 503
            assert answer.read() == b"draining\n"
            for client in (kept, new):
                client.request("GET", "/")
                assert client.getresponse().getheader("Connection") == "close"
        assert process.wait(programs.PATIENCE) == 0


@pytest.mark.needs("systemd-socket-activate")
def test_a_socket_is_activated_and_another_one_is_an_error(tmp_path, origin):
    gates = Gates(tmp_path, origin.url)
    for port in (gates.port, free_port()):
        command = ["systemd-socket-activate", "-l", f"127.0.0.1:{port}", HEADGATE, "serve", "--config", gates.file]
        with (tmp_path / "err").open("w+b") as log:
            process = subprocess.Popen(command, stderr=log)
            deadline = time.monotonic() + programs.PATIENCE
            while b"Listening" not in Path(log.name).read_bytes():
                assert time.monotonic() < deadline
                time.sleep(0.02)
            with socket.create_connection(("127.0.0.1", port)) as client:  # starts the gate
                client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                if port == gates.port:
                    assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
                    process.terminate()
                assert process.wait(programs.PATIENCE) == (0 if port == gates.port else 2)
            if port != gates.port:
                assert f"at ('127.0.0.1', {port}), where no listener is; set gate.listen" in Path(log.name).read_text()


@contextmanager
def http_client(port: int) -> Iterator[http.client.HTTPConnection]:
    """Give a connection."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=programs.PATIENCE)
    try:
        yield client
    finally:
        client.close()
