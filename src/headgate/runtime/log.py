"""The lines of a server process on stderr: no part of the process ever waits for their reader.

The reader may be slow, stopped or gone: a thread writes, the queue is bounded, and dropped lines are counted. Inside
`open_log` this also holds for what libraries and Python itself write to `sys.stderr`.
"""

import io
import os
import queue
import select
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from typing import Final

from msgspec import Struct

_MAX_QUEUED: Final = 1000
"""Lines queued for the reader of stderr."""
_MAX_LINE_SIZE: Final = 4095
"""Bytes; with its end, as many as a pipe writes atomically (pipe(7)), so lines of several processes are not mixed."""
_CLOSE_TIMEOUT: Final = 1.0
"""Seconds to wait for the last lines at the end."""


class LogCounters(Struct):
    """What the log of a process counts."""

    dropped: int = 0
    """Log lines dropped: stderr was read too slowly."""


class LogWriter(io.TextIOBase):
    """A text stream whose lines a thread writes to a descriptor; the thread ends with `close_log` or the process."""

    def __init__(self, descriptor: int, *, max_queued: int = _MAX_QUEUED) -> None:
        self.counters = LogCounters()
        """The counters since the start."""
        self._descriptor = descriptor
        self._unreported = 0
        self._rest = ""
        self._is_closed = False
        self._lock = threading.Lock()
        self._queue: queue.Queue[bytes | None] = queue.Queue(max_queued)
        self._thread = threading.Thread(target=self._run, name="headgate-log", daemon=True)
        self._thread.start()

    def write(self, text: str) -> int:
        """Queue the lines that `text` completes. Never waits for the reader."""
        with self._lock:
            *lines, rest = (self._rest + text).split("\n")
            self._rest = rest[:_MAX_LINE_SIZE]
            for line in lines:
                if not self._put(line):
                    self.counters.dropped += 1
                    self._unreported += 1
        return len(text)

    def close_log(self, timeout: float = _CLOSE_TIMEOUT) -> None:
        """Write what is queued, within `timeout` seconds; later lines are dropped."""
        with self._lock:
            if self._is_closed:
                return
            self._report_dropped()
            self._is_closed = True
        with suppress(queue.Full):
            self._queue.put(None, timeout=timeout)
            self._thread.join(timeout)

    def _put(self, line: str) -> bool:
        if self._is_closed or not self._report_dropped():
            return False
        try:
            self._queue.put_nowait(line.encode("utf-8", "backslashreplace")[:_MAX_LINE_SIZE])
        except queue.Full:
            return False
        return True

    def _report_dropped(self) -> bool:
        """Queue a line with the number of dropped lines, if any; returns whether none is unreported."""
        if self._unreported:
            try:
                self._queue.put_nowait(b"headgate: %d log lines dropped: stderr is read too slowly" % self._unreported)
            except queue.Full:
                return False
            self._unreported = 0
        return True

    def _run(self) -> None:
        """Write until the queue has a None; the body of the thread."""
        while (line := self._queue.get()) is not None:
            rest = memoryview(line + b"\n")
            while rest:
                try:
                    rest = rest[os.write(self._descriptor, rest) :]
                except BlockingIOError:
                    with suppress(OSError, ValueError):
                        select.select([], [self._descriptor], [], _CLOSE_TIMEOUT)
                except OSError:
                    break  # the reader is gone


@contextmanager
def open_log() -> Iterator[None]:
    """Put a `LogWriter` in the place of `sys.stderr` while inside, unless that is not a file of the system."""
    try:
        descriptor = sys.stderr.fileno()
    except (AttributeError, OSError):  # no stderr, or a stream in memory, which does not block
        yield
        return
    log = LogWriter(descriptor)
    with redirect_stderr(log):
        try:
            yield
        finally:
            log.close_log()


def log(message: str) -> None:
    """Write a message for the operator: every line of the program's log passes here, in every server."""
    write_line(f"headgate: {message}")


def write_line(text: str) -> None:
    """Write one line to stderr; a closed stderr is ignored."""
    with suppress(OSError):
        sys.stderr.write(" ".join(text.splitlines()) + "\n")


def log_counters() -> LogCounters:
    """Return the counters of the log of this process."""
    return sys.stderr.counters if isinstance(sys.stderr, LogWriter) else LogCounters()
