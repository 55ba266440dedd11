"""The data plane of nginx with Lua: workers connect here, receive holds, and report their verdicts.

`headgate.lua`, which runs in nginx, decides on each request by a dictionary that all workers of one nginx share. So an
nginx (an instance) receives each hold once, through one of its connections. If that connection closes or is too slow,
another one is chosen, and all holds in force are sent again. nginx may be reloaded, restarted or killed, and there may
be several. docs/decisions/sidecars.md has the reasons.

Both sides send records: ``KIND NUMBER NUMBER SIZE BYTES LF``, a word of lower-case letters, three decimal numbers, as
many bytes as the third one says, and a line feed. `BYTES` may be any bytes. A receiver ignores kinds that it does not
know. From a worker: `hello` (version, number of workers; the name of their nginx), `accepted`, `delayed` and `rejected`
(received, release; DOMAIN NUL IDENTIFIER) and `status` (verdicts dropped and holds evicted since the last one).
To a worker: `settings` (its bytes are records, see lua/headgate/sidecar.lua), `hold` (release; DOMAIN NUL IDENTIFIER),
`clear` and `alive`. Instants are milliseconds since 1970.
"""

import asyncio
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from headgate.config.tree import Sidecar
from headgate.errors import WireError
from headgate.limit import Accounting, DelayUntil, Gatekeeper
from headgate.limit.messages import STATUSES, to_milliseconds
from headgate.origin.identify import MAX_IDENTIFIER_SIZE, Header, parse_identify
from headgate.origin.pages import PROBLEM
from headgate.origin.response import Rejections
from headgate.origin.sidecar.data_plane import DataPlane, Details, PlaneConnection
from headgate.origin.sidecar.site import rejection_template
from headgate.release import Status

VERSION = 2
"""The version of the records, which a worker names in its `hello`."""

MAX_RECEIVED_BYTES = 2_048
"""Maximum bytes in a record of a worker: a domain, NUL and an identifier."""
MAX_BUFFERED: Final = 1 << 20
"""Bytes that wait for a slow worker before holds are left out; all of them are sent again when it has caught up."""
_TICK: Final = 1.0
"""Seconds between two `alive` records to each worker. A worker sends at least one record in that time."""
_MAX_SILENT_TICKS: Final = 3
"""Ticks in which a worker sends no record, or reads nothing, before its connection is closed."""
_MAX_INSTANCE_SIZE: Final = 64
_LATEST: Final = 4e9
"""Seconds since 1970; a hold without an end is sent as one until then, the year 2096."""
_SECONDS_MARK = b"\1"
"""Where the text of a rejection has the seconds to wait."""
_FORMS = ((b"text", None), (b"problem", PROBLEM))
"""The forms of a rejection by name, with an Accept field that prefers each."""
_HEAD = re.compile(rb"([a-z]{1,16}) ([0-9]{1,15}) ([0-9]{1,15}) ([0-9]{1,7}) ")
_MAX_HEAD = 16 + 15 + 15 + 7 + 4


class Record(NamedTuple):
    """One record."""

    kind: bytes
    first: int
    second: int
    content: bytes


def encode_record(kind: bytes, first: int = 0, second: int = 0, content: bytes = b"") -> bytes:
    """Encode a record; the numbers are not negative."""
    return b"%b %d %d %d %b\n" % (kind, first, second, len(content), content)


class RecordReader:
    """Splits a stream of bytes into records, however it is divided into pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Record]:
        """Yield the records that `data` completes. Raises `WireError` for anything else, and for one that is too long.

        The iterator must be exhausted before the next call.
        """
        data = self._rest + data
        position = 0
        while head := _HEAD.match(data, position):
            start, size = head.end(), int(head[4])
            if size > MAX_RECEIVED_BYTES:
                raise WireError(f"record of {size} bytes; expected at most {MAX_RECEIVED_BYTES}")
            if len(data) <= start + size:
                break
            if data[start + size] != 0x0A:
                raise WireError(f"record of {size} bytes that does not end with a line feed")
            yield Record(head[1], int(head[2]), int(head[3]), data[start : start + size])
            position = start + size + 1
        else:
            if len(data) - position >= _MAX_HEAD:
                raise WireError(f"malformed record {data[position : position + 40]!r}")
        self._rest = data[position:]


class _Instance:
    """One nginx, whose workers share a dictionary of holds."""

    def __init__(self, receiver: "_Connection") -> None:
        self.connections: list[_Connection] = []
        self.receiver = receiver
        """The connection that receives the holds."""
        self.workers = 0
        """Workers of this nginx, as the newest of them says; those of before a reload may be connected, too."""


class _Connection(PlaneConnection["NginxLua"]):
    """The connection of one worker."""

    def __init__(self, plane: "NginxLua") -> None:
        super().__init__(plane)
        self.nginx = b""
        """The name of its nginx; empty until the worker has sent it."""
        self.silent_ticks = 0
        """Ticks since the last record of the worker, or since it stopped reading."""
        self.is_stale = False
        """Whether holds were left out since all holds were sent on this connection."""
        self.writable = asyncio.Event()
        """Set while the worker has read enough for more to be written."""
        self.writable.set()
        self._reader = RecordReader()
        self._sending: asyncio.Task[None] | None = None

    def write(self, data: bytes) -> None:
        """Write without waiting."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def send_all(self) -> None:
        """Send all holds in force; if this is under way already, it starts again at its end."""
        self.is_stale = True
        if self._sending is None or self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(self._send_all())

    async def _send_all(self) -> None:
        while self.is_stale:
            await self.writable.wait()
            self.is_stale = False
            self.plane.totals.synchronizations += 1
            for holds in self.plane.holds_in_force():
                self.write(b"".join(holds))
                self.plane.totals.holds_sent += len(holds)
                await self.writable.wait()

    # The methods of a protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._transport.set_write_buffer_limits(high=MAX_BUFFERED)

    def data_received(self, data: bytes) -> None:
        if self.writable.is_set():
            self.silent_ticks = 0
        try:
            for record in self._reader.feed(data):
                self.plane.on_record(self, record)
        except WireError:
            self.plane.totals.failed["malformed"] += 1
            self.close()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()
        if self.is_stale:
            self.send_all()

    def connection_lost(self, error: Exception | None) -> None:
        if self._sending is not None:
            self._sending.cancel()
        super().connection_lost(error)
        self.plane.leave(self)


class NginxLua(DataPlane):
    """Listens for the workers of nginx at the socket `nginx_lua` of the settings."""

    key = "nginx_lua"

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self._names = {encode_domain(domain): domain for domain in self.domains}
        self._settings_record = settings_record(self.settings, self.gatekeeper, self.rejections, self.domains)
        self._clock_steps = self.gatekeeper.clock.steps
        self._instances: dict[bytes, _Instance] = {}
        self._holds: list[bytes] = []
        self._has_logged_version = False

    async def start(self) -> None:
        """Listen. Raises `ConfigurationError` for a socket that is not available."""
        await self.listen(lambda: _Connection(self))
        self.run(self._tick_forever())

    def unready(self) -> str:
        """Return why nginx is not limited; empty when it is."""
        for instance in self._instances.values():
            if len(instance.connections) < instance.workers:
                return f"{len(instance.connections)} of {instance.workers} workers of nginx are connected"
        return "" if self._instances else "no worker of nginx is connected"

    def details(self) -> Details:
        """Return the numbers of instances, and of workers that are connected and that there are."""
        workers = sum(instance.workers for instance in self._instances.values())
        return {"instances": len(self._instances), "workers": len(self.connections), "expected_workers": workers}

    # -- holds ---------------------------------------------------------------------------------------------------

    def hold(self, control: DelayUntil, *, now: float) -> None:  # noqa: ARG002 - the signature of a data plane
        """Send a hold to each instance, together with others of this turn of the event loop."""
        if not self._instances:
            return
        if not self._holds:
            asyncio.get_running_loop().call_soon(self._flush)
        self._holds.append(_encode_hold(encode_domain(control.domain), control.identifier, control.release))

    def _flush(self) -> None:
        """Write the queued holds; an instance that reads too slowly receives all holds when it has caught up."""
        holds, self._holds = self._holds, []
        for instance in self._instances.values():
            if instance.receiver.writable.is_set():
                instance.receiver.write(b"".join(holds))
                self.totals.holds_sent += len(holds)
            else:
                instance.receiver.is_stale = True

    def holds_in_force(self) -> Iterator[list[bytes]]:
        """Yield the records of all holds in force, many at a time."""
        for name, domain in self._names.items():
            for holds in self.gatekeeper.holds(domain, now=self.clock()):
                yield [_encode_hold(name, *hold) for hold in holds]

    # -- connections ---------------------------------------------------------------------------------------------

    def leave(self, connection: _Connection) -> None:
        """Remove a connection from its instance, and the instance with its last one.

        If it received the holds, the newest one receives all of them: older ones may belong to workers that are
        exiting.
        """
        instance = self._instances.get(connection.nginx)
        if instance is not None:
            instance.connections.remove(connection)
            if not instance.connections:
                del self._instances[connection.nginx]
            elif instance.receiver is connection:
                instance.receiver = instance.connections[-1]
                instance.receiver.send_all()

    def on_record(self, connection: _Connection, record: Record) -> None:
        """Handle a record of a worker; the first is its `hello`. Raises `WireError` for an invalid one."""
        status = STATUSES.get(record.kind.upper())
        if not connection.nginx:
            self._greet(connection, record)
        elif status is not None:
            self._account(status, record)
        elif record.kind == b"status":
            self.totals.dropped += record.first
            self.totals.failed["evicted"] += record.second

    def _greet(self, connection: _Connection, hello: Record) -> None:
        if hello.kind != b"hello" or not 0 < len(hello.content) <= _MAX_INSTANCE_SIZE:
            raise WireError(f"expected a hello with the id of an nginx of 1 to {_MAX_INSTANCE_SIZE} bytes")
        if hello.first != VERSION:
            if not self._has_logged_version:
                self._has_logged_version = True
                self.log(f"nginx has another version of headgate.lua ({hello.first}, not {VERSION}); reload nginx")
            raise WireError(f"version {hello.first}; expected {VERSION}")
        connection.nginx = hello.content
        connection.write(self._settings_record)
        instance = self._instances.setdefault(hello.content, _Instance(connection))
        instance.connections.append(connection)
        instance.workers = hello.second
        if instance.receiver is connection:
            connection.send_all()

    def _account(self, status: Status, record: Record) -> None:
        name, separator, identifier = record.content.partition(b"\0")
        if not separator or len(identifier) > MAX_IDENTIFIER_SIZE:
            raise WireError("verdict without a domain and an identifier of at most 255 bytes")
        domain = self._names.get(name)
        if domain is None:
            self.report_unknown(name.decode("utf-8", "backslashreplace"), now=self.clock())
            return
        received = record.first / 1_000.0
        release = record.second / 1_000.0 if status is Status.DELAYED else received
        self.gatekeeper.report(Accounting(domain, status, identifier, received, release), now=self.clock())

    # -- ticks ---------------------------------------------------------------------------------------------------

    async def _tick_forever(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            self.tick()

    def tick(self) -> None:
        """Close connections of workers that do not respond; send the others a sign of life.

        Ticks are counted, not seconds: a sidecar that was suspended closes no connection.
        """
        self.gatekeeper.clock.read(self.clock())
        if self.gatekeeper.clock.steps != self._clock_steps:
            # The clock was set back. The holds in nginx are instants of the earlier time.
            self._clock_steps = self.gatekeeper.clock.steps
            for instance in self._instances.values():
                instance.receiver.write(encode_record(b"clear"))
                instance.receiver.send_all()
        for connection in list(self.connections):
            assert isinstance(connection, _Connection)
            connection.silent_ticks += 1
            if connection.silent_ticks > _MAX_SILENT_TICKS:
                self.totals.failed["unresponsive"] += 1
                connection.close()
            else:
                connection.write(encode_record(b"alive"))


def _encode_hold(domain: bytes, identifier: bytes, release: float) -> bytes:
    """Encode a hold."""
    return encode_record(b"hold", to_milliseconds(min(release, _LATEST)), 0, b"%b\0%b" % (domain, identifier))


def settings_record(settings: Sidecar, gatekeeper: Gatekeeper, rejections: Rejections, domains: Sequence[str]) -> bytes:
    """Return the record with all settings."""
    identify = parse_identify(settings.identify)
    method = b"header:" + identify.name if isinstance(identify, Header) else b"client-address"
    content = [
        encode_record(b"delays", to_milliseconds(settings.max_delay), settings.max_delayed),
        encode_record(b"holds", to_milliseconds(settings.max_hold)),
        encode_record(b"identify", settings.ipv6_prefix, 0, method),
    ]
    for domain in domains:
        name = encode_domain(domain)
        interval = gatekeeper.spacing.get(domain)
        if interval is not None:
            # Rounded down: a sum of intervals is never longer than by the rule.
            content.append(encode_record(b"spacing", int(interval * 1_000_000), 0, name))
        for form, accept in _FORMS:
            response = rejection_template(rejections, domain, accept, mark=_SECONDS_MARK)
            parts = [name, form, response.body, *(part for field in response.fields for part in field)]
            content.append(encode_record(b"rejection", response.status, 0, b"\0".join(parts)))
    return encode_record(b"settings", content=b"".join(content))


def encode_domain(domain: str) -> bytes:
    """Return the name of a domain as it is on the bus."""
    return domain.encode("utf-8", "surrogateescape")
