"""Test mode: tests of a program that uses a `Courtesy` neither wait nor fetch advice.

::

    def test_sync(sdk):
        with scripted(sdk.courtesy) as clock:
            sdk.sync()
        assert clock.waited == 3.0
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from headgate.agent.courtesy import Courtesy


class Clock:
    """A clock that only waits and the test move: `now` is in seconds since 1970."""

    def __init__(self, now: float | None = None) -> None:
        self.now = time.time() if now is None else now
        self.waited = 0.0
        """The sum of all waits."""

    def __call__(self) -> float:
        """Return `now`."""
        return self.now

    def wait(self, seconds: float) -> None:
        """Let time pass, in place of a wait."""
        self.now += seconds
        self.waited += seconds


@contextmanager
def scripted(courtesy: Courtesy, clock: Clock | None = None) -> Iterator[Clock]:
    """Let requests of `courtesy` wait on `clock`, without sleeping, and fetch neither advice nor robots.txt.

    A request still waits for another one to end where the concurrency is limited.
    """
    clock = Clock() if clock is None else clock
    with courtesy.scripted(clock, clock.wait):
        yield clock
