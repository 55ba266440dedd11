"""Fetches in threads and in tasks: each reports once, whatever becomes of it."""

import queue
import threading

import anyio
import anyio.lowlevel
import pytest

from headgate.advice.fetching import NETWORK_ERROR, AdviceRequest
from headgate.agent.fetch import in_task, in_thread
from tests.unit.agent.fetch.programs import printed

REQUEST = AdviceRequest("https://example.com/", ())


def test_a_thread_reports_what_was_received_or_why_not():
    reports: queue.SimpleQueue[object] = queue.SimpleQueue()
    in_thread(lambda request: NETWORK_ERROR)(REQUEST, reports.put)
    assert reports.get(timeout=30) is NETWORK_ERROR
    error = OSError("of this machine")

    def fail(request):
        raise error

    thread = in_thread(fail)(REQUEST, reports.put)
    assert reports.get(timeout=30) is error
    thread.join(30)
    assert reports.empty()


def test_a_thread_that_hangs_keeps_no_program_from_ending():
    program = """
    import threading
    from headgate.advice.fetching import AdviceRequest
    from headgate.agent.fetch import in_thread
    begun = threading.Event()

    def hang(request):
        begun.set()
        threading.Event().wait()

    in_thread(hang)(AdviceRequest("https://example.com/", ()), print)
    begun.wait(30)
    print("the end")
    """
    assert printed(program) == "the end\n"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_task_reports_what_was_received_or_why_not(backend):
    error = OSError("of this machine")

    async def answer(request):
        return NETWORK_ERROR

    async def fail(request):
        raise error

    async def both():
        reports: list[object] = []
        for fetch in (answer, fail):
            in_task(fetch)(REQUEST, reports.append)
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        return reports

    reports = anyio.run(both, backend=backend)
    assert len(reports) == 2
    assert {*map(id, reports)} == {id(NETWORK_ERROR), id(error)}


@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_task_that_ends_with_its_event_loop_reports_that(backend, steps):
    reports: list[object] = []

    async def hang(request):
        await anyio.sleep_forever()

    async def end():
        in_task(hang)(REQUEST, reports.append)
        for _ in range(steps):
            await anyio.lowlevel.checkpoint()

    anyio.run(end, backend=backend)
    (error,) = reports
    assert isinstance(error, RuntimeError)
    assert str(error) == "the event loop of the fetch has ended"


def test_no_thread_begins_while_the_program_ends(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        in_thread(lambda request: NETWORK_ERROR)(REQUEST, print)
