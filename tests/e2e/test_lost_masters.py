"""All of several masters are killed, stopped and cut off at once: no program crashes, and no request fails.

libzmq 4.3.5 crashes if an option of a connected socket changes while its connections end (docs/decisions/bus.md).
"""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from headgate.link.curve import new_key_pair
from tests.e2e import lost_masters, programs
from tests.e2e.fault_system import port_pair
from tests.servers import ROOT

CHECK = b"GET /check/default?identify=client-address HTTP/1.1\r\nX-Headgate-Address: 192.0.2.1\r\n\r\n"
CASES = {"killed": 1.0, "stopped": 5.0, "cut off": 5.0}
"""How the masters are lost, and for how many seconds: heartbeats notice a silent loss within 4."""


@contextmanager
def helper(kind, plan):
    """Run a program of lost_masters.py until the end of the block."""
    words = [sys.executable, "-m", lost_masters.__name__, kind, json.dumps(plan)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()


class Group:
    """Some masters behind a relay, and the programs that list them: as many gates, sidecars and middlewares each."""

    def __init__(self, folder, running, origin, *, masters, keys, count):
        folder.mkdir()
        self.failures, self._ended = [], threading.Event()
        self._subscriptions = 2 * 3 * count * masters  # of each link and master: to the domain, and for its holds
        plan = {"server": [], "client": []} if keys else {}
        words = []
        for name in plan:
            pair = new_key_pair()
            plan[name] = [pair.public.decode(), pair.secret.decode()]
            (folder / name).write_bytes(pair.secret_file())
        if keys:
            words = ["--curve-key", folder / "client", "--curve-server", plan["server"][0]]
        real, relayed = ([port_pair() for _ in range(masters)] for _ in range(2))
        self._plan = {**plan, "ports": real}
        self._masters = ExitStack()
        running.enter_context(self._masters)
        self._start()
        ports = [(port + each, to + each) for port, to in zip(relayed, real, strict=True) for each in (0, 1)]
        self._relay = running.enter_context(helper("relay", {"ports": ports}))
        for port in relayed:
            words += ["--master", f"127.0.0.1:{port}"]
        there = {**plan, "ports": relayed, "count": count}
        self._middlewares = running.enter_context(helper("middlewares", there))
        own = ("--domain", "default", *words, "--auth-request")
        self._sockets = [folder / f"{number}.sock" for number in range(count)]
        self._programs = [running.enter_context(programs.headgate(folder, "sidecar", *own, s)) for s in self._sockets]
        named = (str(word).replace("127.0.0.1", "tcp://127.0.0.1") for word in words)
        gate = ("--origin", origin, "--workers", count, *named)
        self._gate = running.enter_context(programs.gate(folder, *gate))
        self._programs.append(self._gate)
        assert all(program.ready for program in self._programs)
        self.await_connections()
        self._load = threading.Thread(target=self._ask)
        self._load.start()
        running.callback(self._ended.set)

    def _start(self):
        self._server, self._before = self._masters.enter_context(helper("masters", self._plan)), 0

    def _count(self):
        print(file=self._server.stdin, flush=True)
        return int(self._server.stdout.readline())

    def await_connections(self):
        """Wait until every link has subscribed to every master."""
        self._gate.until(lambda: self._count() >= self._before + self._subscriptions, "subscriptions")
        self._before = self._count()

    def _ask(self):
        """Send requests to the gate and the sidecars."""
        while not self._ended.wait(lost_masters.PAUSE):
            try:
                status = self._gate.get().status
                self.failures += [status] if status != 200 else []
                for path in self._sockets:
                    with closing(socket.socket(socket.AF_UNIX)) as nginx:
                        nginx.settimeout(programs.PATIENCE)
                        nginx.connect(str(path))
                        nginx.sendall(CHECK)
                        answer = nginx.recv(1_000)
                        self.failures += [answer] if not answer.startswith(b"HTTP/1.1 204") else []
            except OSError as error:
                self.failures.append(error)

    def lose(self, how):
        """Lose all masters at once."""
        if how == "killed":
            self._masters.close()
        else:
            (self._server if how == "stopped" else self._relay).send_signal(signal.SIGSTOP)

    def restore(self, how):
        """Have them back."""
        if how == "killed":
            self._start()
        else:
            (self._server if how == "stopped" else self._relay).send_signal(signal.SIGCONT)

    def check(self):
        """Assert that every program runs still, and that no request has failed."""
        self._ended.set()
        self._load.join()
        assert self.failures == []
        for program in self._programs:
            assert program.process.poll() is None
            assert "SIG" not in program.said(), program.said()
        assert self._middlewares.poll() is None
        statuses = json.loads(self._middlewares.communicate("")[0])
        assert statuses.keys() == {"200"}, statuses


SHORT = [(2, False), (3, True)]
ALL = [(2, False), (2, True), (3, False), (3, True)]


@pytest.mark.parametrize(
    ("groups", "count", "rounds"),
    [
        (SHORT, 2, ["killed", "killed", "stopped"]),
        # 20 rounds of each case and kind of program: four programs of each at a time.
        pytest.param(ALL, 4, list(CASES) * 5, marks=pytest.mark.deep),
    ],
    ids=["three rounds", "20 rounds"],
)
def test_the_loss_of_all_masters_crashes_no_program_and_fails_no_request(tmp_path, groups, count, rounds):
    with programs.origin() as origin, ExitStack() as running:
        made = [
            Group(Path(tmp_path / f"{masters}-{keys}"), running, origin.url, masters=masters, keys=keys, count=count)
            for masters, keys in groups
        ]
        for how in rounds:
            for group in made:
                group.lose(how)
            time.sleep(CASES[how])
            for group in made:
                group.restore(how)
            for group in made:
                group.await_connections()
        for group in made:
            group.check()
