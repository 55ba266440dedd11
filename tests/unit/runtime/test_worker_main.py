"""A worker's life-cycle, driven over a channel by the test in place of a supervisor."""

import asyncio
import socket

import msgspec

from headgate.errors import ConfigurationError
from headgate.runtime import worker_main
from headgate.runtime.ipc import Channel, Configure, Query, Ready, Reply, Shutdown, StartFailed
from headgate.runtime.lifecycle import Backend

TO_WORKER = Configure[str] | Query | Shutdown | Ready  # Ready stands for a message of one kind of worker
FROM_WORKER = Ready | StartFailed | Reply


class RecordingBackend(Backend):
    """Records its calls; they are its state too."""

    drain_timeout = 7.0

    def __init__(self, configuration, send):
        self.calls = [f"made {configuration}"]
        self.fails_at = ""

    def record(self, call):
        self.calls.append(call)
        if call.startswith(self.fails_at or " "):
            raise ConfigurationError(f"cannot {call}") if call == "start" else KeyError(call)

    async def start(self):
        self.record("start")

    async def state(self, *, whole):
        self.record("whole state" if whole else "state")
        return self.calls

    async def reload(self, configuration):
        self.record(f"reload {configuration}")

    async def drain(self, seconds):
        self.record(f"drain {seconds:g}")

    async def close(self):
        self.record("close")

    def on_message(self, message):
        self.record(f"message {type(message).__name__}")


async def run(*sent, fails_at=""):
    """Run a worker, and send it these when it is ready; return its exit code, the messages it sent, and its calls."""
    ours, theirs = socket.socketpair()
    near, far = await Channel.open(ours, FROM_WORKER), await Channel.open(theirs, TO_WORKER)
    backends = []

    def make(configuration, send):
        backends.append(RecordingBackend(configuration, send))
        backends[0].fails_at = fails_at
        return backends[0]

    async with asyncio.timeout(20):
        serving = asyncio.ensure_future(worker_main._serve(far, make))
        near.send(Configure("a"))
        received = [await near.receive()]
        for message in sent:
            near.send(message)
            if isinstance(message, Query):
                received.append(await near.receive())
        if not sent:
            await near.close()
        code = await serving
        await far.close()
        while sent and (message := await near.receive()) is not None:
            received.append(message)
        await near.close()
    return code, received, backends[0].calls


async def test_ready_then_states_then_the_final_report():
    code, received, calls = await run(Query("state", argument=True), Query("state", argument=False), Shutdown(2.5))
    assert code == 0
    assert [type(message) for message in received] == [Ready, Reply, Reply, Reply]
    assert calls == ["made a", "start", "whole state", "state", "drain 2.5", "state", "close"]
    assert (received[-1].name, msgspec.msgpack.decode(received[-1].content)) == ("state", calls[:-1])


async def test_a_query_that_the_backend_does_not_know_has_no_answer():
    _, received, calls = await run(Query("other", "argument"), Shutdown(0))
    assert received[1] == Reply("other", msgspec.msgpack.encode(None))
    assert calls == ["made a", "start", "drain 0", "state", "close"]


async def test_later_configurations_are_reloads_and_other_messages_are_passed_on():
    _, _, calls = await run(Configure("b"), Query("state", argument=False), Ready(), Shutdown(0))
    assert set(calls[2:4]) == {"reload b", "state"}
    assert calls[4:] == ["message Ready", "drain 0", "state", "close"]


async def test_worker_whose_supervisor_is_gone_stops():
    code, _, calls = await run()
    assert code == 0
    assert calls == ["made a", "start", "message NoneType", "drain 5", "state", "close"]


async def test_error_of_the_start_is_reported():
    code, received, calls = await run(fails_at="start")
    assert (code, received) == (1, [StartFailed("cannot start")])
    assert calls == ["made a", "start", "close"]


async def test_unexpected_error_while_a_message_is_handled_ends_the_worker_with_the_reason():
    code, received, calls = await run(Query("state", argument=True), fails_at="whole")
    assert (code, received[-1]) == (1, StartFailed("internal error: KeyError: 'whole state'"))
    assert calls[-1] == "close"
