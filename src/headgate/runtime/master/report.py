"""The lines of `headgate master --json`: counts, one line per second."""

import asyncio
import select
import sys
import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from headgate.link import MasterLink

_REPORT_INTERVAL: Final = 1.0


def read_counts(link: MasterLink, store: Mapping[str, object], now: float) -> dict[str, object]:
    """Return what a line of `--json` shows: totals since the start, by domain and of the bus and of the store."""
    totals = link.master.totals
    return {
        "time": round(now, 3),
        "accepted": sum(one.accepted for one in totals.values()),
        "delayed": sum(one.delayed for one in totals.values()),
        "rejected": sum(one.rejected for one in totals.values()),
        "unknown": link.master.unknown,
        "ahead": link.master.ahead,
        "late": link.master.late,
        "shortened": link.master.shortened,
        "clock_steps": link.master.clock.steps,
        "identifiers": len(link.master),
        "domains": {name: msgspec.structs.asdict(one) for name, one in totals.items()},
        **msgspec.structs.asdict(link.counters),
        **store,
    }


async def report(
    link: MasterLink, store: Callable[[], Mapping[str, object]], fail: Callable[[BaseException], None]
) -> None:
    """Write a line every second. A reader that does not read misses lines; one that is gone ends the master."""
    try:
        while True:
            await asyncio.sleep(_REPORT_INTERVAL)
            if select.select([], [sys.stdout], [], 0)[1]:
                sys.stdout.write(msgspec.json.encode(read_counts(link, store(), time.time())).decode() + "\n")
                sys.stdout.flush()
    except Exception as error:
        fail(error)
