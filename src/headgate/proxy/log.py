"""The log: lines of JSON on stderr, with little in them, and no more than needed to prevent abuse.

A refusal is one line with the origin, the reason and a detail. Accepted traffic is summarised once a minute. No line
has anything that a client sent except the host and port of its CONNECT, and the client's address only if configured:
tokens and `chrome-tunnel` never reach this file.

The reader of stderr may be slow, stopped or gone: a thread writes, the queue is bounded, and dropped lines are counted.
"""

import contextlib
import os
import queue
import select
import threading
import time
from collections.abc import Callable
from typing import Final

import msgspec

from headgate.proxy.connect import ConnectRequest
from headgate.proxy.counters import ACCEPTED, Counts
from headgate.proxy.refusal import Refusal

_MAX_QUEUED: Final = 1000
"""Lines queued for the reader of stderr."""
_MAX_DETAIL_SIZE: Final = 1024
"""Characters. A line stays shorter than the 4096 bytes that a pipe writes atomically (pipe(7)), so that lines of
several workers are not mixed."""
_CLOSE_TIMEOUT: Final = 1.0
"""Seconds to wait for the last lines at the end."""


class LogWriter:
    """Writes lines to a descriptor that it does not own, in a thread that ends with `close` or the process."""

    def __init__(self, descriptor: int = 2, *, max_queued: int = _MAX_QUEUED) -> None:
        self.dropped = 0
        """Lines that were dropped."""
        self._descriptor = descriptor
        self._unreported = 0
        self._is_closed = False
        self._queue: queue.Queue[bytes | None] = queue.Queue(max_queued)
        self._thread = threading.Thread(target=self._write, name="headgate-log", daemon=True)
        self._thread.start()

    def say(self, sentence: str) -> None:
        """Write one line of text."""
        self.write(" ".join(sentence.splitlines()).encode("utf-8", "backslashreplace"))

    def write(self, line: bytes) -> None:
        """Queue one line, without its line end; for one thread alone. Never waits."""
        if not self._put(line):
            self.dropped += 1
            self._unreported += 1

    def close(self, timeout: float = _CLOSE_TIMEOUT) -> None:
        """Write what is queued, within `timeout` seconds."""
        if self._is_closed:
            return
        self._report_dropped()
        self._is_closed = True
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=timeout)
            self._thread.join(timeout)

    def _put(self, line: bytes) -> bool:
        if self._is_closed or not self._report_dropped():
            return False
        try:
            self._queue.put_nowait(line)
        except queue.Full:
            return False
        return True

    def _report_dropped(self) -> bool:
        """Queue a line with the number of dropped lines, if any; returns whether none is unreported."""
        if self._unreported:
            line = {"time": _rounded(time.time()), "event": "dropped", "lines": self._unreported}
            try:
                self._queue.put_nowait(msgspec.json.encode(line))
            except queue.Full:
                return False
            self._unreported = 0
        return True

    def _write(self) -> None:
        """Write until the queue has a None; the body of the thread."""
        while (line := self._queue.get()) is not None:
            rest = memoryview(line + b"\n")
            while rest:
                try:
                    rest = rest[os.write(self._descriptor, rest) :]
                except BlockingIOError:
                    with contextlib.suppress(OSError, ValueError):
                        select.select([], [self._descriptor], [], _CLOSE_TIMEOUT)
                except OSError:
                    break  # the reader is gone


class DecisionLog:
    """Logs refusals, with the client's address if `clients`; see `admission.decide`."""

    def __init__(self, lines: LogWriter, *, clients: bool = False, clock: Callable[[], float] = time.time) -> None:
        self._lines = lines
        self._clients = clients
        self._clock = clock

    def refused(self, request: ConnectRequest, origin: str | None, refusal: Refusal) -> None:
        """Log a refused request; it has no origin if its target is malformed."""
        line = {
            "event": "refused",
            "time": _rounded(self._clock()),
            "origin": origin,
            "reason": refusal.reason,
            "status": refusal.rule.status,
        }
        if refusal.detail:
            line["why"] = refusal.detail[:_MAX_DETAIL_SIZE]
        if self._clients:
            line["client"] = request.peer[0]
        self._lines.write(msgspec.json.encode(line))


class TrafficSummary:
    """Summarises the traffic since the last summary, from counters that only grow."""

    def __init__(self, *, now: float) -> None:
        self._last = Counts()
        self._last_time = now

    def line(self, counts: Counts, *, now: float) -> bytes | None:
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
            "time": _rounded(now),
            "accepted": accepted,
            "open": counts.tunnels,
            "received": received,
            "sent": sent,
            "seconds": _rounded(max(0.0, now - last_time)),  # the clock may have been set back
        }
        return msgspec.json.encode(line)


def _rounded(seconds: float) -> float:
    """Round to the nearest millisecond, for people."""
    return round(seconds, 3)
