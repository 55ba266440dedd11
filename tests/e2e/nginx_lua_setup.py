"""nginx with Lua as a process, and the data plane of its sidecar in this process, which tests command directly."""

import asyncio
import http.client
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from headgate.config import Address
from headgate.config.tree import Sidecar
from headgate.limit import Accounting, DelayUntil, Gatekeeper
from headgate.origin import Rejections
from headgate.origin.sidecar.nginx_lua import NginxLua
from headgate.origin.sidecar.nginx_lua_conf import configuration
from headgate.origin.sidecar.site import Site
from headgate.release import Status
from tests.e2e.programs import PATIENCE, Answer
from tests.servers import find_program, free_port, wait_for

REAL_IP = "set_real_ip_from 127.0.0.1; real_ip_header X-Address;"
"""Directives by which a test chooses the address of its client."""


class Plane:
    """The data plane in an event loop of its own thread; remembers the verdicts that it receives."""

    def __init__(self, socket: Path, *, clock: Callable[[], float] = time.time, **settings: Any) -> None:
        options: dict[str, Any] = {"nginx_lua": str(socket), "domain": "api", "max_hold": 3_600.0} | settings
        self.settings = Sidecar(**options)
        self.verdicts: list[Accounting] = []
        self.gatekeeper = Gatekeeper(self._account, max_hold=self.settings.max_hold)
        self.messages: list[str] = []
        self.plane = NginxLua(
            gatekeeper=self.gatekeeper,
            rejections=Rejections(status=self.settings.rejection_status),
            settings=self.settings,
            domains=self.settings.domains,
            log=self.messages.append,
            clock=clock,
        )
        self._clock = clock
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def _account(self, accounting: Accounting, _now: float) -> None:
        self.verdicts.append(accounting)

    def __enter__(self) -> Self:
        self._thread.start()
        self.run(self.plane.start)
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.plane.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function or a coroutine function in the loop; return its result."""

        async def call() -> Any:
            result = function(*arguments)
            return await result if asyncio.iscoroutine(result) else result

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(PATIENCE)

    def hold(self, identifier: bytes, seconds: float, domain: str = "api") -> float:
        """Hold an identifier for so many seconds; return the release time. It is in force a moment later."""
        now = self._clock()
        control = DelayUntil(domain, identifier, now + seconds)

        def obey() -> None:
            self.gatekeeper.obey(control, now=now)
            self.plane.hold(control, now=now)

        self.run(obey)
        return control.release

    def until(self, condition: Callable[[], Any], what: str = "condition") -> Any:
        """Wait until the condition is true; return its value."""
        deadline = time.monotonic() + PATIENCE
        while not (value := condition()):
            assert time.monotonic() < deadline, f"no {what}: {self.plane.details()} {self.plane.counters()}"
            time.sleep(0.005)
        return value

    def until_connected(self, workers: int = 2) -> None:
        """Wait until so many workers are connected, and all holds were sent."""
        self.until(lambda: self.plane.details()["workers"] == workers, f"{workers} workers")
        time.sleep(0.05)

    def statuses(self) -> list[Status]:
        """Return the verdicts so far."""
        return [verdict.status for verdict in self.verdicts]


class Nginx:
    """A running nginx with a generated configuration."""

    def __init__(self, folder: Path, site: Site, replacements: Mapping[str, str]) -> None:
        self.site = site
        self.port = site.listen.port
        self.file = folder / f"nginx-{self.port}.conf"
        self.log = folder / f"nginx-{self.port}.log"
        self._folder = folder
        self.write(replacements)
        self.process = self._start()

    def write(self, replacements: Mapping[str, str]) -> None:
        """Write the configuration; texts in it are replaced by others."""
        text = configuration(self.site)
        for old, new in replacements.items():
            assert old in text, old
            text = text.replace(old, new)
        self.file.write_text(text)

    @staticmethod
    def program() -> str:
        """Return the path of nginx."""
        return find_program("nginx") or "nginx"

    def _command(self, *words: str) -> list[str]:
        return [self.program(), "-p", str(self._folder), "-c", str(self.file), *words]

    def _start(self) -> "subprocess.Popen[bytes]":
        with self.log.open("ab") as log:
            process = subprocess.Popen(self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_for(self.port, process)
        return process

    def workers(self) -> list[int]:
        """Return the process ids of its workers."""
        text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(number) for number in text.split()]

    def reload(self) -> None:
        """Reload the configuration, by the command that users type."""
        done = subprocess.run(self._command("-s", "reload"), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def restart(self, number: int = signal.SIGTERM) -> None:
        """Stop it by a signal and start it again."""
        self.stop(number)
        self.process = self._start()

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Stop it by a signal; its workers are killed with it."""
        with suppress(ProcessLookupError, FileNotFoundError):
            workers = self.workers() if number == signal.SIGKILL else []
            self.process.send_signal(number)
            for worker in workers:
                os.kill(worker, signal.SIGKILL)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.stop(signal.SIGKILL)

    def get(self, path: str = "/", method: str = "GET", body: Any = None, **fields: str) -> Answer:
        """Ask nginx on a connection of its own; return the response with its body read."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in fields.items()})
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()

    def output(self) -> str:
        """Return what it has written to stderr."""
        return self.log.read_text(errors="replace")


@contextmanager
def nginx(
    folder: Path, socket: Path, origin: str, *, workers: int = 2, identify: str | None = None, **replacements: str
) -> Iterator[Nginx]:
    """Run nginx with a generated configuration; `server` and `http` are more directives."""
    site = Site(
        listen=Address("127.0.0.1", free_port()),
        origin=origin,
        domain="api",
        socket=str(socket),
        identify=identify,
    )
    changes = {"worker_processes auto;": f"worker_processes {workers};"}
    if "server" in replacements:
        changes["        client_max_body_size 0;"] = replacements.pop("server")
    if "http" in replacements:
        changes["    server_tokens off;"] = replacements.pop("http")
    running = Nginx(folder, site, changes | replacements)
    try:
        yield running
    finally:
        running.stop()
        running.process.wait(PATIENCE)
