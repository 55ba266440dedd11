"""What a gateway knows of one request, from its head to the end of its response, and counts of all."""

from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec

from headgate.http.h1 import RequestHead
from headgate.limit import Accounting


class RequestRecord(msgspec.Struct, gc=False):
    """One request: made when its head has been read, filled on its way, and complete when `end` is set.

    Times are seconds of the gateway's clock, but for `received`; those of what has not happened are 0.
    """

    client: str
    """The address of the connection's peer, without its port; empty for a unix socket."""
    received: float
    """When the head was complete, in seconds since 1970."""
    start: float
    """The same instant on the gateway's clock."""
    request: RequestHead | None
    """Method, target, host and fields; None for a request that is malformed."""
    request_id: bytes = b""
    """The value of X-Request-Id: that of a trusted proxy, or a new one."""
    accounting: Accounting | None = None
    """Domain, identifier, verdict and release; None for a request that no rule applies to."""
    agent: str = ""
    """The URL of the verified agent that signed it; empty for none."""
    quota: bytes = b""
    """Field lines about the quota of the client, for a response of the origin."""
    wait: float = 0.0
    """Seconds that the request waited for its release, and for a permit of the concurrency limit."""
    upload: float = 0.0
    """Seconds until its body was read, if that was buffered."""
    upstream: str = ""
    """The origin that was asked last; empty for none."""
    upstream_start: float = 0.0
    """When the head was sent to it."""
    upstream_first_byte: float = 0.0
    """When the head of its final response was complete."""
    upstream_status: int = 0
    """The status of that response."""
    status: int = 0
    """The status that the client was sent; 0 if it was sent none."""
    bytes: int = 0
    """Bytes of content that the client was sent."""
    reason: str = ""
    """Why the gateway answered itself, or why the response is not complete; empty for a response of the origin."""
    end: float = 0.0
    """When the last byte was given to the client's connection, or that connection ended."""

    @property
    def domain(self) -> str:
        """The domain whose rules apply; empty for none."""
        return self.accounting.domain if self.accounting is not None else ""


Observe = Callable[[RequestRecord], object]
"""Receives a complete record."""

_BUFFERS: Any = msgspec.field(default_factory=lambda: {"request": 0, "response": 0})
FAILURES: Final = ("unreachable", "tls", "malformed", "descriptors", "timeout", "truncated")
"""Why an attempt fails at an origin; see `RequestCounters.upstream_failures`."""

PROXY_HEADERS: Final = ("untrusted", "malformed", "timeout")
"""Why a connection was closed at a listener for the PROXY protocol."""


class GatewayCounters(msgspec.Struct):
    """What a gateway counts."""

    malformed: int = 0
    """Requests refused as malformed HTTP."""
    connections_refused: dict[str, int] = msgspec.field(default_factory=lambda: {"limit": 0, "client_limit": 0})
    """Connections answered 503, or closed before a TLS handshake: the limit of all connections, or of those of one
    client address, is reached."""
    idle_closed: int = 0
    """Idle connections closed at the limit of all connections, for a new one."""
    handshakes_failed: int = 0
    """TLS handshakes that failed or were not complete in time."""
    proxy_headers_refused: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(PROXY_HEADERS, 0))
    """Connections closed at listeners for the PROXY protocol: untrusted, their address is not that of a trusted proxy;
    malformed, they did not begin with a valid header; timeout, the header was not complete in time."""
    forwarding_unused: dict[str, int] = msgspec.field(default_factory=lambda: {"untrusted": 0, "disagree": 0})
    """Requests whose forwarding fields are not used: their peer is not a trusted proxy, or two fields disagree."""
    denied: int = 0
    """Requests answered 403: `gate.deny` has the address of their client."""
    retried: int = 0
    """Requests sent to an origin a second time: its idle connection had closed."""
    full: int = 0
    """Requests answered 503: all origins have `max_in_flight` requests."""
    moved: int = 0
    """Requests sent to another origin after one that failed."""
    buffers_in_files: Annotated[dict[str, int], "kind"] = _BUFFERS
    """Bodies of requests and responses of which a part was written to a temporary file."""
    buffers_full: Annotated[dict[str, int], "kind"] = _BUFFERS
    """Bodies that found no room: the disk is full, or gate.bounds.buffer_files is reached. Such a request is answered
    503; for such a response the origin waits until its client has read on."""
    signatures: dict[str, int] = msgspec.field(default_factory=lambda: {"verified": 0, "unverified": 0})
    """Requests with a Web Bot Auth signature: verified, by a key of their agent; unverified, for any other reason."""
    lifeboat: int = 0
    """Rejected requests answered from a bundle instead."""
    advice_served: int = 0
    """Requests for the traffic advice that were answered."""
