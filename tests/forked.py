"""`python -m headgate` within milliseconds: forked from a process that has imported it, and is otherwise as new.

A start takes Python a quarter of a second of processor time, nearly all of it imports, and the tests start hundreds of
servers. tests/unit/cli/test_program.py and the README's commands in test_docs.py start the program itself. As
`__main__` this module is that process: it reads requests from its stdin, a socket, and ends with it.
"""

import atexit
import functools
import importlib
import io
import json
import os
import resource
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

PROGRAM = [sys.executable, "-m", "headgate"]
_ROOT = Path(__file__).parents[1]
_MODULES = (
    *("cryptography.x509", "encodings.idna", "h2.connection", "headgate.cli.master", "headgate.cli.proxy"),
    *("headgate.cli.router", "headgate.cli.serve", "headgate.cli.sidecar", "headgate.observe.admin"),
    *("headgate.proxy.server", "headgate.runtime.asgi_server", "headgate.runtime.gate_server"),
    *("headgate.runtime.master_server", "headgate.runtime.prefetch_proxy_process", "headgate.runtime.router"),
    *("headgate.runtime.prefetch_proxy_server", "headgate.runtime.sidecar", "uvloop"),
)
_REQUEST_SIZE = 65_536
_LOCK = threading.Lock()


class Forked:
    """A child of the process that forks, with the methods of `subprocess.Popen`."""

    returncode: int | None = None

    def __init__(
        self,
        arguments: Sequence[object],
        cwd: Path,
        stdout: int,
        stderr: int,
        *,
        files: tuple[int, int] | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """`files` replaces this process's limits of open files, soft and hard."""
        with open(os.devnull) as stdin:  # noqa: PTH123
            descriptors = [stdin.fileno(), stdout, stderr]
            self.args = [*PROGRAM, *map(str, arguments)]
            files = files or resource.getrlimit(resource.RLIMIT_NOFILE)
            self.pid = _ask([self.args, str(cwd), dict(environment), files], descriptors)

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""
        if self.returncode is None:
            self.returncode = _ask(self.pid)
        return self.returncode

    def wait(self, timeout: float = float("inf")) -> int:
        """Wait for the exit code; raises `subprocess.TimeoutExpired`."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(0.005)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)


@functools.cache
def _parent() -> socket.socket:
    """Return the connection to the process that forks."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with there:
        process = subprocess.Popen([sys.executable, "-m", "tests.forked"], stdin=there.fileno(), cwd=_ROOT)
    atexit.register(process.wait)
    atexit.register(here.close)
    return here


def _ask(request: object, descriptors: Sequence[int] = ()) -> Any:
    with _LOCK:
        socket.send_fds(_parent(), [json.dumps(request).encode()], descriptors)
        return json.loads(_parent().recv(32))


def _serve() -> tuple[list[str], str, dict[str, str], tuple[int, int]] | None:
    """Fork whenever it is requested, and tell exit codes; returns in each child what to run, and None at the end."""
    with socket.socket(fileno=0) as requests:
        while True:
            message, descriptors, _, _ = socket.recv_fds(requests, _REQUEST_SIZE, 3)
            if not message:
                return None
            request = json.loads(message)
            if isinstance(request, int):
                pid, status = os.waitpid(request, os.WNOHANG)
                requests.send(json.dumps(os.waitstatus_to_exitcode(status) if pid else None).encode())
                continue
            if pid := os.fork():
                requests.send(str(pid).encode())
            else:
                requests.detach()
            for number, descriptor in enumerate(descriptors):
                if not pid:
                    os.dup2(descriptor, number)
                os.close(descriptor)
            if not pid:
                return tuple(request)


def end(code: int) -> NoReturn:
    """End as Python does, except that it clears no module, which would copy the memory that is shared: 25 ms."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    """Import the program, then run it in each child."""
    for name in _MODULES:
        importlib.import_module(name)
    request = _serve()
    if request is not None:
        command, cwd, environment, files = request
        resource.setrlimit(resource.RLIMIT_NOFILE, files)
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(environment)
        os.environ["TMPDIR"] = sys.path[0] = cwd
        sys.argv[1:] = command[len(PROGRAM) :]
        if isinstance(sys.stdout.buffer, io.RawIOBase):  # it remembers whether the file that was replaced could seek
            raw = io.FileIO(1, "wb", closefd=False)
            sys.stdout = io.TextIOWrapper(raw, sys.stdout.encoding, write_through=True)
        try:
            runpy.run_module("headgate", run_name="__main__", alter_sys=True)
        except SystemExit as ended:
            if isinstance(ended.code, str):
                raise
            end(ended.code or 0)


if __name__ == "__main__":
    main()
