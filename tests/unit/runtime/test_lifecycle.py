"""Each row of the table of transitions, with a server that records its calls."""

import asyncio
import io
import re
import sys
from contextlib import asynccontextmanager, redirect_stderr

import pytest
import uvloop

from headgate.errors import ConfigurationError, MissingExtra
from headgate.observe.state import ServerState
from headgate.runtime.lifecycle import Backend, Lifecycle, LifecyclePhase, Server, cancel_tasks, run_event_loop

STARTING, READY, RELOADING = LifecyclePhase.STARTING, LifecyclePhase.READY, LifecyclePhase.RELOADING
DRAINING, STOPPING, STOPPED = LifecyclePhase.DRAINING, LifecyclePhase.STOPPING, LifecyclePhase.STOPPED


class RecordingBackend(Backend):
    """Has its drains recorded by the server."""

    drain_timeout = 7.0
    reason = ""

    def __init__(self, server):
        self._server = server

    def unready(self):
        return self.reason

    async def drain(self, seconds):
        if seconds == 0 and "drain" in self._server.held:
            self._server.held["drain"].set()
        await self._server.operation("drain", seconds)


class RecordingServer(Server):
    """Records the calls; each operation in `hold` waits until it is released."""

    def __init__(self, *, hold=(), error=None, reload_error=None):
        super().__init__()
        self.backend = RecordingBackend(self)
        self.calls = []
        self.error = error
        self.reload_error = reload_error
        self.held = {name: asyncio.Event() for name in hold}

    async def operation(self, name, *more):
        self.calls.append((name, *more))
        try:
            if name in self.held:
                await self.held[name].wait()
        except asyncio.CancelledError:
            self.calls.append((f"{name} cancelled",))
            raise

    async def start(self):
        await self.operation("start")
        if self.error is not None:
            raise self.error

    def announce(self):
        self.calls.append(("announce",))

    async def reload(self):
        await self.operation("reload")
        if self.reload_error is not None:
            raise self.reload_error

    async def close(self):
        self.calls.append(("close",))

    @property
    def names(self):
        return [call[0] for call in self.calls]


async def turn():
    """Let all tasks run until they wait."""
    for _ in range(20):
        await asyncio.sleep(0)


@asynccontextmanager
async def running(**settings):
    """Run the life-cycle of a `RecordingServer` while inside, and stop it; the server has what it logged at the end."""
    with redirect_stderr(io.StringIO()) as written:
        server = RecordingServer(**settings)
        lifecycle = Lifecycle(server)
        ending = asyncio.ensure_future(lifecycle.run())
        await turn()
        try:
            async with asyncio.timeout(10):
                yield server, lifecycle
                if lifecycle.phase in {READY, RELOADING}:
                    lifecycle.stop()
                await ending
        finally:
            ending.cancel()
        assert lifecycle.phase is STOPPED
    server.messages = written.getvalue().splitlines()


async def release(server, name):
    server.held[name].set()
    await turn()


async def test_start_then_ready_then_announced():
    async with running(hold=["start"]) as (server, lifecycle):
        assert lifecycle.phase is STARTING
        assert lifecycle.unready() == "starting"
        assert server.names == ["start"]
        await release(server, "start")
        assert lifecycle.phase is READY
        assert lifecycle.unready() == ""
        assert server.names == ["start", "announce"]


async def test_a_service_manager_is_told_of_each_phase():
    notices = []
    async with running(hold=["start"]) as (server, lifecycle):
        lifecycle._notify = lambda *lines: notices.append([re.sub(r"\d{4,}", "N", line) for line in lines])
        await release(server, "start")
        server.reload_error = ConfigurationError("no")
        for _ in range(2):
            lifecycle.reload()
            lifecycle.reload()
            await turn()
            server.reload_error = None
        lifecycle.stop()
        lifecycle.stop()
    ready, reloading = ["READY=1", "STATUS=ready"], ["RELOADING=1", "MONOTONIC_USEC=N", "STATUS=reloading"]
    failed = ["READY=1", "STATUS=ready, but the last reload failed: see the log"]
    expected = [ready, reloading, failed, reloading, failed, reloading, ready, reloading, ready]
    assert notices == [*expected, ["STOPPING=1", "STATUS=draining"]]


async def test_reload_while_starting_is_done_afterwards():
    async with running(hold=["start"]) as (server, lifecycle):
        lifecycle.reload()
        await turn()
        assert server.names == ["start"]
        await release(server, "start")
        assert server.names == ["start", "announce", "reload"]


async def test_stop_while_starting_cancels_the_start():
    async with running(hold=["start"]) as (server, lifecycle):
        lifecycle.stop()
    assert server.names == ["start", "start cancelled", "close"]


async def test_reloads_while_reloading_are_one_more_afterwards():
    async with running(hold=["reload"]) as (server, lifecycle):
        for _ in range(4):
            lifecycle.reload()
            await turn()
        assert server.names.count("reload") == 1
        await release(server, "reload")
        assert server.names.count("reload") == 2
        assert lifecycle.phase is READY


async def test_stop_while_reloading_cancels_the_reload_before_the_drain():
    async with running(hold=["reload"]) as (server, lifecycle):
        lifecycle.reload()
        await turn()
        lifecycle.stop()
        await turn()
    assert server.names == ["start", "announce", "reload", "reload cancelled", "drain", "close"]


async def test_stop_when_ready_drains_for_the_timeout_of_the_backend():
    async with running(hold=["drain"]) as (server, lifecycle):
        lifecycle.stop()
        await turn()
        assert lifecycle.phase is DRAINING
        assert lifecycle.unready() == "draining"
        await release(server, "drain")
    assert server.calls == [("start",), ("announce",), ("drain", 7.0), ("close",)]


async def test_stop_with_seconds_drains_for_those():
    async with running() as (server, lifecycle):
        lifecycle.stop(2.5)
    assert ("drain", 2.5) in server.calls


async def test_two_stops_at_once_end_the_drain():
    async with running(hold=["drain"]) as (server, lifecycle):
        lifecycle.stop()
        lifecycle.stop()  # such as SIGTERM and SIGINT of a make and a terminal
    calls = server.calls
    assert ("drain", 0) in calls
    assert calls[-1] == ("close",)


async def test_a_second_stop_ends_the_drain_and_events_that_a_phase_does_not_have_are_ignored():
    async with running(hold=["drain"]) as (server, lifecycle):
        lifecycle.stop()
        await turn()
        lifecycle.reload()
        await turn()
        assert lifecycle.phase is DRAINING
        lifecycle.stop()
        assert lifecycle.phase is STOPPING
        assert lifecycle.unready() == "draining"
        for _ in range(3):
            lifecycle.stop()
            lifecycle.reload()
    calls = server.calls
    assert calls == [("start",), ("announce",), ("drain", 7.0), ("drain", 0), ("close",)]


async def test_server_may_be_unready_although_it_has_started():
    async with running() as (server, lifecycle):
        server.backend.reason = "starting"
        assert lifecycle.unready() == "starting"


async def test_error_of_the_start_is_raised_after_the_close_and_not_logged(capsys):
    server = RecordingServer(error=ConfigurationError("taken"))
    with pytest.raises(ConfigurationError, match="taken"):
        await Lifecycle(server).run()
    assert server.names == ["start", "close"]
    assert capsys.readouterr().err == ""


async def test_failure_of_the_server_is_raised_after_the_close():
    server = RecordingServer()
    running = asyncio.ensure_future(Lifecycle(server).run())
    await turn()
    server.fail(BrokenPipeError("gone"))
    server.fail(KeyError("later"))
    with pytest.raises(BrokenPipeError, match="gone"):
        await running
    assert server.names == ["start", "announce", "close"]


async def test_tasks_that_fail_by_themselves_or_when_cancelled_are_logged(capsys):
    async def fail(wait):
        try:
            await asyncio.sleep(wait)
        finally:
            raise KeyError(wait)

    tasks = [asyncio.create_task(work) for work in (fail(0), fail(60), asyncio.sleep(60))]
    await turn()
    await cancel_tasks(tasks)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition("exception=")[2] for line in lines] == ["KeyError(0)>", "KeyError(60)>"]
    assert all(re.match(r"headgate: internal error: <Task finished .* coro=<.*fail\(\)", line) for line in lines)


async def test_failure_of_the_announcement_is_raised():
    class Closed(RecordingServer):
        def announce(self):
            raise BrokenPipeError("stdout")

    with pytest.raises(BrokenPipeError, match="stdout"):
        await Lifecycle(Closed()).run()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConfigurationError("bad rule"), "headgate: error: bad rule; the configuration in force stays as it is"),
        (OSError("no file"), "headgate: error: no file; the configuration in force stays as it is"),
        (KeyError("x"), "headgate: internal error in a reload: KeyError: 'x'"),
    ],
)
async def test_failed_reload_is_logged_and_the_server_stays_ready(error, message):
    async with running(reload_error=error) as (server, lifecycle):
        server.reloaded = 1.0
        for _ in range(2):
            lifecycle.reload()
            await turn()
            assert lifecycle.phase is READY
            assert server.server_state() == ServerState(reload_successful=False, reloaded=1.0)
        server.reload_error = None
        lifecycle.reload()
        await turn()
        assert server.server_state().reload_successful
    assert server.server_state().reloaded > 1.0
    assert server.messages == [message] * 2
    assert server.names == ["start", "announce", "reload", "reload", "reload", "drain", "close"]


LOOPS = {"auto": uvloop.Loop, "uvloop": uvloop.Loop, "asyncio": asyncio.SelectorEventLoop}


async def on(kind):
    return 0 if isinstance(asyncio.get_running_loop(), kind) else 1


@pytest.mark.parametrize("loop", LOOPS)
def test_loop_is_the_configured_one(loop):
    assert run_event_loop(lambda: on(LOOPS[loop]), loop=loop) == 0


class TestWithoutUvloop:
    @pytest.fixture(autouse=True)
    def _without(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "uvloop", None)

    def test_auto_is_asyncio(self):
        assert run_event_loop(lambda: on(asyncio.SelectorEventLoop)) == 0

    def test_uvloop_by_name_is_refused_with_the_extra_to_install(self):
        with pytest.raises(MissingExtra) as caught:
            run_event_loop(lambda: on(asyncio.SelectorEventLoop), loop="uvloop")
        assert str(caught.value) == (
            "gate.loop = 'uvloop' needs the extra 'uvloop'; install it from the repository: pip install '.[uvloop]'"
        )
