"""A process at a fixed address that a fault test may stop, kill and start again: any program, or a gate."""

import hashlib
import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tests import servers
from tests.e2e.programs import PATIENCE, request
from tests.forked import PROGRAM, Forked


def until(found: Callable[[], object], what: Callable[[], str], pause: float = 0.01) -> None:
    """Wait until a function returns true; `what` says what is missing otherwise."""
    deadline = time.monotonic() + PATIENCE
    while not found():
        assert time.monotonic() < deadline, what()
        time.sleep(pause)


class Node:
    """A program at a fixed address. A new process of it replaces one that has ended."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        *,
        port: int,
        announces: bool = True,
        process: "subprocess.Popen[bytes] | Forked | None" = None,
    ) -> None:
        self.name = name
        self.port = port
        self._command = list(command)
        self._log = folder / f"{name}.log"
        self._announces = announces
        self._process = process
        self._starts = 0

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has a process."""
        return self._process is not None

    def said(self) -> str:
        """Return what all its processes have written."""
        return self._log.read_text(errors="replace")

    def launch(self) -> None:
        """Start a process."""
        assert self._process is None, f"{self.name} runs"
        with self._log.open("ab") as log:
            if self._command[: len(PROGRAM)] == PROGRAM:
                self._process = Forked(self._command[len(PROGRAM) :], Path.cwd(), log.fileno(), log.fileno())
            else:
                self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait_until_ready(self) -> None:
        """Wait until the process serves."""
        assert self._process is not None
        if not self._announces:
            servers.wait_for(self.port, self._process)
            return
        process = self._process

        def is_ready() -> bool:
            assert process.poll() is None, f"{self.name} ended: {self.said()}"
            return len(re.findall(r"^ready ", self.said(), re.MULTILINE)) > self._starts

        until(is_ready, lambda: f"{self.name} is not ready: {self.said()}")
        self._starts += 1

    def start(self) -> None:
        """Start a process, and wait until it serves."""
        self.launch()
        self.wait_until_ready()

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End the process with a signal."""
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(PATIENCE)
        self._process = None

    def restart(self) -> None:
        """Kill the process, and start another."""
        self.kill()
        self.start()

    def freeze(self) -> None:
        """Stop the process with SIGSTOP: its connections stay, and it reads nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Have the process continue."""
        os.kill(self.pid, signal.SIGCONT)

    def open_files(self) -> int:
        """Return the number of its file descriptors."""
        return int(psutil.Process(self.pid).num_fds())

    def children(self) -> list[int]:
        """Return the ids of its child processes, such as workers, in ascending order."""
        return sorted(child.pid for child in psutil.Process(self.pid).children())

    def close(self) -> None:
        """End the process, if one runs, whatever its state."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self.thaw()
            self._process.terminate()
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


class GateNode(Node):
    """A gate."""

    def get(self, path: str, client: str) -> int:
        """Return the status of a request on a connection of its own."""
        return request(self.port, path, X_Client=client).status

    def state(self) -> Any:
        """Return the value of /api/state."""
        admin = re.findall(r" admin (http\S+)$", self.said(), re.MULTILINE)[-1]
        with urllib.request.urlopen(f"{admin}/api/state", timeout=PATIENCE) as response:
            return json.loads(response.read())

    def holds(self, domain: str, client: str) -> bool:
        """Return whether an identifier is among the ten that are held longest."""
        [found] = [each for each in self.state()["domains"] if each["name"] == domain]
        digest = hashlib.sha256(b"=" + client.encode()).hexdigest()[:16]
        return any(held["identifier"] == f"sha256:{digest}" for held in found["held"])
