"""The data plane of HAProxy: it writes the holds into a map, by which HAProxy rejects requests.

HAProxy decides by the map alone, so it never waits for the sidecar, and a hold ends on time without it. Each exchange
with the runtime socket is a connection of its own: an open one would keep the old process of a reload alive. A new
process is found by the version of its map, and receives all holds. docs/decisions/0075-haproxy.md has the reasons.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from heapq import heappop, heappush, heappushpop
from itertools import islice
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict

from headgate.config.tree import Sidecar
from headgate.errors import ConfigurationError, WireError, reason_of
from headgate.limit import DelayUntil, Gatekeeper
from headgate.limit.messages import to_milliseconds
from headgate.origin.response import Rejections
from headgate.origin.sidecar.data_plane import Details
from headgate.origin.sidecar.haproxy_accounting import ACCOUNTING_SUFFIX, AccountingReader
from headgate.origin.sidecar.haproxy_map import MAX_ENTRIES, MapCommands, MapEntries, MapState, check_done
from headgate.origin.sidecar.unix_socket import UnixSocket

_CHECK_INTERVAL: Final = 0.25
"""Seconds between two checks whether HAProxy is still the process that has received the holds."""
_TIMEOUT: Final = 2.0
"""Seconds for one exchange with the runtime socket."""
_IDLE_PART: Final = 1.0
"""The sidecar waits this many times as long as HAProxy took for a change, so that requests come first."""
_MAX_CHANGES: Final = 32
"""Entries changed or removed one by one: for each HAProxy searches the whole map, so replacing it costs less."""
_SPARE_PART: Final = 10
"""The part of a full map, one of so many, that is left to new holds: each replacement of it takes time."""
_MAX_CONNECTIONS: Final = 4
"""Connections to the runtime socket at once; HAProxy permits 10 by default (`stats maxconn`)."""
_MAX_PENDING: Final = 10_000
"""Holds that wait for HAProxy; with more, the whole map is replaced."""
_MAX_ANSWER: Final = 1 << 20
_MAX_MAP_SIZE: Final = 1 << 27
"""Bytes of the answer with all entries of a map."""
_LATEST: Final = 4e9
"""Seconds since 1970; a hold without an end is written as one until then, the year 2096."""


class Counters(Struct):
    """Totals of the data plane since the start."""

    holds_sent: int = 0
    """Holds written into the map one by one."""
    synchronizations: int = 0
    """Times that all entries of the map were replaced."""
    errors: int = 0
    """Failed exchanges with the runtime socket."""
    left_out: int = 0
    """Holds for which the map had no space, counted each time that it was replaced."""


class HAProxy:
    """The data plane of one HAProxy, in whose map it keeps the holds of one domain; see `data_plane.DataPlane`."""

    def __init__(
        self,
        *,
        gatekeeper: Gatekeeper,
        rejections: Rejections,  # noqa: ARG002  # they are in the configuration of HAProxy
        settings: Sidecar,
        domains: Sequence[str],
        log: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        try:
            self._commands = MapCommands(settings.map)
        except ConfigurationError as error:
            raise ConfigurationError(f"sidecar.map: {error}") from None
        self._gatekeeper = gatekeeper
        self._settings = settings
        (self._domain,) = domains
        self._log = log
        self._clock = clock
        self._counters = Counters()
        self._reader = AccountingReader(
            self._domain, lambda accounting, now: gatekeeper.report(accounting, now=now), clock
        )
        self._socket: UnixSocket | None = None
        self._server: asyncio.Server | None = None
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._pending: dict[bytes, int] = {}
        self._is_incomplete = False
        """Whether pending holds were dropped since all holds were read from the gatekeeper."""
        self._has_adopted = False
        """Whether the entries that the map had at first have been read."""
        self._entries = MapEntries()
        self._version = 0
        """The version of the map that has the holds; 0 if none is known to have them."""
        self._problem = "no answer from HAProxy yet"

    async def start(self) -> None:
        """Listen for reports, and begin to write holds."""
        path = self._settings.haproxy + ACCOUNTING_SUFFIX
        self._socket = UnixSocket(path, mode=self._settings.mode, flag="--haproxy")
        self._server = await self._socket.serve(self._reader)
        method = self._settings.identify
        if method != "client-address":
            self._log(f"HAProxy identifies clients by its own configuration; print it with --identify {method}")
        # HAProxy usually runs already: then it has the holds when the sidecar is ready.
        await self._step()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def hold(self, control: DelayUntil, *, now: float) -> None:  # noqa: ARG002  # HAProxy has a clock of its own
        """Write a hold into the map within milliseconds."""
        if len(self._pending) >= _MAX_PENDING:
            self._pending.clear()
            self._is_incomplete = True
        self._pending[control.identifier] = _end(control.release)
        self._changed.set()

    def unready(self) -> str:
        """Return why HAProxy does not have the holds."""
        return self._problem

    def counters(self) -> dict[str, int]:
        """Return the totals since the start."""
        return asdict(self._counters) | asdict(self._reader.counters)

    def details(self) -> Details:
        """Return what is known of HAProxy."""
        return {
            "map": self._settings.map,
            "is_synchronized": not self._problem,
            "entries": len(self._entries.ends),
            "connections": len(self._reader.connections),
        }

    async def close(self) -> None:
        """Close all sockets; holds stay in the map until they end."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._server is not None:
            self._server.close()
        self._reader.close()
        if self._socket is not None:
            self._socket.close()

    # -- the map -------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            await self._step()
            await asyncio.sleep(_CHECK_INTERVAL if self._problem else (clock() - began) * _IDLE_PART)
            with suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_INTERVAL):
                    await self._changed.wait()

    async def _step(self) -> None:
        """Do what is due: check the map, replace it or change it. A failure is logged once."""
        self._changed.clear()
        try:
            # Any doubt about what the map has ends with its replacement.
            if self._version and await self._state() != MapState(self._version, len(self._entries.ends)):
                self._version = 0
            if self._version and not self._is_incomplete:
                await self._change()
            else:
                await self._replace()
        except (OSError, WireError) as error:
            self._version = 0
            self._counters.errors += 1
            self._report_problem(reason_of(error) if isinstance(error, OSError) else str(error))
        else:
            self._report_problem("")

    def _report_problem(self, reason: str) -> None:
        problem = f"HAProxy at {self._settings.haproxy} does not have the holds: {reason}" if reason else ""
        if problem != self._problem:
            self._problem = problem
            self._log(problem or f"HAProxy at {self._settings.haproxy} has {len(self._entries.ends)} holds")

    async def _state(self) -> MapState:
        return self._commands.read_state(await self._ask(self._commands.state()))

    async def _replace(self) -> None:
        """Replace all entries of the map by the holds in force; HAProxy uses the old ones until all new are there."""
        if not self._has_adopted:
            await self._adopt()
        version = self._commands.read_version(await self._ask(self._commands.prepare()))
        self._pending.clear()
        self._is_incomplete = False
        ends = await self._holds()
        await self._execute(self._commands.add(ends.items(), version))
        check_done(await self._ask(self._commands.commit(version)))
        self._entries, self._version = MapEntries(ends), version
        self._counters.synchronizations += 1

    async def _adopt(self) -> None:
        """Read the holds that another sidecar has written, such as one that was killed: they stay in force."""
        answer, now = await self._ask(self._commands.entries(), _MAX_MAP_SIZE), self._clock()
        for identifier, end in self._commands.read_entries(answer):
            if end > now * 1_000.0:
                self._gatekeeper.obey(DelayUntil(self._domain, identifier, end / 1_000.0), now=now)
        self._has_adopted = True

    async def _holds(self) -> dict[bytes, int]:
        """Return the holds in force by identifier, and let other tasks run in between.

        If they are too many, it is those that end last, and a part of the map stays free for new ones.
        """
        latest: list[tuple[int, bytes]] = []
        for batch in self._gatekeeper.holds(self._domain, now=self._clock()):
            for name, release in batch:
                if len(latest) < MAX_ENTRIES:
                    heappush(latest, (_end(release), name))
                else:
                    heappushpop(latest, (_end(release), name))
                    self._counters.left_out += 1
            await asyncio.sleep(0)
        if len(latest) == MAX_ENTRIES:
            for _ in range(max(1, MAX_ENTRIES // _SPARE_PART)):
                heappop(latest)
                self._counters.left_out += 1
        return {name: end for end, name in latest}

    async def _change(self) -> None:
        """Write the holds that are new or were extended, and remove those that have ended."""
        now, known = to_milliseconds(self._clock()), self._entries.ends
        pending = {name: end for name, end in self._pending.items() if end > now}
        self._pending = {}
        extended = [(name, end) for name, end in pending.items() if name in known]
        for name, end in extended:
            self._entries.put(name, end)
        ended = self._entries.remove_ended(now, _MAX_CHANGES + 1)
        if len(extended) + len(ended) > _MAX_CHANGES:
            await self._replace()
            return
        added = [(name, end) for name, end in pending.items() if name not in known]
        if len(known) + len(added) > MAX_ENTRIES:
            await self._replace()
            return
        for name, end in added:
            self._entries.put(name, end)
        await self._execute(self._commands.add(added))
        await self._execute(self._commands.change(extended, ended))
        self._counters.holds_sent += len(added) + len(extended)

    async def _execute(self, commands: Iterable[str]) -> None:
        """Execute commands in any order, some at once: a busy HAProxy takes milliseconds for each."""
        left = iter(commands)
        while group := list(islice(left, _MAX_CONNECTIONS)):
            for answer in await asyncio.gather(*map(self._ask, group)):
                check_done(answer)

    async def _ask(self, command: str, most: int = _MAX_ANSWER) -> str:
        """Send a command to the runtime socket; return its answer. Raises `OSError` and `WireError`."""
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(_TIMEOUT):
                reader, writer = await asyncio.open_unix_connection(self._settings.haproxy, limit=_MAX_ANSWER)
                writer.write(command.encode())
                await writer.drain()
                answer = bytearray()
                # HAProxy closes the connection at the end of its answer.
                while data := await reader.read(_MAX_ANSWER):
                    answer += data
                    if len(answer) > most:
                        raise WireError(f"the answer of HAProxy has more than {most} bytes")
        except TimeoutError:
            raise WireError(f"no answer for {_TIMEOUT:g} s") from None
        finally:
            if writer is not None:
                writer.close()
        return answer.decode(errors="replace")


def _end(release: float) -> int:
    """Return the end of a hold in milliseconds, rounded up, so that no hold ends early."""
    return to_milliseconds(min(release, _LATEST))
