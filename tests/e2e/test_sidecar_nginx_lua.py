"""The real nginx with Lua as a gatekeeper: in a whole system, and with its data plane in this process."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.e2e import nginx_lua_setup, programs
from tests.e2e.nginx_lua_setup import Nginx
from tests.servers import free_port

pytestmark = pytest.mark.needs("nginx-lua")


class System:
    """An origin, a master, a sidecar and nginx, as an operator starts them."""

    def __init__(self, stack: ExitStack, folder: Path, rule: str, *options: object) -> None:
        self.folder = folder
        self.origin = stack.enter_context(programs.origin())
        self.master = stack.enter_context(
            programs.headgate(folder, "master", "--listen", "127.0.0.1:0", "--domain", f"api={rule}")
        )
        self.options = ("--master", self.master.ready["address"].removeprefix("tcp://"), "--domain", "api", *options)
        self.socket = folder / "headgate.sock"
        self.sidecar = stack.enter_context(self.run_sidecar())
        self.nginx = stack.enter_context(nginx_lua_setup.nginx(folder, self.socket, self.origin.url))
        self.sidecar.until(lambda: self.workers() == 2, "connections of both workers")

    @contextmanager
    def run_sidecar(self) -> Iterator[programs.Program]:
        """Run a sidecar; comes back when it is ready."""
        with programs.headgate(
            self.folder, "sidecar", *self.options, "--nginx-lua", self.socket, "--admin", "127.0.0.1:0"
        ) as running:
            assert running.ready["address"] == str(self.socket)
            yield running

    def workers(self) -> int:
        """Return the number of workers that are connected."""
        number: int = self.sidecar.state()["details"]["workers"]
        return number

    def statuses(self, count: int) -> Counter[int]:
        """Send so many requests one after another; count the statuses."""
        return Counter(self.nginx.get().status for _ in range(count))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """What ends with the test."""
    with ExitStack() as open_things:
        yield open_things


def test_a_burst_is_rejected_by_the_rule_of_the_master(stack: ExitStack, tmp_path: Path) -> None:
    system = System(stack, tmp_path, "1/min burst 5")
    assert system.statuses(5) == {200: 5}
    system.sidecar.until(lambda: system.nginx.get().status == 503, "rejection")
    accepted, _, _ = system.sidecar.totals("api")
    answers = [system.nginx.get() for _ in range(10)]
    assert {answer.status for answer in answers} == {503}
    assert 1 <= int(answers[0].headers["Retry-After"]) <= 300
    assert answers[0].headers["RateLimit"].startswith('"api";r=0;t=')
    system.sidecar.until(lambda: system.sidecar.totals("api")[2] >= 11, "accounting of rejections")
    assert system.sidecar.totals("api")[0] == accepted == len(system.origin.seen)


def test_concurrent_requests_are_delayed_by_the_rule_of_the_master(stack: ExitStack, tmp_path: Path) -> None:
    system = System(stack, tmp_path, "20/s burst 2")
    with ThreadPoolExecutor(8) as pool:
        assert Counter(pool.map(lambda _: system.nginx.get().status, range(24))) == {200: 24}
    system.sidecar.until(lambda: sum(system.sidecar.totals("api")) == 24, "accounting of all requests")
    assert system.sidecar.totals("api")[1] > 0


@pytest.mark.parametrize("identify", [(), ("--identify", "header:X-Api-Key")], ids=["address", "header"])
def test_the_printed_configuration_passes_the_test_of_nginx(tmp_path: Path, identify: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "headgate", "sidecar", "--print-conf", "nginx-lua", "--domain", 'a"b $x {} \\;ü']
    command += [
        "--listen",
        f"127.0.0.1:{free_port()}",
        "--origin",
        "http://127.0.0.1:1",
        "--socket",
        "s.sock",
        *identify,
    ]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    (tmp_path / "nginx.conf").write_text(printed.stdout)
    tested = subprocess.run(
        [Nginx.program(), "-t", "-p", tmp_path, "-c", tmp_path / "nginx.conf"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert tested.returncode == 0, tested.stderr
    assert "warn" not in tested.stderr
