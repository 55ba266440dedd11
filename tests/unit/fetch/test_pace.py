import threading
from contextvars import ContextVar

import pytest

from headgate.fetch import pace
from headgate.fetch.pace import MIN_RATE, Pace, call_in_thread

WORD = ContextVar("WORD", default="")


class Closable:
    def __init__(self):
        self.closed = threading.Event()

    def close(self):
        self.closed.set()


def test_calls_return_and_raise_in_the_caller():
    WORD.set("seen")
    assert call_in_thread(lambda: (WORD.get(), threading.current_thread().daemon), 60) == ("seen", True)
    with pytest.raises(ZeroDivisionError):
        call_in_thread(lambda: 1 // 0, 60)
    assert not call_in_thread(lambda: threading.current_thread() is threading.main_thread(), 60)


def test_a_hanging_call_times_out_and_its_late_result_is_closed():
    ended, late = threading.Event(), Closable()
    with pytest.raises(TimeoutError):
        call_in_thread(lambda: ended.wait(60) and late, 0.01)
    assert not late.closed.is_set()
    ended.set()
    assert late.closed.wait(60)


def test_a_result_in_time_belongs_to_the_caller():
    kept = Closable()
    assert call_in_thread(lambda: kept, 60) is kept
    assert not kept.closed.is_set()


def test_a_chunk_has_the_time_of_a_head_and_of_what_came_before_it(monkeypatch):
    allowed = []
    monkeypatch.setattr(pace, "call_in_thread", lambda call, timeout: allowed.append(timeout) or call())
    paced, chunks = Pace("https://example.com/", 10.0, clock=lambda: 0.0), iter([bytes(2 * MIN_RATE), b"end"])
    assert [len(paced.timed(chunks)) for _ in range(2)] == [2 * MIN_RATE, 3]
    assert allowed == [20.0, 22.0]
