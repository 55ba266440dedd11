"""The log: lines of JSON on stderr, with little in them, and no more than needed to prevent abuse.

Refusals with one reason are one line a second, with their count; origin, detail and client are those of the first.
Accepted traffic is summarised once a minute. No line has anything that a client sent except the host and port of its
CONNECT, and the client's address only if configured: tokens and `chrome-tunnel` never reach this file.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from headgate.proxy.connect import ConnectRequest
from headgate.proxy.counters import ACCEPTED, Counts
from headgate.proxy.refusal import Refusal

_MAX_DETAIL_SIZE: Final = 1024
"""Characters; a whole line is at most 4095 bytes long (`headgate.runtime.log`)."""
_INTERVAL: Final = 1.0
"""Seconds whose refusals with one reason are one line."""
_DIGITS: Final = 3
"""Times are rounded to the nearest millisecond, for people."""


class DecisionLog:
    """Logs refusals by `write`, with the client's address if `clients`; see `admission.decide`. For one event loop."""

    def __init__(
        self, write: Callable[[str], None], *, clients: bool = False, clock: Callable[[], float] = time.time
    ) -> None:
        self._write = write
        self._clients = clients
        self._clock = clock
        self._refused: dict[str, dict[str, Any]] = {}
        """The lines of this second, by reason."""

    def refused(self, request: ConnectRequest, origin: str | None, refusal: Refusal) -> None:
        """Log a refused request, within a second; it has no origin if its target is malformed."""
        line = self._refused.get(refusal.reason)
        if line is not None:
            line["count"] += 1
            return
        if not self._refused:
            asyncio.get_running_loop().call_later(_INTERVAL, self.flush)
        line = self._refused[refusal.reason] = {
            "event": "refused",
            "time": round(self._clock(), _DIGITS),
            "origin": origin,
            "reason": refusal.reason,
            "status": refusal.rule.status,
            "count": 1,
        }
        if refusal.detail:
            line["why"] = refusal.detail[:_MAX_DETAIL_SIZE]
        if self._clients:
            line["client"] = request.peer[0]

    def flush(self) -> None:
        """Write the lines of this second."""
        for line in self._refused.values():
            self._write(msgspec.json.encode(line).decode())
        self._refused.clear()


class TrafficSummary:
    """Summarises the traffic since the last summary, from counters that only grow."""

    def __init__(self, *, now: float) -> None:
        self._last = Counts()
        self._last_time = now

    def line(self, counts: Counts, *, now: float) -> str | None:
        """Return the line for these counters, or None without traffic."""
        last, last_time = self._last, self._last_time
        accepted = counts.connects.get(ACCEPTED, 0) - last.connects.get(ACCEPTED, 0)
        received, sent = counts.received - last.received, counts.sent - last.sent
        self._last_time = now
        if not accepted and not received and not sent:
            return None
        self._last = Counts(dict(counts.connects), counts.received, counts.sent)
        line = {
            "event": "tunnels",
            "time": round(now, _DIGITS),
            "accepted": accepted,
            "open": counts.tunnels,
            "received": received,
            "sent": sent,
            "seconds": round(max(0.0, now - last_time), _DIGITS),  # the clock may have been set back
        }
        return msgspec.json.encode(line).decode()
