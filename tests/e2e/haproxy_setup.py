"""HAProxy as a process with a generated configuration, and the data plane of its sidecar in this process."""

import re
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headgate.config import Address
from headgate.origin.sidecar.haproxy import HAProxy, encode_end, encode_key
from headgate.origin.sidecar.haproxy_conf import configuration
from headgate.origin.sidecar.site import Site
from tests.e2e.data_plane_setup import PlaneThread
from tests.e2e.programs import PATIENCE, Answer, request
from tests.servers import find_program, free_port, wait_for


class Plane(PlaneThread):
    """The data plane of one HAProxy."""

    def __init__(self, running: "HAProxyProcess", **settings: Any) -> None:
        super().__init__(HAProxy, **{"haproxy": running.site.socket, "table": running.site.table} | settings)
        self._running = running

    def hold_in_table(self, identifier: bytes, seconds: float) -> float:
        """Hold an identifier, and wait until the table has the hold; return the release time."""
        release = self.hold(identifier, seconds)
        key, end = encode_key(identifier), encode_end(release)
        self.until(lambda: self._running.entries().get(key) == end, f"entry of {identifier!r}")
        return release


class HAProxyProcess:
    """A running HAProxy with a generated configuration, in which texts may be replaced by others."""

    def __init__(self, folder: Path, site: Site, replacements: Mapping[str, str]) -> None:
        self.site = site
        self.port = site.listen.port
        self.file = folder / "haproxy.cfg"
        self.log = folder / "haproxy.log"
        text = configuration(site)
        for old, new in replacements.items():
            assert old in text, old
            text = text.replace(old, new)
        self.file.write_text(text)
        program = find_program("haproxy") or "haproxy"
        with self.log.open("ab") as log:
            command = [program, "-db", "-f", str(self.file)]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_for(self.port, self.process)
        deadline = time.monotonic() + PATIENCE
        # It binds its runtime socket last.
        while not self._answers():
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            return bool(self.ask("show version"))
        except OSError:
            return False

    def stop(self) -> None:
        """Kill it, also while it is stopped."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def ask(self, command: str) -> str:
        """Send a command to its runtime socket; return the answer."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(self.site.socket)
            connection.sendall(command.encode() + b"\n")
            answer = b""
            while data := connection.recv(65_536):
                answer += data
        return answer.decode()

    def entries(self) -> dict[str, int]:
        """Return what its table has: the end of each hold by key, without the marks of sidecars."""
        found = re.findall(r" key=(\S+) use=.* gpt0=([0-9]+)", self.ask(f"show table {self.site.table}"))
        return {key: int(end) for key, end in found if ":" not in key}

    def get(self, path: str = "/", method: str = "GET", host: str = "127.0.0.1", **fields: str) -> Answer:
        """Ask it on a connection of its own; return the response with its body read."""
        return request(self.port, path, method, host=host, **fields)

    def output(self) -> str:
        """Return what it has written to stderr."""
        return self.log.read_text(errors="replace")


@contextmanager
def haproxy(
    folder: Path, origin: str, *, replacements: Mapping[str, str] | None = None, **site: Any
) -> Iterator[HAProxyProcess]:
    """Run HAProxy in front of an origin; `site` has more of its `Site`."""
    values = {
        "listen": Address("127.0.0.1", free_port()),
        "origin": origin,
        "domain": "api",
        "socket": str(folder / "admin.sock"),
        "table": "headgate",
    }
    running = HAProxyProcess(folder, Site(**values | site), replacements or {})
    try:
        yield running
    finally:
        running.stop()
