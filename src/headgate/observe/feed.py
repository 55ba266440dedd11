"""What the dashboard shows, as server-sent events: first the last 15 minutes, then each second what is new.

`GET /events` sends two kinds of events, with JSON as data:

- `history`, once. `kind` (gate, master, router, proxy or sidecar), `version`, `instance`; `columns`, the names of the
  values of a row; `bounds`, the upper bounds of histograms in seconds; `rows`, the oldest first; `acts`: off, no token
  or token.
- `second`: `row`, and `now`, which every server has (`unready`, `reload_successful`, `reloaded`, `workers`) in addition
  to its own parts (see the `overview` of the server). `now.minute` has, by table such as domains, the number of its
  rows (`total`), and counts of the last minute by name for the rows used most (`rows`, at most 50).

The first value of a row is the time, seconds since 1970. The others are sums over all processes: counts since the
row before (a list for a histogram: the number of values up to each bound, the last one above all), and gauges.
"""

import asyncio
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from heapq import nlargest
from operator import add, sub
from platform import node
from typing import Any, Final, Protocol

import msgspec

from headgate.histogram import SECONDS
from headgate.observe.state import OUTCOMES, ServerState
from headgate.version import VERSION

_HISTORY: Final = 900
"""Rows that are kept, one a second: at most 0.5 MB."""
_MAX_VIEWERS: Final = 16
_MAX_QUEUED: Final = 4
"""Events that a viewer may be behind."""
_MAX_SILENT: Final = 32
"""Processes that do not answer, or have ended, whose counts are remembered."""
MAX_ROWS: Final = 50
"""Rows of each table of an overview."""
_SNAPSHOTS: Final = 6
_SNAPSHOT_INTERVAL: Final = 10.0
_SHARE: Final = 10
"""An overview that takes long is made once in so many times as long."""

Minute = dict[str, dict[str, Any]]
"""What was counted in the last minute, by table: `total`, and `rows`, counts by name."""


class Sample(msgspec.Struct):
    """What one process has counted since its start, and its gauges."""

    counts: dict[str, Any] = {}
    """Numbers, and lists for histograms."""
    gauges: dict[str, Any] = {}
    tables: dict[str, dict[str, list[int]]] = {}
    """Counts by table and name, where they were asked for. The sum of the first three says how much a row is used."""
    process: int = msgspec.field(default_factory=os.getpid)


class Overviewed(Protocol):
    """A server that has a dashboard."""

    kind: str
    """Which dashboard it has."""

    def unready(self) -> str:
        """Return why no client is accepted; empty when they are."""

    def server_state(self) -> ServerState:
        """Return what every server has besides its state."""

    async def samples(self, *, tables: bool) -> list[Sample]:
        """Return what each process has counted; tables only if they are asked for."""

    async def overview(self, minute: Minute) -> dict[str, Any]:
        """Return what else is shown now, as JSON; of tables only the rows of `minute`."""


class Viewers(dict["asyncio.Queue[bytes]", str]):
    """The queues of those that watch, and their addresses, the oldest first. A stream ends with an empty event."""

    def join(self, address: str) -> "asyncio.Queue[bytes]":
        """Return a new queue. If there are too many, it replaces the oldest of the address that has most."""
        if len(self) >= _MAX_VIEWERS:
            streams = Counter(self.values())
            self.end(max(self, key=lambda queue: streams[self[queue]]))
        queue = asyncio.Queue[bytes](_MAX_QUEUED)
        self[queue] = address
        return queue

    def send(self, event: bytes) -> None:
        """Queue an event for all; end those whose queue is full."""
        for queue in list(self):
            if queue.full():
                self.end(queue)
            else:
                queue.put_nowait(event)

    def end(self, queue: "asyncio.Queue[bytes]") -> None:
        """End a stream."""
        self.pop(queue, None)
        if queue.full():
            queue.get_nowait()
        queue.put_nowait(b"")


class Feed:
    """Reads a server once a second for all viewers together: sums always, tables only while there are viewers."""

    def __init__(self, server: Overviewed, *, log: Callable[[str], None] = lambda _line: None) -> None:
        self.viewers = Viewers()
        """Those that watch."""
        self._server, self._log = server, log
        self._columns: list[str] = []
        self._rows: deque[bytes] = deque(maxlen=_HISTORY)
        self._before: dict[int, Sample] = {}
        self._totals: dict[str, dict[str, list[int]]] = {}
        self._snapshots: deque[dict[str, dict[str, list[int]]]] = deque([{}], maxlen=_SNAPSHOTS)
        self._next_snapshot = self._next_overview = 0.0

    async def run(self) -> None:
        """Read the server each second, until cancelled."""
        while True:
            await asyncio.sleep(1.02 - time.time() % 1)  # a timer may be early by a millisecond
            try:
                await self.tick(time.time())
            except Exception as error:  # the server goes on without a dashboard
                self._log(f"internal error in the dashboard: {error!r}")
                self._log = lambda _line: None  # once: it would be repeated each second

    async def tick(self, now: float) -> None:
        """Add the row of a second, and send it to the viewers."""
        is_looked_at = bool(self.viewers) and now >= self._next_overview
        is_snapshot = now >= self._next_snapshot
        samples = await self._server.samples(tables=is_looked_at or is_snapshot)
        if not samples:
            return
        row = self._add(now, samples)
        if is_snapshot:
            self._next_snapshot = now + _SNAPSHOT_INTERVAL
            self._snapshots.append(dict(self._totals))
        event = b'{"row":%b' % row
        if is_looked_at:
            started = time.monotonic()
            event += b',"now":%b' % msgspec.json.encode(await self._now())
            self._next_overview = now + _SHARE * (time.monotonic() - started) - 1
        self.viewers.send(b"event: second\ndata: %b}\n\n" % event)

    def history(self, acts: str = "off") -> bytes:
        """Return the first event of a viewer, with what a browser may do."""
        about = {
            "kind": self._server.kind,
            "version": VERSION,
            "instance": node(),
            "acts": acts,
            "columns": ["time", *self._columns],
            "bounds": SECONDS,
            "rows": [msgspec.Raw(row) for row in self._rows],
        }
        return b"retry: 1000\nevent: history\ndata: %b\n\n" % msgspec.json.encode(about)

    def _add(self, now: float, samples: list[Sample]) -> bytes:
        """Return a new row of the history; add to the totals of the tables."""
        counts: dict[str, Any] = {}
        gauges: dict[str, float] = {}
        tables: dict[str, dict[str, list[int]]] = {}
        for sample in samples:
            before = self._before.pop(sample.process, None) or Sample()
            counts = _plus(counts, _minus(sample.counts, before.counts))
            for name, value in sample.gauges.items():
                known = gauges.get(name, 0)
                # Each worker of a gate has all holds of its master.
                gauges[name] = max(known, value) if name == "holds" else known + value
            if sample.tables:
                tables = _plus(tables, _minus(sample.tables, before.tables))
            self._before[sample.process] = msgspec.structs.replace(sample, tables=sample.tables or before.tables)
        for process in list(self._before)[: -len(samples) - _MAX_SILENT]:
            del self._before[process]
        if tables:
            self._totals = {
                name: {row: _plus(self._totals.get(name, {}).get(row), new) for row, new in rows.items()}
                for name, rows in tables.items()
            }
        self._columns = [*counts, *gauges]
        self._rows.append(msgspec.json.encode([round(now, 1), *counts.values(), *gauges.values()]))
        return self._rows[-1]

    async def _now(self) -> dict[str, Any]:
        before = self._snapshots[0]
        minute: Minute = {}
        for name, rows in self._totals.items():
            counted = _minus(rows, before.get(name))
            most = nlargest(MAX_ROWS, counted.items(), key=_use)
            minute[name] = {"total": len(rows), "rows": dict(most)}
        state = msgspec.to_builtins(self._server.server_state())
        return {"unready": self._server.unready(), **state, "minute": minute, **await self._server.overview(minute)}


def sum_verdicts(rows: Iterable[list[int]]) -> dict[str, int]:
    """Return the sums of the first three counts of the rows of domains, by outcome."""
    rows = list(rows)
    return {outcome: sum(row[at] for row in rows) for at, outcome in enumerate(OUTCOMES)}


def _use(row: tuple[str, list[int]]) -> int:
    return sum(row[1][:3])


def _minus(new: Any, old: Any) -> Any:
    """Return how much counts have grown, in numbers, lists or dictionaries; after a restart they begin at 0."""
    if old is None:
        return new
    if isinstance(new, dict):
        return {name: _minus(value, old.get(name)) for name, value in new.items()}
    if isinstance(new, list):
        # Most rows of a large table have not changed.
        return [max(0, grown) for grown in map(sub, new, old)] if new != old else [0] * len(new)
    return max(0, new - old)


def _plus(one: Any, other: Any) -> Any:
    """Return the sum of counts."""
    if not one:
        return other
    if isinstance(other, dict):
        return one | {name: _plus(one.get(name), value) for name, value in other.items()}
    return list(map(add, one, other)) if isinstance(other, list) else one + other
