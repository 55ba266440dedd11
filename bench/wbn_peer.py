"""The npm registry's `wbn` as a peer: one Node.js process that stays, so that what it runs is compiled and warm."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

from bench.measure import Absent
from tests import servers

SCRIPT = Path(__file__).with_suffix(".mjs")
PATIENCE = 600.0  # seconds for all that is asked of it, far more than it takes


class Wbn:
    """Asks the process, and waits for its answer."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, what: str, **more: object) -> dict[str, Any]:
        """Have one thing done; gives what the process answers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": what, **more}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def seconds(self, what: str) -> float:
        """Have one thing done, and give the seconds it took."""
        return float(self.ask(what)["seconds"])


@contextmanager
def wbn() -> Iterator[Wbn]:
    """Start the process, and end it; raises `Absent` where it is not installed."""
    if not servers.is_present("node-wbn"):
        raise Absent("wbn is not installed; `make servers` brings it")
    program = servers.find_program("node") or "node"
    command = [program, str(SCRIPT), str(servers.NODE_MODULES)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        watch = Timer(PATIENCE, process.kill)
        watch.start()
        try:
            yield Wbn(process)
        finally:
            watch.cancel()
            process.kill()
