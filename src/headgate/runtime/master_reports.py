"""Lines on stderr about the connections of a gate or a router to its masters: which are lost, and which are back."""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

from headgate.link.master_connection import MasterConnection

_NO_MASTER: Final = "no master is connected; only the rules of a gate's own file hold further clients"
_CHECK_INTERVAL: Final = 0.5
_START_TIMEOUT: Final = 5.0
"""Seconds after which a master that has not been connected yet is reported."""
_REPORT_INTERVAL: Final = 10.0
"""Minimum seconds between two lines that the same master is not connected, after it was in between."""
_REPEAT_INTERVAL: Final = 3_600.0
"""Seconds between two lines that it is not, otherwise."""


class _Master:
    """What has been reported of one master."""

    def __init__(self, due: float) -> None:
        self.due = due
        """When it may be reported as not connected."""
        self.repeat_at = due
        """When it is reported again, unless it is connected before."""
        self.is_reported = False
        """Whether the last line said that it is not connected."""
        self.was_up = False


class MasterReports:
    """Reports to `log` when one of the masters is lost, and when it is back.

    `connections` returns the connections to all masters; a reload may replace some. A master that connects within a few
    seconds of the start is not reported, and one whose handshake fails is reported by its connection.
    """

    def __init__(self, connections: Callable[[], Iterable[MasterConnection]], log: Callable[[str], None]) -> None:
        self._connections = connections
        self._log = log
        self._masters: dict[str, _Master] = {}

    async def run(self) -> None:
        """Check twice a second, until cancelled."""
        while True:
            self.check(time.monotonic())
            await asyncio.sleep(_CHECK_INTERVAL)

    def check(self, moment: float) -> None:
        """Report what has changed since the last check; `moment` is a monotonic time."""
        connections = list(self._connections())
        others = any(one.is_up for one in connections)
        known, self._masters = self._masters, {}
        for one in connections:
            master = self._masters[one.address] = known.get(one.address) or _Master(moment + _START_TIMEOUT)
            if one.is_up:
                self._on_up(one.address, master, moment)
            elif one.connections.has_reported_failure:
                master.is_reported, master.repeat_at = True, moment + _REPEAT_INTERVAL
            elif moment >= (master.repeat_at if master.is_reported else master.due):
                self._on_down(one.address, master, others=others)
                master.due, master.repeat_at = moment + _REPORT_INTERVAL, moment + _REPEAT_INTERVAL

    def _on_up(self, address: str, master: _Master, moment: float) -> None:
        if master.is_reported:
            self._log(f"master {address} is connected")
        elif not master.was_up:
            master.due = moment
        master.is_reported, master.was_up = False, True

    def _on_down(self, address: str, master: _Master, *, others: bool) -> None:
        master.is_reported = True
        hint = "" if master.was_up else " yet; check its address, and that it is running"
        effect = "the other masters take over" if others else _NO_MASTER
        self._log(f"warning: master {address} is not connected{hint}; {effect}")
