import threading
from contextlib import closing
from contextvars import ContextVar

import pytest

from headgate.fetch.pace import CallThread

WORD = ContextVar("WORD", default="")


class Closable:
    def __init__(self):
        self.closed = threading.Event()

    def close(self):
        self.closed.set()


def test_calls_return_and_raise_in_the_caller():
    WORD.set("seen")
    with closing(CallThread()) as thread:
        assert thread.call(lambda: (WORD.get(), threading.current_thread().daemon), 60) == ("seen", True)
        with pytest.raises(ZeroDivisionError):
            thread.call(lambda: 1 // 0, 60)
        assert thread.call(lambda: threading.current_thread() is threading.main_thread(), 60) is False


def test_a_hanging_call_times_out_and_its_late_result_is_closed():
    ended, late = threading.Event(), Closable()
    with closing(CallThread()) as thread, pytest.raises(TimeoutError):
        thread.call(lambda: ended.wait(60) and late, 0.01)
    assert not late.closed.is_set()
    ended.set()
    assert late.closed.wait(60)


def test_a_result_in_time_belongs_to_the_caller():
    kept, running = Closable(), []
    with closing(CallThread()) as thread:
        assert thread.call(lambda: running.append(threading.current_thread()) or kept, 60) is kept
    running[0].join(60)
    assert (running[0].is_alive(), kept.closed.is_set()) == (False, False)
