"""Restarts and reloads of a gate under load: no request is lost, and systemd is told of each phase."""

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.e2e import programs
from tests.servers import free_port

HEADGATE = Path(sys.executable).with_name("headgate")


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
            time.sleep(0.004)
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


def http_client(port: int) -> closing[http.client.HTTPConnection]:
    """Give a connection."""
    return closing(http.client.HTTPConnection("127.0.0.1", port, timeout=programs.PATIENCE))


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
        self.log = Path(log.name)
        return process

    def reload(self, process: subprocess.Popen[bytes], pattern: str) -> None:
        """Have a gate reload the file; return when its log has a new line with `pattern`."""
        before, deadline = len(self.log.read_text()), time.monotonic() + programs.PATIENCE
        process.send_signal(signal.SIGHUP)
        while not re.search(pattern, self.log.read_text()[before:], re.MULTILINE):
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)


def is_refused(port: int) -> bool:
    """Return whether nothing listens at a port."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) != 0


def metric(port: int, name: str) -> float:
    """Return the value of a sample of the admin listener at `port`."""
    with http_client(port) as admin:
        admin.request("GET", "/metrics")
        text = admin.getresponse().read().decode()
    return float(re.search(f"^{re.escape(name)} (.*)$", text, re.MULTILINE)[1])


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


@pytest.mark.parametrize("workers", [1, 2])
def test_a_reload_of_any_key_loses_neither_a_request_nor_what_was_counted(tmp_path, origin, workers):
    gates = Gates(tmp_path, origin.url)
    once = '[[domain]]\nname = "once"\npath_prefix = "/once"\nrules = ["1/h burst 1"]\n'
    text = gates.file.read_text().replace("[[domain]]", f"{once}[[domain]]")
    gates.file.write_text(text)
    process = gates.start()
    descriptors, ports, other = Path(f"/proc/{process.pid}/fd"), [gates.port], free_port()
    count = len(list(descriptors.iterdir()))
    with load(gates.port) as found, http_client(gates.port) as client:
        client.request("GET", "/once")
        assert client.getresponse().status == 200
        client.close()
        for number in range(10):
            ports[1:], admin = [free_port()], (gates.admin, other)[number % 2]
            changed = text.replace(
                f'"127.0.0.1:{gates.port}"',
                str([*(f"127.0.0.1:{port}" for port in ports), f"unix:{tmp_path}/{number}.web"]),
            )
            changed = changed.replace(f'"127.0.0.1:{gates.admin}"', f'"127.0.0.1:{admin}"\nmax_delay = 0')
            keys = f'workers = {1 + (workers - 1) * (number % 2)}\ntakeover = "{tmp_path}/{number}.sock"'
            gates.file.write_text(changed.replace("max_delay = 0", f"max_delay = 0\n{keys}"))
            gates.reload(process, "taken over, because of listeners, ")
            with http_client(ports[1]) as new:
                new.request("GET", "/once")
                assert (status := new.getresponse().status) == 503, status
            assert metric(admin, "headgate_config_last_reload_successful") == 1
    children = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    assert len(children) <= (2 * workers if workers > 1 else 0)
    assert set(found) == {200}
    if workers == 1:
        assert metric(admin, 'headgate_requests_total{domain="a",outcome="accepted"}') == found[200]
    assert not Path(f"{tmp_path}/0.sock").exists()
    assert [file.name for file in tmp_path.glob("*.web")] == ["9.web"]
    last = gates.file.read_text()
    for again in (text, last):
        gates.file.write_text(again)
        gates.reload(process, "taken over, because of listeners, ")
        deadline = time.monotonic() + programs.PATIENCE
        while again == text and len(list(descriptors.iterdir())) != count:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    successor = gates.start()  # the socket of the last reload
    assert process.wait(programs.PATIENCE) == 0
    successor.terminate()
    assert successor.wait(programs.PATIENCE) == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)
    assert all(map(is_refused, ports))


def test_a_gate_that_cannot_start_leaves_the_one_in_force(tmp_path, origin):
    gates = Gates(tmp_path, origin.url)
    text = gates.file.read_text()
    process = gates.start()
    with load(gates.port) as found, socket.create_server(("127.0.0.1", 0)) as taken:
        port, new = taken.getsockname()[1], free_port()
        wrong = text.replace(str(gates.admin), str(new))
        listen, log = f'listen = "127.0.0.1:{gates.port}"', '[log]\naccess = "/none/log"'
        for words, rest, error in (
            (f'listen = ["unix:{tmp_path}/s", "127.0.0.1:{port}"]', "", f":{port} is taken by another program"),
            (f'{listen}\ntakeover = "/none/t"', "", "cannot listen at '/none/t'"),
            (f'{listen}\ntakeover = "{tmp_path}/t"', log, "log.access: '/none/log'"),
            (f"{listen}\nworkers = 2", log, "log.access: '/none/log'"),
        ):
            gates.file.write_text(f"{wrong.replace(listen, words)}\n{rest}")
            gates.reload(process, f"{error}.*; the configuration in force stays as it is")
            assert metric(gates.admin, "headgate_config_last_reload_successful") == 0
        assert is_refused(new)
        assert not any((tmp_path / name).exists() for name in "st")
        gates.file.write_text(wrong)
        gates.reload(process, "taken over, because of gate.admin$")
    process.terminate()
    assert process.wait(programs.PATIENCE) == 0
    assert set(found) == {200}


def test_a_reload_after_the_end_is_no_error(tmp_path, origin):
    process = Gates(tmp_path, origin.url).start()
    process.terminate()
    while process.poll() is None:
        process.send_signal(signal.SIGHUP)
        time.sleep(0.001)
    assert process.returncode == 0


def test_sigterm_ends_also_a_gate_that_was_replaced_and_its_workers(tmp_path, origin):
    gates = Gates(tmp_path, origin.url, "workers = 2")
    process = gates.start()
    with socket.create_connection(("127.0.0.1", gates.port)) as slow:
        slow.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n1")
        time.sleep(0.3)
        gates.file.write_text(gates.file.read_text().replace("workers = 2", "workers = 3"))
        gates.reload(process, "taken over, because of gate.workers$")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) > 3
        process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        slow.sendall(b"2345")
        assert slow.recv(1000).startswith(b"HTTP/1.1 200 ")
    assert process.wait(programs.PATIENCE) == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


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
