"""Blocking calls with a limit on the wait for each.

A client's timeout bounds one read of a socket, so a server that sends a byte now and then never exceeds it. The calls
are made in a thread, and the caller waits for a limited time; the thread ends when the call does.
"""

import threading
from collections.abc import Callable
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class CallThread:
    """A thread that makes one call after another; it ends after `close`."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._results: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        # A daemon: a call whose caller has given up must not keep the process from ending.
        threading.Thread(target=self._make_calls, name="headgate-fetch", daemon=True).start()

    def call(self, function: Callable[[], _Result], timeout: float) -> _Result:
        """Return what `function` returns, or raise what it raises; `TimeoutError` after so many seconds.

        It runs in a copy of the caller's context. After a `TimeoutError` there can be no further calls.
        """
        self._calls.put(_in_context(function))
        try:
            result, error = self._results.get(timeout=timeout)
        except Empty:
            raise TimeoutError from None
        if error is not None:
            raise error
        returned: _Result = result
        return returned

    def close(self) -> None:
        """End the thread once its call has ended; what that returned too late is closed."""
        self._calls.put(None)

    def _make_calls(self) -> None:
        while (function := self._calls.get()) is not None:
            try:
                self._results.put((function(), None))
            except BaseException as error:
                self._results.put((None, error))
            del function
        while not self._results.empty():
            result, _ = self._results.get()
            if hasattr(result, "close"):
                result.close()


def _in_context(function: Callable[[], _Result]) -> Callable[[], _Result]:
    context = copy_context()
    return lambda: context.run(function)
