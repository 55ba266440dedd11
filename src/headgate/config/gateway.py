"""What bounds the gateway: how long it waits, and how much it takes."""

import msgspec

__all__ = ["Bounds", "Timeouts"]


class Timeouts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[gate.timeouts]`: seconds the gateway waits before it gives up."""

    header: float = 10.0
    """From the first byte of a request to the end of its head; also for a TLS handshake and for the first byte of a
    new connection. Answered with 408."""

    idle: float = 60.0
    """Between two requests of one connection, and between two pieces of one request's body."""

    connect: float = 5.0
    """For a connection to the origin. Answered with 504."""

    response: float = 60.0
    """For the origin's next byte while it owes one: of the response's head (answered with 504) or of its body. Also
    for an agent that does not read the response."""


class Bounds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[gate.bounds]`: how much the gateway takes from strangers."""

    target_bytes: int = 8192
    """The longest request target. Answered with 414."""

    head_bytes: int = 65536
    """The longest head of a request (answered with 431) or of a response (502), and the longest trailer section."""

    body_bytes: int = 0
    """The longest request body, 0 for any. Answered with 413."""

    connections: int = 10000
    """How many agents may be connected at once. The next ones are answered with 503."""
