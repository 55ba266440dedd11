"""Heartbeats towards a master, and masters that do not answer them.

A stopped process keeps its connections open: only ZMTP heartbeats show that it does not answer. But a libzmq before 4.2
ignores heartbeats, so with them a connection to it ends after every few seconds, again and again. This module decides
from the durations of connections whether the next one has heartbeats; it opens no socket and reads no clock.
"""

from typing import Final

INTERVAL: Final = 2.0
"""Seconds between two heartbeats, and for the answer to one: a stopped master is noticed within 4 s."""

_LONGEST = 3.0
"""Intervals; a connection that lasted from one interval to this long may have ended for want of an answer."""

_MAX_SHORT_CONNECTIONS = 3
"""Such connections in a row after which the next one is made without heartbeats."""


class Heartbeats:
    """The heartbeats of the next connection to one master: one in `seconds`, or none.

    They end after three connections in a row of the duration that a master has which does not answer. A stopped master
    does not connect again, so three in a row are not a stopped master. The first connection without heartbeats that
    ends, for whatever reason, starts them again: the next master at this address may answer.
    """

    def __init__(self, seconds: float = INTERVAL) -> None:
        self._seconds = seconds
        self._since = 0.0
        self._short = 0

    @property
    def interval(self) -> float:
        """Seconds between two heartbeats of the next connection; 0.0 for none."""
        return self._seconds if self._short < _MAX_SHORT_CONNECTIONS else 0.0

    def connected(self, moment: float) -> None:
        """Record that the master connected; `moment` is monotonic seconds."""
        self._since = moment

    def lost(self, moment: float) -> bool:
        """Record that the connection ended; return whether `interval` has changed."""
        before = self.interval
        is_short = before and self._seconds <= moment - self._since <= _LONGEST * self._seconds
        self._short = self._short + 1 if is_short else 0
        return self.interval != before
