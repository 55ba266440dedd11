"""The data plane of HAProxy: it writes the holds into a stick table, by which HAProxy rejects requests.

HAProxy decides by the table alone, so it never waits for the sidecar, and a hold ends on time without it. Each exchange
with the runtime socket is a connection of its own: an open one would keep the old process of a reload alive. A new
process is found by a mark that is missing in its table, and receives all holds. The other socket receives lines about
requests, which HAProxy reports while it processes them (`haproxy.lua`).

A key of the table is an identifier in percent-encoding, as HAProxy's converter `url_enc` writes it: only letters,
digits and the characters ``-._~%``. So no identifier can end a command or an argument, whatever its bytes are. A value
has 32 bits: the end of the hold in hundredths of a second since 1970, without the bits above these, so HAProxy
calculates modulo 2^32. An entry that has not been written for as long as a hold can be expires by itself.
"""

import asyncio
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from headgate.errors import WireError, fail_if, naming, reason_of
from headgate.limit import Accounting, DelayUntil
from headgate.limit.messages import short_identifier, to_milliseconds
from headgate.origin.sidecar.data_plane import DataPlane, Details, PlaneConnection
from headgate.release import Status

ACCOUNTING_SUFFIX: Final = ".accounting"
"""What follows the path of the runtime socket of HAProxy in the path of the socket for its reports."""
MAX_COMMAND_SIZE: Final = 8_000
"""Bytes sent to HAProxy at once; its buffer has 16 KiB unless the operator has made it smaller."""
MAX_LINE_SIZE: Final = 4_096
"""Bytes of a line; a connection with a longer one is closed."""

_CHECK_INTERVAL: Final = 0.25
"""Seconds between two checks whether HAProxy is still the process that has received the holds."""
_TIMEOUT: Final = 2.0
"""Seconds for one exchange with the runtime socket."""
_MAX_PENDING: Final = 10_000
"""Holds that wait for HAProxy; with more, all holds in force are written."""
_MAX_ANSWER: Final = 1 << 20

_LINE: Final = re.compile(rb"([0-9]{1,15}) (-?[0-9]{1,15}) ([A-Za-z0-9._~%-]+)")
_DROPPED: Final = re.compile(rb"dropped ([0-9]{1,15})")
_NAME: Final = re.compile(r"[A-Za-z0-9._:-]+")


def check_table_name(name: str) -> None:
    """Raise `ConfigurationError` for a text that is not the name of a table, or could be read as something else."""
    fail_if(
        not _NAME.fullmatch(name),
        f"invalid table {name!r}; expected the name of a backend or peers section with a stick-table, of letters, "
        "digits and the characters ._:-",
    )


def encode_key(identifier: bytes) -> str:
    """Return the key of an identifier."""
    return quote_from_bytes(identifier, safe="")


def encode_end(release: float) -> int:
    """Return the value for the end of a hold: rounded up, so that no hold ends early, and not 0, which means none."""
    return (-(-to_milliseconds(release) // 10) & 0xFFFFFFFF) or 1


def set_commands(table: str, holds: Iterable[tuple[bytes, float]]) -> Iterator[str]:
    """Yield groups of commands that write holds, identifiers and release times, into a table."""
    group = ""
    for identifier, release in holds:
        command = f"set table {table} key {encode_key(identifier)} data.gpt0 {encode_end(release)}"
        if group and len(group) + len(command) > MAX_COMMAND_SIZE:
            yield group + "\n"
            group = ""
        group += f";{command}" if group else command
    if group:
        yield group + "\n"


def check_done(answer: str) -> None:
    """Raise `WireError` unless an answer says that all commands have been executed: then it has only line feeds."""
    if answer.strip():
        raise WireError(f"HAProxy did not change the table: {answer.strip()[:200]!r}")


class HAProxy(DataPlane):
    """The data plane of one HAProxy, in whose table it keeps the holds of one domain."""

    key = "haproxy"

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        with naming("sidecar.table"):
            check_table_name(self.settings.table)
        (self._domain,) = self.domains
        self._changed = asyncio.Event()
        self._pending: dict[bytes, float] = {}
        self._is_incomplete = False
        """Whether pending holds were dropped since all holds were written."""
        # An identifier cannot have this key: ":" is percent-encoded.
        self._mark = f"headgate:{time.time_ns()}"
        self._problem = "no answer from HAProxy yet"

    async def start(self) -> None:
        """Listen for reports, and begin to write holds."""
        await self.listen(lambda: _Connection(self), ACCOUNTING_SUFFIX)
        self.log_identify("HAProxy")
        # HAProxy usually runs already: then it has the holds when the sidecar is ready.
        await self._step()
        self.run(self._write_changes())

    def hold(self, control: DelayUntil, *, now: float) -> None:  # noqa: ARG002  # HAProxy has a clock of its own
        """Write a hold into the table within milliseconds."""
        if len(self._pending) >= _MAX_PENDING:
            self._pending.clear()
            self._is_incomplete = True
        self._pending[control.identifier] = control.release
        self._changed.set()

    def unready(self) -> str:
        """Return why HAProxy does not have the holds."""
        return self._problem

    def details(self) -> Details:
        """Return what is known of HAProxy."""
        return super().details() | {"table": self.settings.table, "is_synchronized": not self._problem}

    # -- the table -----------------------------------------------------------------------------------------------

    async def _write_changes(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_INTERVAL):
                    await self._changed.wait()
            await self._step()
            if self._problem:
                await asyncio.sleep(_CHECK_INTERVAL)

    async def _step(self) -> None:
        """Check whether the process is the same, and write what it does not have. A failure is logged once."""
        self._changed.clear()
        try:
            if await self._has_mark() and not self._is_incomplete:
                pending, self._pending = self._pending, {}
                await self._write(pending.items())
                self.totals.holds_sent += len(pending)
            else:
                await self._write_all()
        except (OSError, WireError) as error:
            self._is_incomplete = True
            self.totals.failed["errors"] += 1
            self._report_problem(reason_of(error) if isinstance(error, OSError) else str(error))
        else:
            self._report_problem("")

    def _report_problem(self, reason: str) -> None:
        problem = f"HAProxy at {self.settings.haproxy} does not have the holds: {reason}" if reason else ""
        if problem != self._problem:
            self._problem = problem
            self.log(problem or f"HAProxy at {self.settings.haproxy} has the holds")

    async def _has_mark(self) -> bool:
        """Return whether the table has the mark, and renew it if so. Raises `WireError` if there is no table."""
        table = self.settings.table
        answer = (await self._ask(f"show table {table} key {self._mark}\n")).strip()
        if answer and f" key={self._mark} " not in answer:
            raise WireError(f"no table {table!r} as --print-conf shows it ({answer[:200]!r})")
        if answer:
            await self._set_mark()
        return bool(answer)

    async def _set_mark(self) -> None:
        check_done(await self._ask(f"set table {self.settings.table} key {self._mark} data.gpt0 1\n"))

    async def _write_all(self) -> None:
        """Write all holds in force; those of an earlier sidecar stay in the table until they end."""
        self._pending.clear()
        self._is_incomplete = False
        for batch in self.gatekeeper.holds(self._domain, now=self.clock()):
            await self._write(batch)
        await self._set_mark()
        self.totals.synchronizations += 1

    async def _write(self, holds: Iterable[tuple[bytes, float]]) -> None:
        for commands in set_commands(self.settings.table, holds):
            check_done(await self._ask(commands))

    async def _ask(self, command: str) -> str:
        """Send a command to the runtime socket; return its answer. Raises `OSError` and `WireError`."""
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(_TIMEOUT):
                reader, writer = await asyncio.open_unix_connection(self.settings.haproxy)
                writer.write(command.encode())
                await writer.drain()
                # HAProxy closes the connection at the end of its answer.
                answer = b""
                while (data := await reader.read(_MAX_ANSWER)) and len(answer) < _MAX_ANSWER:
                    answer += data
        except TimeoutError:
            raise WireError(f"no answer for {_TIMEOUT:g} s") from None
        finally:
            if writer is not None:
                writer.close()
        return answer.decode(errors="replace")

    # -- reports -------------------------------------------------------------------------------------------------

    def read(self, line: bytes) -> None:
        """Process a line: milliseconds since 1970, those that remained of a hold if it has rejected, and the key.

        A line `dropped N` says that HAProxy could not send N lines. Any process that may write to the socket can
        connect: malformed lines are counted and dropped.
        """
        if (found := _LINE.fullmatch(line)) is not None:
            received, rest = int(found[1]) / 1_000.0, int(found[2])
            status = Status.REJECTED if rest > 0 else Status.ACCEPTED
            identifier = short_identifier(unquote_to_bytes(found[3]))
            release = received + max(0, rest) / 1_000.0
            self.gatekeeper.report(Accounting(self._domain, status, identifier, received, release), now=self.clock())
        elif (dropped := _DROPPED.fullmatch(line)) is not None:
            self.totals.dropped += int(dropped[1])
        else:
            self.totals.failed["malformed"] += 1


class _Connection(PlaneConnection[HAProxy]):
    """A connection on which HAProxy reports requests, one a line."""

    _rest = b""

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self.plane.read(line)
        if len(self._rest) > MAX_LINE_SIZE:
            self.plane.read(self._rest)
            self._rest = b""
            self.close()
