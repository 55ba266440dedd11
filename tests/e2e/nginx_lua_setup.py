"""nginx with Lua as a process, and the data plane of its sidecar in this process."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from headgate.config import Address
from headgate.origin.sidecar.nginx_lua import NginxLua
from headgate.origin.sidecar.nginx_lua_conf import configuration
from headgate.origin.sidecar.site import Site
from tests.e2e.data_plane_setup import PlaneThread
from tests.e2e.programs import PATIENCE, Answer, request
from tests.servers import find_program, free_port, wait_for

REAL_IP = "set_real_ip_from 127.0.0.1; real_ip_header X-Address;"
"""Directives by which a test chooses the address of its client."""


class Plane(PlaneThread):
    """The data plane of nginx with Lua."""

    def __init__(self, socket: Path, *, clock: Callable[[], float] = time.time, **settings: Any) -> None:
        super().__init__(NginxLua, clock=clock, nginx_lua=str(socket), **settings)

    def until_connected(self, workers: int = 2, instances: int = 1) -> None:
        """Wait until so many workers are connected."""
        expected = {"workers": workers, "instances": instances}
        self.until(lambda: self.plane.details() == expected, f"{workers} workers")


def is_running(process: int) -> bool:
    """Return whether a process exists and has not ended."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {"Z", "X"}


class Nginx:
    """A running nginx with a generated configuration."""

    def __init__(self, folder: Path, site: Site, replacements: Mapping[str, str], user: str | None) -> None:
        self.site = site
        self.port = site.listen.port
        self.file = folder / f"nginx-{self.port}.conf"
        self.log = folder / f"nginx-{self.port}.log"
        self._folder = folder
        self._user = user
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
            process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, user=self._user
            )
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
        """Stop it by a signal; after SIGKILL its workers would live on, so they are killed too."""
        with suppress(ProcessLookupError, FileNotFoundError):
            workers = self.workers() if number == signal.SIGKILL else []
            self.process.send_signal(number)
            for worker in workers:
                os.kill(worker, signal.SIGKILL)
            while any(is_running(worker) for worker in workers):  # they listen until then
                time.sleep(0.005)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.stop(signal.SIGKILL)

    def get(self, path: str = "/", method: str = "GET", body: Any = None, **fields: str) -> Answer:
        """Ask nginx on a connection of its own; return the response with its body read."""
        return request(self.port, path, method, body=body, **fields)

    def output(self) -> str:
        """Return what it has written to stderr."""
        return self.log.read_text(errors="replace")


@contextmanager
def nginx(
    folder: Path,
    socket: Path,
    origin: str,
    *,
    workers: int = 2,
    identify: str | None = None,
    user: str | None = None,
    **replacements: str,
) -> Iterator[Nginx]:
    """Run nginx with a generated configuration; `server` has more directives, and other texts are replaced."""
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
    running = Nginx(folder, site, changes | replacements, user)
    try:
        yield running
    finally:
        running.stop()
        running.process.wait(PATIENCE)
