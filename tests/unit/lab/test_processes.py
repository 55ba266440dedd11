import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from headgate.errors import SimulationError
from headgate.lab.processes import map_in_order

DEADLINE = 60.0
"""Seconds after which a test fails that waits for a process."""


def square(number: int) -> int:
    return number * number


def square_unless_seven(number: int) -> int:
    if number == 7:
        raise SimulationError("seven")
    return number * number


def kill_itself(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def exit_itself(number: int) -> int:
    os._exit(number)


def blocks_interrupts(_number: int) -> bool:
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def sleep_long(folder: str) -> None:
    Path(folder, str(os.getpid())).touch()
    time.sleep(10 * DEADLINE)


def wait_for_pids(folder: Path, count: int) -> list[int]:
    give_up = time.monotonic() + DEADLINE
    while len(found := [int(path.name) for path in folder.iterdir()]) < count:
        assert time.monotonic() < give_up
        time.sleep(0.02)
    return found


def wait_until_ended(pids: list[int]) -> None:
    give_up = time.monotonic() + DEADLINE
    while [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]:
        assert time.monotonic() < give_up
        time.sleep(0.02)


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_results_are_in_the_order_of_the_tasks(processes):
    assert list(map_in_order(square, range(500), processes=processes)) == [number * number for number in range(500)]


@pytest.mark.parametrize("processes", [1, 2])
def test_the_first_task_that_fails_is_the_error_after_the_results_before_it(processes):
    results = map_in_order(square_unless_seven, range(20), processes=processes)
    assert [next(results) for _ in range(7)] == [number * number for number in range(7)]
    with pytest.raises(SimulationError, match=r"^seven$"):
        next(results)


def test_interrupts_reach_the_parent_alone():
    assert list(map_in_order(blocks_interrupts, range(2), processes=2)) == [True, True]
    assert not blocks_interrupts(0)


def test_a_killed_process_is_an_error_that_names_its_task():
    with pytest.raises(SimulationError, match=r"^3: the process that ran it was killed by signal 9; is there enough"):
        list(map_in_order(kill_itself, range(8), processes=2))


def wait_for_the_first_or_exit(task: tuple[int, str]) -> None:
    number, folder = task
    if number == 0:
        sleep_long(folder)
    os._exit(number)


def test_a_process_that_has_ended_is_reported_while_an_earlier_task_runs(tmp_path):
    with pytest.raises(SimulationError, match=r"^\(1, .*: the process that ran it ended with exit code 1"):
        list(map_in_order(wait_for_the_first_or_exit, [(0, str(tmp_path)), (1, str(tmp_path))], processes=2))


def test_a_process_that_exits_is_an_error():
    with pytest.raises(SimulationError, match=r"^5: the process that ran it ended with exit code 5"):
        list(map_in_order(exit_itself, [5, 5, 5], processes=2))


def test_processes_have_ended_when_results_are_no_longer_wanted(tmp_path):
    before = set(psutil.Process().children())
    with closing(map_in_order(square, range(500), processes=2)) as results:
        next(results)
        started = set(psutil.Process().children()) - before
    assert len(started) >= 2
    # Others than workers remain: the resource tracker of multiprocessing.
    assert not [one for one in started if one.is_running() and "spawn_main" in " ".join(one.cmdline())]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_survives_an_interrupted_parent(tmp_path, number):
    program = (
        "from headgate.lab.processes import map_in_order\n"
        "from tests.unit.lab.test_processes import sleep_long\n"
        "if __name__ == '__main__':\n"
        f"    list(map_in_order(sleep_long, [{str(tmp_path)!r}] * 2, processes=2))\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], start_new_session=True, stderr=subprocess.PIPE) as parent:
        try:
            pids = wait_for_pids(tmp_path, 2)
            # As a terminal does for Ctrl-C: every process of the group gets the signal, or only the parent.
            (os.killpg if number == signal.SIGINT else os.kill)(parent.pid, number)
            _, errors = parent.communicate(timeout=DEADLINE)
            wait_until_ended(pids)
        finally:
            parent.kill()
    assert parent.returncode == -number
    # One traceback at most, that of the parent.
    assert errors.count(b"Traceback") == (1 if number == signal.SIGINT else 0)
