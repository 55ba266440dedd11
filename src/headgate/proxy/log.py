"""What the proxy writes down: lines of JSON on stderr, no more of them than abuse can be told by, and little in them.

A refusal is a line: its origin, the word for why, and a clause. What was let through is counted, and told once a
minute; only where all is asked for a tunnel is a line. No line has anything of what a client sent beside the host and
the port of its CONNECT, and its address only where that is asked for: a token or a `chrome-tunnel` never gets here.

The reader of stderr may be slow, stopped or gone: a thread writes, the lines that wait for it are bounded, and lines
beyond that are counted and dropped.
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

from headgate.proxy.admission.authority import Authority
from headgate.proxy.connect import CloseReason, ConnectRequest
from headgate.proxy.counters import ACCEPTED, Counts
from headgate.proxy.refusal import Refusal

__all__ = ["DecisionLog", "LogWriter", "TrafficSummary"]

_MAX_WAITING: Final = 1000
"""Lines that wait for the reader of stderr."""
_LONGEST_CLAUSE: Final = 1024
"""Characters. A line is shorter than the 4096 bytes that a pipe takes in one piece (pipe(7)): those of several workers
stay whole."""
_CLOSE_TIMEOUT: Final = 1.0
"""Seconds that the last lines are waited for at the end."""


class LogWriter:
    """Writes lines to a descriptor, which it does not own; the thread ends with `close`, or with the process."""

    def __init__(self, descriptor: int = 2, *, max_waiting: int = _MAX_WAITING) -> None:
        self.dropped = 0
        """Lines that will not be written."""
        self._descriptor = descriptor
        self._untold = 0
        self._is_closed = False
        self._queue: queue.Queue[bytes | None] = queue.Queue(max_waiting)
        self._thread = threading.Thread(target=self._write, name="headgate-log", daemon=True)
        self._thread.start()

    def say(self, sentence: str) -> None:
        """Write one line of words."""
        self.write(" ".join(sentence.splitlines()).encode("utf-8", "backslashreplace"))

    def write(self, line: bytes) -> None:
        """Write one line, given without its end, as soon as it can be; for one thread alone. Never waits."""
        if not self._put(line):
            self.dropped += 1
            self._untold += 1

    def close(self, timeout: float = _CLOSE_TIMEOUT) -> None:
        """Write what waits, if that takes no longer than so many seconds."""
        if self._is_closed:
            return
        self._tell_of_dropped()
        self._is_closed = True
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=timeout)
            self._thread.join(timeout)

    def _put(self, line: bytes) -> bool:
        if self._is_closed or not self._tell_of_dropped():
            return False
        try:
            self._queue.put_nowait(line)
        except queue.Full:
            return False
        return True

    def _tell_of_dropped(self) -> bool:
        """Say how many lines were dropped since this was last said; returns whether that is said."""
        if self._untold:
            line = {"time": _rounded(time.time()), "event": "dropped", "lines": self._untold}
            try:
                self._queue.put_nowait(msgspec.json.encode(line))
            except queue.Full:
                return False
            self._untold = 0
        return True

    def _write(self) -> None:
        """Write until there is a None; the whole life of the thread."""
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


class _Line(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="event"):
    client: str = ""


class _Refused(_Line, kw_only=True, tag="refused"):
    time: float
    origin: str | None
    reason: str
    status: int
    why: str = ""


class _Tunnel(_Line, kw_only=True, tag="tunnel"):
    time: float
    origin: str
    received: int
    sent: int
    seconds: float
    why: CloseReason


class _Tunnels(_Line, kw_only=True, tag="tunnels"):
    time: float
    accepted: int
    open: int
    received: int
    sent: int
    seconds: float


class DecisionLog:
    """Writes decisions down, each tunnel too if `tunnels`, with the client's address if `clients`; see `Log`."""

    def __init__(
        self, lines: LogWriter, *, tunnels: bool = False, clients: bool = False, clock: Callable[[], float] = time.time
    ) -> None:
        self._lines = lines
        self._tunnels = tunnels
        self._clients = clients
        self._clock = clock

    def refused(self, asked: ConnectRequest, authority: Authority | None, refusal: Refusal) -> None:
        """Write down a CONNECT that was refused; one that names no host and port has no origin."""
        line = _Refused(
            time=_rounded(self._clock()),
            origin=None if authority is None else authority.origin,
            reason=refusal.reason,
            status=refusal.rule.status,
            why=refusal.detail[:_LONGEST_CLAUSE],
            client=self._client(asked.peer),
        )
        self._lines.write(msgspec.json.encode(line))

    def closed(
        self, peer: tuple[str, int], authority: Authority, received: int, sent: int, why: CloseReason, *, seconds: float
    ) -> None:
        """Write down a tunnel that is over."""
        if self._tunnels:
            line = _Tunnel(
                time=_rounded(self._clock()),
                origin=authority.origin,
                received=received,
                sent=sent,
                seconds=_rounded(seconds),
                why=why,
                client=self._client(peer),
            )
            self._lines.write(msgspec.json.encode(line))

    def _client(self, peer: tuple[str, int]) -> str:
        return peer[0] if self._clients else ""


class TrafficSummary:
    """Tells what was let through since it last told, from counts that only grow."""

    def __init__(self, *, now: float) -> None:
        self._last = Counts()
        self._told = now

    def line(self, counts: Counts, *, now: float) -> bytes | None:
        """Give the line for the counts as they are; None where nothing was let through."""
        last, told = self._last, self._told
        accepted = counts.connects.get(ACCEPTED, 0) - last.connects.get(ACCEPTED, 0)
        received, sent = counts.received - last.received, counts.sent - last.sent
        self._told = now
        if not accepted and not received and not sent:
            return None
        self._last = Counts(dict(counts.connects), counts.received, counts.sent)
        line = _Tunnels(
            time=_rounded(now),
            accepted=accepted,
            open=counts.tunnels,
            received=received,
            sent=sent,
            seconds=_rounded(max(0.0, now - told)),  # the clock may have been set back
        )
        return msgspec.json.encode(line)


def _rounded(seconds: float) -> float:
    """Give seconds as people read them: to the nearest millisecond."""
    return round(seconds, 3)
