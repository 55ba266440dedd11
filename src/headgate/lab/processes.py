"""Runs tasks in processes of their own, and returns their results in the order of the tasks.

Each process has a pipe of its own, so that the end of either side is seen by the other: a process that is killed is
an error that names its task, and all processes end when their parent does. Processes are started by "spawn", which
works on every system and beside threads. An interrupt (Ctrl-C) reaches the parent alone, which ends the others.
"""

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final, Generic, TypeVar

from headgate.errors import HeadgateError, SimulationError

Task = TypeVar("Task")
Value = TypeVar("Value")

MAX_PROCESSES: Final = 64
_MAX_AHEAD: Final = 64
"""Maximum results that are kept while an earlier task is still running, for each process."""


def available_processors() -> int:
    """Return how many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


def map_in_order(
    work: Callable[[Task], Value], tasks: Iterable[Task], *, processes: int
) -> Generator[Value, None, None]:
    """Yield `work(task)` for each task, in their order; with one process in this one.

    `work`, tasks and results are pickled. `work` raises `HeadgateError` only, which is raised here for the first task
    that fails. `SimulationError` if a process ends before its task, at once: an earlier task may take long. All
    processes have ended when this returns.
    """
    if processes == 1:
        yield from map(work, tasks)
        return
    workers: list[_Worker[Task]] = []
    try:
        workers.extend(_start(work) for _ in range(processes))
        yield from _deliver(workers, enumerate(tasks))
    finally:
        for worker in workers:
            worker.process.kill()
        for worker in workers:
            worker.process.join()
            worker.connection.close()


@dataclass
class _Worker(Generic[Task]):
    process: BaseProcess
    connection: Connection
    index: int = -1
    """That of its task among all tasks; -1 without one."""
    task: Task | None = None


def _start(work: Callable[[Task], Value]) -> "_Worker[Task]":
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, work), daemon=True)
    with _interrupts_blocked(), theirs:
        process.start()
    return _Worker(process, ours)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Start a process in this context: its parent's signal mask is its own, and stays."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _deliver(workers: "list[_Worker[Task]]", tasks: Iterator[tuple[int, Task]]) -> Iterator[Any]:
    results: dict[int, Any] = {}
    by_connection = {worker.connection: worker for worker in workers}
    first = 0  # the index of the next result to yield
    for worker in workers:
        _assign(worker, tasks)
    while busy := [worker.connection for worker in workers if worker.index >= 0]:
        for connection in wait(busy):
            assert isinstance(connection, Connection)
            worker = by_connection[connection]
            results[worker.index] = _receive(worker)
            worker.index = -1
        while first in results:
            result = results.pop(first)
            if isinstance(result, HeadgateError):
                raise result
            first += 1
            yield result
        for worker in workers:
            if worker.index < 0 and len(results) < _MAX_AHEAD * len(workers):
                _assign(worker, tasks)


def _assign(worker: "_Worker[Task]", tasks: Iterator[tuple[int, Task]]) -> None:
    """Send the next task to an idle worker, if there is one."""
    for worker.index, worker.task in tasks:
        with suppress(OSError):  # the process has ended, which `_receive` reports
            worker.connection.send(worker.task)
        return


def _receive(worker: "_Worker[Task]") -> Any:
    """Return the result of a worker's task, or the error that it raised; raise an error if the process has ended."""
    try:
        return worker.connection.recv()
    except (EOFError, OSError, pickle.UnpicklingError) as error:
        worker.process.join(timeout=5)
        code = worker.process.exitcode
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
        raise SimulationError(f"{worker.task}: the process that ran it {how}; is there enough memory?") from error


def _serve(connection: Connection, work: Callable[[Any], object]) -> None:
    """Run in the process: work on tasks until the parent closes the pipe or ends."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            task = connection.recv()
        except (EOFError, OSError):
            return
        try:
            result = work(task)
        except HeadgateError as error:
            result = error
        connection.send(result)


def _end_with_parent() -> None:
    """End this process, even within a task, when its parent has ended."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
