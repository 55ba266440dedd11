"""Both ways to wait: in a thread, and in an event loop."""

import asyncio
import threading
import time
from concurrent.futures import Future

import anyio
import pytest
import trio

from headgate.agent.retry import retry_pause
from headgate.agent.wait import FetchWait, Pause


@pytest.fixture
def slept(monkeypatch):
    """Seconds of each sleep, none of which takes any time."""
    seconds: list[float] = []

    async def sleep(delay):
        seconds.append(delay)

    monkeypatch.setattr(time, "sleep", seconds.append)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(anyio, "sleep", sleep)
    return seconds


def test_a_pause_sleeps_its_seconds_in_threads_and_event_loops(slept):
    Pause(0.03).block()
    assert slept == [0.03]
    asyncio.run(Pause(40).settle())
    assert slept == [0.03, 40]
    trio.run(Pause(50).settle)
    assert slept == [0.03, 40, 50]


@pytest.mark.parametrize(("seconds", "slept"), [(float("inf"), 3600.0), (1e300, 3600.0), (-1.0, 0.0), (2.5, 2.5)])
def test_one_pause_is_an_hour_at_most(seconds, slept):
    assert Pause(seconds).seconds == slept


def test_the_end_of_a_fetch_ends_the_waits_of_all_threads_and_loops():
    landed: Future[None] = Future()
    over: list[str] = []

    def in_thread() -> None:
        FetchWait(landed, 10).block()
        over.append("thread")

    def in_loop() -> None:
        asyncio.run(FetchWait(landed, 10).settle())
        over.append("loop")

    def in_trio() -> None:
        trio.run(FetchWait(landed, 10).settle)
        over.append("trio")

    threads = [threading.Thread(target=way) for way in (in_thread, in_loop, in_trio) * 2]
    for thread in threads:
        thread.start()
    assert over == []
    landed.set_result(None)
    for thread in threads:
        thread.join(10)
    assert sorted(over) == ["loop", "loop", "thread", "thread", "trio", "trio"]


def test_a_wait_for_a_fetch_is_limited_and_its_end_after_that_raises_nothing(caplog):
    landed: Future[None] = Future()
    FetchWait(landed, 0.02).block()
    asyncio.run(FetchWait(landed, 0.02).settle())
    trio.run(FetchWait(landed, 0.02).settle)
    FetchWait(landed, -1.0).block()
    landed.set_result(None)
    assert caplog.records == []


def test_a_cancelled_wait_does_not_cancel_the_fetch():
    landed: Future[None] = Future()

    async def two() -> None:
        first, second = (asyncio.create_task(FetchWait(landed, 10).settle()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        assert (first.cancelled(), landed.cancelled(), second.done()) == (True, False, False)
        landed.set_result(None)
        await asyncio.wait_for(second, 10)

    asyncio.run(two())


@pytest.mark.parametrize("status", [500, 503, 509])
@pytest.mark.parametrize(
    ("retries", "shortest", "longest"), [(0, 0.5, 1.0), (1, 1.0, 2.0), (10, 512.0, 1024.0), (5_000, 512.0, 1024.0)]
)
def test_retry_pauses_begin_at_half_a_second_to_one_and_double_ten_times(status, retries, shortest, longest):
    assert retry_pause(status, retries=retries, draw=0.0) == shortest
    assert retry_pause(status, retries=retries, draw=0.5) == (shortest + longest) / 2
    assert shortest < retry_pause(status, retries=retries, draw=0.999) < longest
