"""A master's life: bus and core put together, counted, changed and ended."""

import asyncio
import select
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from headgate.config import Configuration
from headgate.errors import HeadgateError
from headgate.limit import Master
from headgate.link import MasterLink
from headgate.runtime.event_loop import Signals, run, say
from headgate.runtime.gate.build import warn

__all__ = ["counts", "serve_master"]

_EVERY = 1.0

Read = Callable[[], tuple[Configuration, str | None]]


def serve_master(read: Read, *, as_json: bool) -> int:
    """Serve until a signal ends it; returns the exit code."""
    return run(lambda: _serve(read, as_json=as_json))


async def _serve(read: Read, *, as_json: bool) -> int:
    tree, _ = read()
    loop = asyncio.get_running_loop()
    link = MasterLink(_master_of(tree), f"tcp://{tree.master.listen}")
    counting: asyncio.Task[None] | None = None
    try:
        signals = Signals(lambda: _read_again(read, link, tree.master.listen))
        link.start(loop)
        if as_json:
            counting = loop.create_task(_count(link))
        warn(tree, say)
        accounting, control = link.endpoints
        say(f"headgate: domains {len(link.master.domains)} control {control}")
        # Whoever waits for this line takes the address from it: it has no other.
        say(f"ready {accounting}")
        stopped = loop.create_task(signals.asked.wait())
        await asyncio.wait([stopped, *([counting] if counting else [])], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if counting is not None and counting.done():
            counting.result()
    finally:
        if counting is not None:
            counting.cancel()
            with suppress(asyncio.CancelledError):
                await counting
        link.close()
    return 0


def _master_of(tree: Configuration) -> Master:
    return Master((section.domain() for section in tree.domain), max_identifiers=tree.master.max_identifiers)


def _read_again(read: Read, link: MasterLink, listen: str) -> None:
    try:
        tree, file = read()
        master = _master_of(tree)
    except (HeadgateError, OSError) as error:
        say(f"headgate: {error}; the configuration in force stays as it is")
        return
    if file is None:
        say("headgate: there is no configuration file to read again")
        return
    master.adopt(link.master)
    link.change(master)
    warn(tree, say)
    rest = "; a restart is needed for master.listen" if tree.master.listen != listen else ""
    say(f"headgate: {file} read again{rest}")


def counts(link: MasterLink, now: float) -> dict[str, object]:
    """Give what a line of `--json` says: totals since the start, by domain and of the bus."""
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


async def _count(link: MasterLink) -> None:
    """Write a line every second; whoever does not read misses lines, and does not stop the master."""
    while True:
        await asyncio.sleep(_EVERY)
        if not select.select([], [sys.stdout], [], 0)[1]:
            continue
        sys.stdout.write(msgspec.json.encode(counts(link, time.time())).decode() + "\n")
        sys.stdout.flush()
