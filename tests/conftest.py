"""What all tests share: markers, missing servers, hypothesis profiles, and a check for processes left running.

`@pytest.mark.needs("nginx")` names the programs a test cannot run without. Where one is missing the test is skipped and
counted in a list after the summary; with HEADGATE_REQUIRE_SERVERS=1 it fails instead.

Each test is marked with the folder it lies in (unit, property, e2e, conformance, fuzz), and each that needs Chromium
with `browser`; hypothesis marks its own with `hypothesis`. `deep` is given by hand to what takes long.
"""

import asyncio
import gc
import inspect
import os
import signal
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, ExitStack, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import zmq
from _pytest.assertion import rewrite

from tests import servers

# The programs that tests start would else compile all of Headgate anew, which takes most of a second each time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Clients and programs with default trust read the system's roots, of which no test needs one: 20 ms for each context.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("root_of_nothing.pem"))

gc.disable()  # until all tests are collected

hypothesis.settings.register_profile("fast", deadline=None, print_blob=True, max_examples=50)
hypothesis.settings.register_profile("deep", deadline=None, print_blob=True, max_examples=300)
hypothesis.settings.load_profile("fast")

TESTS = Path(__file__).parent
MODULES_THAT_START_PROCESSES = {"multiprocessing", "os", "programs", "servers", "subprocess"}
ENDLESS = ("multiprocessing.resource_tracker", "tests.forked")
MAX_ID_LENGTH = 40
SLOWEST = {"test_advice_loop.py", "test_demo.py", "test_docs.py", "test_lost_masters.py", "test_restarts.py"}
REQUIRES_SERVERS = os.environ.get("HEADGATE_REQUIRE_SERVERS") == "1"
_TIMEOUT = 240.0  # seconds for a test that is a coroutine; only ever reached by a failing test
MISSING = "missing server"


def keep_sockets(context: Any, *arguments: Any, construct: Any = zmq.Context.__init__, **options: Any) -> None:
    """Let a ZeroMQ context that a failed test leaves open end when it is collected as garbage, instead of hanging.

    It waits for the sockets that it does not know, and its references to them are weak; also for messages to send.
    """
    construct(context, *arguments, **options)
    context._sockets = set()
    context.sockopts[zmq.LINGER] = 1_000


zmq.Context.__init__ = keep_sockets  # type: ignore[assignment, method-assign]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose servers are not all installed; fail it if HEADGATE_REQUIRE_SERVERS=1."""
    os.environ.pop("HEADGATE_REQUIRE_SERVERS", None)  # the programs would warn that they do not know it
    needed = {server for mark in item.iter_markers("needs") for server in mark.args}
    missing = sorted(server for server in needed if not servers.is_present(server))
    if not missing:
        return
    sentence = f"{', '.join(missing)} missing; `make servers` installs what the tests need"
    if REQUIRES_SERVERS:
        pytest.fail(sentence, pytrace=False)
    item.user_properties += [(MISSING, server) for server in missing]
    pytest.skip(sentence)


async def _bounded(test: Coroutine[object, None, None]) -> None:
    async with asyncio.timeout(_TIMEOUT):
        await test


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine by its fixture `run`, or in an event loop of its own, for a limited time."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    parameters = inspect.signature(pyfuncitem.obj).parameters
    run: Any = pyfuncitem.funcargs.get("run", asyncio.run)
    test = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in parameters})
    run(_bounded(test))
    return True


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Run more processes than cores with `-n auto`, since tests wait for programs; fewer for the deep, timed ones."""
    return 2 * (os.cpu_count() or 1) + (2 if config.option.markexpr == "not deep" else 0)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test with its folder, and with what it uses."""
    if TESTS in item.path.parents:
        item.add_marker(item.path.relative_to(TESTS).parts[0])
    if any("chromium" in mark.args for mark in item.iter_markers("needs")):
        item.add_marker("browser")


def pytest_collection_finish() -> None:
    """Collect garbage from now on, except what was collected as tests: a third of that time went to it."""
    gc.enable()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what takes longest first: at the end, no process waits for another one."""
    items.sort(key=lambda item: (item.path.name not in SLOWEST, item.path.parent.name != "e2e"))


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name long or binary values by their argument: ids are short, and the same in every process that collects them."""
    if isinstance(val, bytes):
        is_readable = val.isascii() and val.decode("ascii").isprintable()
    else:
        is_readable = not isinstance(val, str) or val.isprintable()
    if isinstance(val, bytes | str) and not (is_readable and len(val) <= MAX_ID_LENGTH):
        return argname  # pytest numbers those that are named alike
    return None


def pytest_configure(config: pytest.Config) -> None:
    """Rewrite a part of all test modules in each of several processes, as pytest does before it executes one.

    In a fresh clone each would else rewrite all of them, at the same time: 10 s of processor time for each process.
    """
    if not hasattr(config, "workerinput") or config.option.file_or_dir:
        return
    number, count = int(config.workerinput["workerid"][2:]), config.workerinput["workercount"]
    for path in sorted(TESTS.rglob("test_*.py"))[number::count]:
        cache = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
        if rewrite._read_pyc(path, cache) is None and rewrite.try_makedirs(cache.parent):
            status, code = rewrite._rewrite_test(path, config)
            rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, status, cache)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """End with the list: this hook is the first after pytest's summary line."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is None or hasattr(config, "workerinput") or config.option.collectonly:
        return
    properties = chain.from_iterable(getattr(one, "user_properties", ()) for one in terminal.stats.get("skipped", ()))
    counts = Counter(str(server) for name, server in properties if name == MISSING)
    if not counts:
        terminal.write_line("No test was skipped for want of a server.")
        return
    terminal.write_line("Skipped for want of a server (`make servers` installs them):")
    for server, count in sorted(counts.items()):
        terminal.write_line(f"  {server}: {count} {'test' if count == 1 else 'tests'}")


def children() -> set[int]:
    """Process ids of this process's children; empty where the system does not list them as files."""
    found: set[int] = set()
    for file in Path("/proc/self/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # that thread has just ended
            found.update(map(int, file.read_text().split()))
    return found


def left_behind(before: set[int]) -> dict[int, str]:
    """Return the command lines of new child processes by id, except two that never end: Python's resource tracker, and
    the process that `tests.forked` forks."""
    lines = {}
    for pid in children() - before:
        with suppress(FileNotFoundError):  # it was waited for just now
            lines[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return {pid: line for pid, line in lines.items() if not any(name in line for name in ENDLESS)}


@pytest.fixture(autouse=True)
def _no_process_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a child process running, or ended but never waited for."""
    is_e2e = request.node.get_closest_marker("e2e") is not None
    if not is_e2e and MODULES_THAT_START_PROCESSES.isdisjoint(vars(request.module)):
        yield
        return
    before = children()
    yield
    left = left_behind(before)
    for pid in left:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    if left:
        pytest.fail(f"left behind: {left}", pytrace=False)


@pytest.fixture
def free_port() -> Callable[[], int]:
    """Return the function that finds a free loopback port."""
    return servers.free_port


@pytest.fixture
def nginx(tmp_path: Path) -> Iterator[Callable[..., servers.Server]]:
    """Return a function that starts nginx: `nginx(server="return 204;")`; mark the test as needing "nginx"."""
    with ExitStack() as running:
        yield lambda **directives: running.enter_context(servers.nginx(tmp_path, **directives))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., servers.Server]]:
    """Return a function that starts any server: `start(command, port)` comes back once it listens."""

    def launch(command: list[str | Path], port: int, *, stop: int = signal.SIGTERM) -> servers.Server:
        server: AbstractContextManager[servers.Server] = servers.started(command, port, tmp_path, stop=stop)
        return running.enter_context(server)

    with ExitStack() as running:
        yield launch
