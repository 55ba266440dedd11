"""`headgate serve` as a process in front of a real origin: requests, output, reload and stop."""

import hashlib
import itertools
import json
import re
import resource
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.e2e import programs

RULE = ["--rule", "1/min burst 3"]


@pytest.fixture(scope="module")
def gate(tmp_path_factory):
    """A gate that tests share: each has clients of its own."""
    with (
        programs.origin() as origin,
        programs.gate(
            tmp_path_factory.mktemp("gate"), "--origin", origin.url, *RULE, "--identify", "header:X-Key"
        ) as running,
    ):
        running.origin = origin
        yield running


def test_rule_limits_requests_to_the_origin(gate):
    accepted, delayed, rejected = gate.totals()
    assert gate.statuses(5, "/limited", X_Key="limited") == [200, 200, 200, 503, 503]
    assert gate.origin.seen.count("/limited") == 3
    refusal = gate.get(X_Key="limited")
    assert 50 <= int(refusal.headers["Retry-After"]) <= 60
    assert refusal.headers["RateLimit-Policy"] == '"default";q=3;w=180'
    assert gate.totals() == (accepted + 3, delayed, rejected + 3)
    held = {one["identifier"]: one["seconds"] for one in gate.state()["domains"][0]["held"]}
    assert 0 < held[f"sha256:{hashlib.sha256(b'=limited').hexdigest()[:16]}"] <= 60


# Configuration


FILE = """\
[gate]
origin = "{origin}"
max_delay = 0
[[domain]]
name = "prefetch"
rules = ["1/min burst 1"]
header = "Sec-Purpose"
value = "prefetch"
[[domain]]
name = "default"
rules = ["1/min burst {burst}"]
[[advice]]
user_agent = "prefetch-proxy"
fraction = 0.5
"""


@pytest.fixture
def file(tmp_path, origin):
    path = tmp_path / "gate.toml"
    path.write_text(FILE.format(origin=origin.url, burst=2))
    return path


@pytest.mark.parametrize("workers", [1, 3])
def test_sighup_releases_nobody_whom_the_new_rules_hold(tmp_path, file, origin, workers):
    with programs.gate(tmp_path, "--config", file, "--workers", workers) as gate:
        assert gate.get(Sec_Purpose="prefetch").status == 200
        gate.until(lambda: gate.get(Sec_Purpose="prefetch").status == 503, "hold")
        assert gate.statuses(2) == [200, 200]
        gate.until(lambda: gate.get().status == 503, "hold")
        text = FILE.format(origin=origin.url, burst=60)
        file.write_text(text.replace('header = "Sec', 'exempt = ["192.0.2.1"]\nheader = "Sec'))
        gate.process.send_signal(signal.SIGHUP)
        gate.wait_for(r"read again; domains changed: prefetch \(exempt\), default \(rules\); nothing was forgotten$")
        gate.until(lambda: gate.state()["domains"][1]["rules"] == ["1/min burst 60"], "new rule")
        # Every worker has received the hold, whether it has seen such a request or not.
        assert gate.statuses(6, Sec_Purpose="prefetch") == [503] * 6
        # The holds of before are kept until the master has sent those of the new rules to each worker.
        gate.until(lambda: gate.statuses(6) == [200] * 6, "release")
        assert gate.statuses(6, Sec_Purpose="prefetch") == [503] * 6


@pytest.mark.parametrize("workers", [1, 2])
def test_a_restart_gives_no_new_burst(tmp_path, file, workers):
    words, snapshot = ["--config", file, "--workers", workers], tmp_path / "gate.snapshot"
    with programs.gate(tmp_path, *words) as gate:
        assert gate.statuses(2) == [200, 200]
        gate.until(lambda: gate.get().status == 503, "hold")
        assert gate.end() == 0
    assert snapshot.stat().st_mode & 0o777 == 0o600
    with programs.gate(tmp_path, *words) as gate:
        gate.wait_for(r"^headgate: snapshot \S+gate\.snapshot: 1 histories restored, saved \d+ s ago$")
        assert gate.statuses(3) == [503] * 3
        assert gate.end() == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_drains_requests_and_accepts_no_more(tmp_path, origin, workers):
    with programs.gate(tmp_path, "--origin", origin.url, *RULE, "--workers", workers) as gate:
        port = gate.port
        answers = []
        asking = threading.Thread(target=lambda: answers.append(gate.get("/slow").status))
        asking.start()
        assert origin.arrived.wait(programs.PATIENCE)
        gate.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + programs.PATIENCE
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
            except OSError:
                break
        else:
            pytest.fail("it still accepts connections")
        origin.hold.set()
        assert gate.process.wait(programs.PATIENCE) == 0
        asking.join()
        assert answers == [200]


@pytest.mark.parametrize("workers", [1, 2])
def test_sigint_stops_and_a_second_signal_stops_at_once(tmp_path, origin, workers):
    with programs.gate(tmp_path, "--origin", origin.url, *RULE, "--workers", workers) as gate:
        assert gate.end(signal.SIGINT) == 0
        assert "Traceback" not in gate.said()
    with (
        programs.gate(tmp_path, "--origin", origin.url, *RULE, "--workers", workers) as gate,
        socket.create_connection(("127.0.0.1", gate.port)) as plain,
    ):
        plain.sendall(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
        assert origin.arrived.wait(programs.PATIENCE)
        gate.process.send_signal(signal.SIGTERM)
        gate.until(lambda: gate.readyz() == "draining\n", "draining")
        assert gate.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("flag", ["--listen", "--admin"])
def test_port_in_use_is_one_line_and_leaves_nothing(tmp_path, flag, workers):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        addresses = {"--listen": "127.0.0.1:0", "--admin": "127.0.0.1:0"}
        addresses[flag] = f"127.0.0.1:{taken.getsockname()[1]}"
        words = [word for pair in addresses.items() for word in pair]
        code, said = programs.refused(
            tmp_path, "serve", "--origin", "http://127.0.0.1:1", *RULE, *words, "--workers", workers
        )
    what_next = f"stop that one, or choose another address with {flag}"
    assert (code, said) == (2, f"headgate: {addresses[flag]} is taken by another program; {what_next}\n")


# Workers


def test_workers_share_one_master_and_the_admin_sums_them(tmp_path, origin):
    with programs.gate(tmp_path, "--origin", origin.url, "--rule", "1/min burst 20", "--workers", 2) as gate:
        assert len(gate.children()) == 2
        statuses = gate.statuses(40)
        accepted = statuses.count(200)
        # What is on its way to the master while a neighbour decides may pass.
        assert 20 <= accepted <= 25
        assert gate.totals() == (accepted, 0, 40 - accepted)
        assert gate.state()["workers"] == 2
        assert len(origin.seen) == accepted


@pytest.mark.parametrize("workers", [1, 2])
def test_limit_of_open_files_is_raised(tmp_path, origin, workers):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    words = ("serve", "--listen", "127.0.0.1:0", "--origin", origin.url, *RULE, "--workers", workers)
    with programs.headgate(tmp_path, *words, "--admin", "127.0.0.1:0", files=(256, hard)) as gate:
        assert gate.ready
        for pid in (gate.process.pid, *gate.children()):
            assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (hard, hard)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_few_descriptors_lower_the_number_of_connections_and_reset_none(tmp_path, origin, loop):
    (tmp_path / "gate.toml").write_text(f'[gate]\norigin = "{origin.url}"\nloop = "{loop}"\n')
    words = ("serve", "--config", "gate.toml", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", *RULE)
    with programs.headgate(tmp_path, *words, files=(80, 80)) as gate:
        gate.wait_for("bounds.connections is 8 instead of 10000: the limit of open files is 80")
        clients = []
        for _ in range(100):
            clients.append(socket.create_connection(("127.0.0.1", gate.port)))
            clients[-1].sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert clients[-1].recv(999).startswith((b"HTTP/1.1 200", b"HTTP/1.1 503"))
        for client in clients:
            client.close()


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_want_of_descriptors_is_logged_once(tmp_path, origin, loop):
    (tmp_path / "gate.toml").write_text(f'[gate]\norigin = "{origin.url}"\nloop = "{loop}"\n')
    with programs.headgate(tmp_path, "serve", "--config", "gate.toml", "--listen", "127.0.0.1:0", *RULE) as gate:
        gate.wait_for("^ready ")
        used = {int(path.name) for path in Path(f"/proc/{gate.process.pid}/fd").iterdir()}
        free = next(number for number in itertools.count() if number not in used)
        _, hard = resource.prlimit(gate.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(gate.process.pid, resource.RLIMIT_NOFILE, (free, hard))
        with socket.create_connection(("127.0.0.1", gate.port)):
            gate.wait_for(f"no file descriptor is left, of {free}: new connections wait, or are reset")
            resource.prlimit(gate.process.pid, resource.RLIMIT_NOFILE, (hard, hard))
            assert gate.statuses(1) == [200]
        assert len(gate.said().partition("\nready ")[2].splitlines()) == 2


def test_bus_of_the_workers_is_removed(tmp_path, origin):
    with programs.gate(tmp_path, "--origin", origin.url, *RULE, "--workers", 2) as gate:
        (folder,) = tmp_path.glob("headgate-*/")
        assert folder.stat().st_mode & 0o077 == 0
        assert gate.end() == 0
    assert not folder.exists()


# A master elsewhere


def test_a_killed_gate_changes_nothing_at_the_other_and_its_successor_obeys_the_hold(tmp_path, origin):
    with programs.headgate(
        tmp_path, "master", "--listen", "127.0.0.1:0", "--domain", "default=1/min burst 2"
    ) as master:
        words = ["--origin", origin.url, "--master", master.ready["address"]]
        with programs.gate(tmp_path, *words) as other:
            with programs.gate(tmp_path, *words) as killed:
                assert killed.statuses(2) == [200, 200]
                other.until(lambda: other.state()["domains"][0]["held"], "hold")
                killed.process.kill()
                killed.process.wait()
            assert other.statuses(2) == [503, 503]
            with programs.gate(tmp_path, *words) as successor:
                successor.until(lambda: successor.get().status == 503, "hold")
                assert other.statuses(1) == [503]


# The demonstration


def test_commands_of_the_demonstration_work(tmp_path):
    with programs.gate(tmp_path, "--demo") as demo:
        text = demo.out.read_text()
        assert demo.ready["address"] in text
        assert demo.ready["admin"] in text
        lines = [line.strip() for line in text.splitlines() if line.strip().startswith("curl ")]
        assert len(lines) == 3
        waited, rejected, state = (
            subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True).stdout for line in lines
        )
        assert waited.count("200 after ") == 6
        assert rejected.startswith("HTTP/1.1 200 OK")
        assert "HTTP/1.1 503 Service Unavailable" in rejected
        assert "retry-after: " in rejected
        assert "ratelimit-policy: " in rejected
        domains = {domain["name"]: domain for domain in json.loads(state)["domains"]}
        assert domains["queue"]["delayed"] >= 1
        assert domains["default"]["rejected"] >= 1
        page = demo.get("/queue", Accept="text/html")
        assert b"You are through" in page.body
        assert demo.end(signal.SIGINT) == 0


STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


@pytest.mark.parametrize("form", ["text", "json"])
def test_every_line_of_the_log_has_time_and_level(tmp_path, form):
    words = ["--origin", "http://127.0.0.1:1", "--rule", "9/s burst 9", "--log-format", form, "--workers", 2]
    with programs.headgate(tmp_path, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", *words) as gate:
        gate.wait_for("^ready ")
        port = re.search(r"^ready http://127\.0\.0\.1:(\d+)$", gate.said(), re.MULTILINE)[1]
        assert programs.request(int(port)).status == 502
        gate.wait_for(r"requests fail \(unreachable 1\)")
        assert gate.end() == 0
    *lines, _ = gate.log.read_text().split("\n")
    ready = [line for line in lines if re.fullmatch(r"ready http://127\.0\.0\.1:\d+", line)]
    others = [line for line in lines if line not in ready]
    if form == "text":
        found = [re.fullmatch(rf"{STAMP} (info|warning) headgate: (.*)", line).groups() for line in others]
    else:
        listed = [json.loads(line) for line in others]
        assert all(re.fullmatch(STAMP, one["time"]) and one["instance"] == socket.gethostname() for one in listed)
        found = [(one["level"], one["message"]) for one in listed]
    assert len(ready) == 1
    assert [(level, message.partition(":")[0].split()[0]) for level, message in found] == [
        ("info", "origin"), ("warning", "origin"), ("info", "draining"), ("info", "stopped"),
    ]  # fmt: skip
