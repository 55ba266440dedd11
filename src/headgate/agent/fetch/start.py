"""Starting a fetch without waiting for it: in a thread for blocking clients, in a task for asynchronous ones.

The request that causes a fetch may be cancelled or give up. The fetch goes on, since others wait for it too.
"""

import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeAlias

from headgate.advice.fetching import AdviceRequest, AdviceResponse
from headgate.agent.wait import in_asyncio

if TYPE_CHECKING:
    import asyncio


Outcome: TypeAlias = AdviceResponse | BaseException
"""What a fetch resulted in. An exception is a failure of this machine: it says nothing of the origin."""

Report: TypeAlias = Callable[[Outcome], None]
"""Takes the outcome, once, in any thread."""

StartFetch: TypeAlias = Callable[[AdviceRequest, Report], object]
"""Starts a fetch and returns at once what runs it, which has to be kept until the report. Only a thread may run for
longer than a fetch may take. An exception is raised where it cannot be started, and then there is no report."""


def in_thread(fetch: Callable[[AdviceRequest], AdviceResponse]) -> StartFetch:
    """Return what starts `fetch` in a daemon thread, so that no server can keep the program from ending."""

    def start(request: AdviceRequest, report: Report) -> threading.Thread:
        def run() -> None:
            outcome: Outcome
            try:
                outcome = fetch(request)
            except BaseException as error:
                outcome = error
            report(outcome)

        thread = threading.Thread(target=run, name="headgate-advice", daemon=True)
        thread.start()
        return thread

    return start


def in_task(fetch: Callable[[AdviceRequest], Coroutine[Any, Any, AdviceResponse]]) -> StartFetch:
    """Return what starts `fetch` in a task of the event loop that is running: asyncio's, or trio's.

    A task that ends with its event loop reports that as a failure of this machine.
    """

    def start(request: AdviceRequest, report: Report) -> object:
        if in_asyncio():
            import asyncio

            task = asyncio.get_running_loop().create_task(fetch(request))
            # Not in the coroutine: one that is cancelled before its first step never runs.
            task.add_done_callback(lambda task: report(_outcome(task)))
            return task
        import trio

        async def run() -> None:
            outcome: Outcome = _loop_ended()
            try:
                outcome = await fetch(request)
            except Exception as error:
                outcome = error
            finally:
                report(outcome)

        return trio.lowlevel.spawn_system_task(run)

    return start


def _outcome(task: "asyncio.Task[AdviceResponse]") -> Outcome:
    if task.cancelled():
        return _loop_ended()
    return task.exception() or task.result()


def _loop_ended() -> RuntimeError:
    return RuntimeError("the event loop of the fetch has ended")
