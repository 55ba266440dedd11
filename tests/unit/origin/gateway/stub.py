"""A transport without a socket, and the context of a gateway, for connections that are driven by hand."""

import asyncio
import re
from collections.abc import Callable
from functools import cached_property
from typing import Any

from msgspec.structs import asdict, replace

from headgate.config.origin_section import OriginSection
from headgate.config.tree import Bounds, Gate
from headgate.http.h1 import RequestHead, RequestLimits, parse_request_head
from headgate.limit import Domain, Gatekeeper
from headgate.origin import Rejections, Route, Routes, client_address
from headgate.origin.gateway import GatewayPolicy
from headgate.origin.gateway.balancer import Balancer
from headgate.origin.gateway.context import GatewayContext
from headgate.origin.gateway.exchange import UpstreamPool
from headgate.origin.gateway.record import RequestRecord
from headgate.origin.gateway.settings import GatewaySettings
from headgate.origin.permits import Permits


def without_id(data: bytes) -> bytes:
    """Remove the line X-Request-Id, which differs each time."""
    return re.sub(rb"X-Request-Id: [^\r]*\r\n", b"", data)


async def turns(count: int = 5) -> None:
    """Give the event loop so many turns."""
    for _ in range(count):
        await asyncio.sleep(0)


def parse_request(line: bytes = b"GET / HTTP/1.1", *fields: bytes) -> RequestHead:
    """Return the head of a request to the host `a`."""
    return parse_request_head(b"\r\n".join([line, b"Host: a", *fields]) + b"\r\n\r\n", RequestLimits())


class StubTransport(asyncio.Transport):
    """Keeps what is written, without the ids of requests, and how it was closed; nothing happens by itself."""

    def __init__(self, *, address: str = "192.0.2.1", half_open: bool = True) -> None:
        super().__init__({"peername": (address, 50_000)})
        self.written = b""
        self.buffered = 0
        self.reading = True
        self.closed = self.aborted = self.ended = False
        self.half_open = half_open
        self.protocol: asyncio.BaseProtocol | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += without_id(bytes(data))

    def take(self) -> bytes:
        """Return what was written since the last call."""
        written, self.written = self.written, b""
        return written

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def is_closing(self) -> bool:
        return self.closed or self.aborted

    def can_write_eof(self) -> bool:
        return self.half_open

    def write_eof(self) -> None:
        self.ended = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True


class StubTimers:
    """Takes the timers of permits; `fire` calls the last one that was set."""

    def __init__(self) -> None:
        self.last: StubTimer | None = None

    def call_later(self, seconds: float, callback: Callable[[], None]) -> "StubTimer":
        self.last = StubTimer(seconds, callback)
        return self.last

    def fire(self) -> None:
        timer, self.last = self.last, None
        if timer is not None and not timer.cancelled:
            timer.callback()


class StubTimer:
    """A timer that is set."""

    def __init__(self, seconds: float, callback: Callable[[], None]) -> None:
        self.seconds = seconds
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


def make_policy(**settings: Any) -> GatewayPolicy:
    """Make a policy that accepts every request of the domain `default`."""
    domain = Domain("default")
    settings.setdefault("gatekeeper", Gatekeeper.embedded([domain]))
    return GatewayPolicy(
        identify=client_address(),
        routes=Routes([Route("default")]),
        reject=Rejections([domain]),
        **settings,
    )


def make_pool(
    clock: Callable[[], float] = lambda: 1000.0,
    *,
    url: str = "http://192.0.2.200",
    head: int = 32768,
    body: int = 0,
    **settings: Any,
) -> UpstreamPool:
    """Make a pool without connections."""
    gate = Gate(bounds=Bounds(head_bytes=head, max_body=body))
    return UpstreamPool(OriginSection(url=url, **settings), GatewaySettings(gate, clock=clock))


class StubContext(GatewayContext):
    """A context with a clock that is set by hand, which keeps the records of requests that have ended."""

    now = 1000.0

    @property
    def pool(self) -> UpstreamPool:
        """The first origin."""
        return self.balancer.origins[0]

    @cached_property
    def records(self) -> list[RequestRecord]:
        return []


def make_context(
    policy: GatewayPolicy | None = None,
    *pools: UpstreamPool,
    limit: int = 100,
    permits: Permits | None = None,
    bounds: Bounds | None = None,
) -> StubContext:
    """Make what the connections of one gateway share."""
    bounds = replace(bounds or Bounds(max_body=0), connections=limit, client_connections=0)
    context = StubContext(policy or make_policy(), Gate(bounds=bounds), permits=permits)
    context.clock = lambda: context.now
    if pools:
        context.counters = pools[0].counters
    pools = pools or (UpstreamPool(OriginSection(url="http://192.0.2.200"), context),)
    context.balancer = Balancer(pools, lambda: 0.0)
    context.pool.now = context.now
    context.observe = context.records.append
    return context


def counted(context: GatewayContext) -> dict[str, int]:
    """Return what the context of a gateway has counted: the counters that are not 0, by name or reason."""
    found: dict[str, int] = {}
    for name, value in [*asdict(context.counters).items(), ("failures", context.balancer.origins[0].failures)]:
        counts = value if isinstance(value, dict) else {name: value}
        found |= {reason: count for reason, count in counts.items() if count}
    return found
