"""What one client may do to no purpose: each kind of it a little at once, and a little a second.

None of it is wrong in itself. It costs the client next to nothing and the proxy something, and nobody is served by it:
streams that are reset before they are answered (CVE-2023-44487), settings and pings without end, frames that carry
nothing. This file knows only how many there were.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from h2.errors import ErrorCodes

from headgate.proxy.http2.frames import Violation

__all__ = ["ALLOWANCES", "Allowance", "Floods", "Nuisance"]

Nuisance: TypeAlias = Literal[
    "resets", "mistakes", "settings", "pings", "idle frames", "empty DATA", "late DATA", "WINDOW_UPDATE", "head bytes"
]
"""The kinds there are."""


class Allowance(NamedTuple):
    """How many at once, and how many a second in the long run."""

    at_once: float
    a_second: float


ALLOWANCES: Final[Mapping[Nuisance, Allowance]] = {
    # Streams that the client resets before a byte has passed: the decision is paid for, and nobody wants it.
    "resets": Allowance(100, 10),
    # Requests that are malformed or no CONNECT, streams beyond the most, errors that end a stream of ours.
    "mistakes": Allowance(100, 10),
    # A client sends one or two in its life, one that tunes its windows a few more.
    "settings": Allowance(50, 1),
    # Some clients measure the way's length once per round trip while bytes flow.
    "pings": Allowance(1000, 100),
    # PRIORITY, frames of unknown types, what is about streams that are over.
    "idle frames": Allowance(1000, 100),
    "empty DATA": Allowance(100, 10),
    # What was on its way when a stream was reset.
    "late DATA": Allowance(10_000, 1000),
    # Beyond those that DATA is answered with: see `forgive`.
    "WINDOW_UPDATE": Allowance(1000, 100),
    # A head that is indexed has 50 bytes, one with a token 500; Huffman's code takes 0.3 µs a byte to undo.
    "head bytes": Allowance(1 << 20, 1 << 18),
}
"""How many of each."""


class Floods:
    """Counts what one connection does; raises `Violation` at what is too much."""

    __slots__ = ("_levels",)

    def __init__(self) -> None:
        self._levels: dict[Nuisance, tuple[float, float]] = {}

    def count(self, kind: Nuisance, *, now: float, amount: float = 1) -> None:
        """Count one more, or `amount` more."""
        allowance = ALLOWANCES[kind]
        level, before = self._levels.get(kind, (0.0, now))
        level = max(0.0, level - (now - before) * allowance.a_second) + amount
        self._levels[kind] = (level, now)
        if level > allowance.at_once:
            raise Violation(ErrorCodes.ENHANCE_YOUR_CALM, f"too many {kind}")

    def forgive(self, kind: Nuisance, amount: float) -> None:
        """Take back so many: there was a reason for them."""
        counted = self._levels.get(kind)
        if counted is not None:
            self._levels[kind] = (max(0.0, counted[0] - amount), counted[1])
