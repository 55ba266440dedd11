"""nginx, with Lua or without, as a process with a generated configuration."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from headgate.config import Address
from headgate.origin.sidecar import nginx_conf
from headgate.origin.sidecar.nginx_lua import NginxLua
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
        expected = {("workers", workers), ("instances", instances)}
        self.until(lambda: expected <= self.plane.details().items(), f"{workers} workers")


class Nginx:
    """A running nginx with a configuration."""

    def __init__(self, folder: Path, port: int, text: str, user: str | None) -> None:
        self.port = port
        self.log = folder / f"nginx-{port}.log"
        file = folder / f"nginx-{port}.conf"
        file.write_text(text)
        # The log before a configuration is read would be a file that only root may write.
        self._command = [find_program("nginx") or "nginx", "-p", str(folder), "-e", "stderr", "-c", str(file)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, user=user)
        wait_for(self.port, self.process)

    def workers(self) -> list[int]:
        """Return the process ids of its workers."""
        text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(number) for number in text.split()]

    def reload(self) -> None:
        """Reload the configuration, by the command that users type."""
        done = subprocess.run([*self._command, "-s", "reload"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def stop(self) -> None:
        """Stop it; kill it and its workers if that takes too long."""
        workers = self.workers()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            for process in (self.process.pid, *workers):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            self.process.wait(PATIENCE)

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
    write: Callable[[Site], str] = nginx_conf.lua_configuration,
    workers: int = 2,
    identify: str | None = None,
    user: str | None = None,
    server: str = "",
    replacements: Mapping[str, str] | None = None,
) -> Iterator[Nginx]:
    """Run nginx with a generated configuration; `server` has more directives, and other texts are replaced."""
    listen = Address("127.0.0.1", free_port())
    text = write(Site(listen=listen, origin=origin, domain="api", socket=str(socket), identify=identify))
    changes = {"worker_processes auto;": f"worker_processes {workers};"}
    if server:
        changes["        client_max_body_size 0;"] = f"        client_max_body_size 0;\n{server}"
    for old, new in (changes | dict(replacements or {})).items():
        assert old in text, old
        text = text.replace(old, new)
    running = Nginx(folder, listen.port, text, user)
    try:
        yield running
    finally:
        running.stop()
