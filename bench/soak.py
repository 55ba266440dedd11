"""Load a gate and its master with faults, and see that memory and descriptors stay flat: ``make soak``.

Clients keep connections, leave early, are slow, send large bodies and malformed requests; the origin fails every 20 s,
the master is killed every 45 s, and the gate reloads every 15 s. Exit code 1 if the last quarter of the time needs more
than the second one: 5 % and 4 MB of memory, or 64 descriptors.
"""

import asyncio
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from statistics import median

import psutil

from tests.servers import free_port

RULES = """
[gate]
origin = "http://127.0.0.1:{origin}"
listen = "127.0.0.1:{gate}"
admin = ""
master = "127.0.0.1:{master}"
identify = "header:X-Key"
max_delay = 0.5
workers = 2
[gate.timeouts]
header = 1.0
[limit.concurrency]
max = 64
[[domain]]
name = "default"
rules = ["5/s burst 10"]
"""
CLIENTS = 24
POST = b"POST / HTTP/1.1\r\nHost: a\r\n%sContent-Length: 300000\r\n\r\n" + bytes(300_000)
HEADGATE = [sys.executable, "-m", "headgate"]


class Soak:
    """The state of a run."""

    def __init__(self, folder: Path) -> None:
        self.ports = {name: free_port() for name in ("origin", "gate", "master")}
        (folder / "headgate.toml").write_text(RULES.format(**self.ports))
        self.folder = folder
        self.statuses: Counter[str] = Counter()
        self.samples: list[tuple[float, int]] = []

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        """Start a program of headgate."""
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen([*HEADGATE, *words], cwd=self.folder, stderr=log, stdout=log)

    def start_master(self) -> "subprocess.Popen[bytes]":
        """Start the master, with the rules of the file."""
        return self.start("master", "--config", "headgate.toml", "--listen", f"127.0.0.1:{self.ports['master']}")

    async def client(self) -> None:
        """Send requests of all kinds, on one connection after another."""
        while True:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
                await asyncio.wait_for(self._connection(), 10)
            await asyncio.sleep(random.random() / 20)

    async def _connection(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.ports["gate"])
        try:
            for _ in range(random.randrange(1, 30)):
                kind, key = random.random(), b"X-Key: %d\r\n" % random.randrange(random.choice((8, 2000)))
                if kind < 0.02:
                    writer.write(b"GET / HTTP/9\r\n\x00\r\n\r\n")
                elif kind < 0.04:
                    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n")
                elif kind < 0.08:
                    writer.write(POST % key)
                else:
                    writer.write(b"GET /%d HTTP/1.1\r\nHost: a\r\n%s\r\n" % (random.randrange(2) * 200_000, key))
                if 0.08 < kind < 0.12:
                    return  # the client leaves
                head = await reader.readuntil(b"\r\n\r\n")
                self.statuses[head[9:12].decode()] += 1
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
                await reader.readexactly(length)
                await asyncio.sleep(random.random() / 10)
        finally:
            writer.close()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer as the origin: a small or a large response."""
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0))
                size = 200_000 if head.startswith(b"GET /200000") else 5
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (size, b"x" * size))
                await writer.drain()
        writer.close()

    async def run(self, seconds: float) -> int:
        """Run for a time; return the exit code."""
        master, gate = self.start_master(), self.start("serve")
        origin = await asyncio.start_server(self.answer, "127.0.0.1", self.ports["origin"])
        clients = [asyncio.create_task(self.client()) for _ in range(CLIENTS)]
        start = time.monotonic()
        try:
            for second in range(1, int(seconds) + 1):
                await asyncio.sleep(max(0.0, start + second - time.monotonic()))
                if second % 20 == 0:
                    origin.close()
                elif second % 20 == 3 and not origin.is_serving():
                    origin = await asyncio.start_server(self.answer, "127.0.0.1", self.ports["origin"])
                if second % 45 == 0:
                    master.kill()
                    master.wait()
                    master = self.start_master()
                if second % 15 == 0:
                    gate.send_signal(signal.SIGHUP)
                if second % 5 == 0 or second == int(seconds):
                    family = [psutil.Process(gate.pid), *psutil.Process(gate.pid).children(recursive=True)]
                    memory = sum(one.memory_info().rss for one in family) / 1e6
                    self.samples.append((memory, sum(one.num_fds() for one in family)))
        finally:
            for task in clients:
                task.cancel()
            for process in (gate, master):
                process.terminate()
                process.wait(60)
        return self.report()

    def report(self) -> int:
        """Print the figures; return the exit code."""
        quarter = max(1, len(self.samples) // 4)
        (memory, files), (more, open_files) = (
            (median(one[0] for one in part), median(one[1] for one in part))
            for part in (self.samples[quarter : 2 * quarter] or self.samples, self.samples[-quarter:])
        )
        print(f"responses by status: {dict(self.statuses.most_common())}")
        print(f"memory of the gate, second and last quarter: {memory:.1f} and {more:.1f} MB")
        print(f"descriptors: {files:.0f} and {open_files:.0f}")
        if len(self.samples) < 12:
            print("this is too short to judge whether they stay flat: take a minute or more")
            more, open_files = memory, files
        return int(more > 1.05 * memory + 4 or open_files > files + 64 or not self.statuses["200"])


def main(seconds: str = "900") -> None:
    """Soak for so many seconds."""
    print(f"loading a gate for {seconds} s", flush=True)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        sys.exit(asyncio.run(Soak(Path(folder)).run(float(seconds))))


if __name__ == "__main__":
    main(*sys.argv[1:])
