"""A master for gatekeepers in other processes or on other machines."""

import asyncio
import select
import sys
import time
from collections.abc import Callable
from typing import Final

import msgspec

from headgate.config import Configuration, log_warnings
from headgate.limit import Master
from headgate.link import MasterLink
from headgate.runtime.lifecycle import Lifecycle, Server, run_server

_REPORT_INTERVAL: Final = 1.0

ReadConfiguration = Callable[[], tuple[Configuration, str | None]]
"""Reads the configuration; also returns the name of its file, if there is one."""


def run_master(read: ReadConfiguration, *, as_json: bool) -> int:
    """Run a master until a signal stops it, with a line of counts each second if `as_json`; returns the exit code."""
    return run_server(_MasterServer(read, as_json=as_json))


class _MasterServer(Server):
    """A master in its life-cycle. It has nothing to drain: gatekeepers reconnect by themselves."""

    def __init__(self, read: ReadConfiguration, *, as_json: bool) -> None:
        super().__init__()
        self._read = read
        self._as_json = as_json
        self._tree, _ = read()
        self._reporting: asyncio.Task[None] | None = None

    async def start(self, lifecycle: Lifecycle) -> None:
        link = self._link = MasterLink(_new_master(self._tree), f"tcp://{self._tree.master.listen}")
        self.closing.callback(link.close)
        loop = asyncio.get_running_loop()
        link.start(loop)
        if self._as_json:
            self._reporting = loop.create_task(_report(link, lifecycle.fail))

    def announce(self) -> None:
        log_warnings(self._tree, self.log)
        accounting, control = self._link.endpoints
        self.log(f"headgate: domains {len(self._link.master.domains)} control {control}")
        # Scripts read the address from this line, so it contains nothing else.
        self.log(f"ready {accounting}")

    async def reload(self) -> None:
        tree, file = self._read()
        if file is None:
            self.log("headgate: nothing to reload: started without a configuration file")
            return
        master = _new_master(tree)
        master.adopt(self._link.master)
        self._link.set_master(master)
        log_warnings(tree, self.log)
        rest = "; a restart is needed for master.listen" if tree.master.listen != self._tree.master.listen else ""
        self.log(f"headgate: {file} read again{rest}")

    async def close(self) -> None:
        if self._reporting is not None:
            self._reporting.cancel()
            await asyncio.gather(self._reporting, return_exceptions=True)
        await super().close()


def _new_master(tree: Configuration) -> Master:
    return Master((section.domain() for section in tree.domain), max_identifiers=tree.master.max_identifiers)


def read_counts(link: MasterLink, now: float) -> dict[str, object]:
    """Return what a line of `--json` shows: totals since the start, by domain and of the bus."""
    totals = link.master.totals
    return {
        "time": round(now, 3),
        "accepted": sum(one.accepted for one in totals.values()),
        "delayed": sum(one.delayed for one in totals.values()),
        "rejected": sum(one.rejected for one in totals.values()),
        "unknown": link.master.unknown,
        "ahead": link.master.ahead,
        "clock_steps": link.master.clock.steps,
        "identifiers": len(link.master),
        "domains": {name: msgspec.structs.asdict(one) for name, one in totals.items()},
        **msgspec.structs.asdict(link.counters),
    }


async def _report(link: MasterLink, fail: Callable[[BaseException], None]) -> None:
    """Write a line every second. A reader that does not read misses lines; one that is gone ends the master."""
    try:
        while True:
            await asyncio.sleep(_REPORT_INTERVAL)
            if select.select([], [sys.stdout], [], 0)[1]:
                sys.stdout.write(msgspec.json.encode(read_counts(link, time.time())).decode() + "\n")
                sys.stdout.flush()
    except Exception as error:
        fail(error)
