"""The program log, lines of a server process on stderr: no part of the process ever waits for their reader.

The reader may be slow, stopped or gone: a thread writes, the queue is bounded, and dropped lines are counted. Inside
`open_log` this also holds for what libraries and Python itself write to `sys.stderr`, and each line has time and level.
"""

import io
import json
import os
import queue
import select
import socket
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from datetime import UTC, datetime
from typing import Final, cast, get_args

from msgspec import Struct

from headgate.config.tree import Level, LogSection
from headgate.errors import reason_of

_MAX_QUEUED: Final = 1000
"""Lines queued for the reader of stderr."""
MAX_LINE_SIZE: Final = 4095
"""Bytes; with its end, as many as a pipe writes atomically (pipe(7)), so lines of several processes are not mixed."""
_LEVELS: Final = get_args(Level)
_CLOSE_TIMEOUT: Final = 1.0
"""Seconds to wait for the last lines at the end."""


class LogCounters(Struct):
    """What the log of a process counts."""

    dropped: int = 0
    """Log lines dropped: stderr was read too slowly."""


class LineWriter:
    """Writes lines to a descriptor, in a thread that ends with `close` or the process.

    `report` gets a line, in that thread, when writing fails, and when it is possible again. With `closes`, the thread
    closes the descriptor at its end.
    """

    def __init__(
        self,
        descriptor: int,
        *,
        max_queued: int,
        report: Callable[[str], None] = lambda _: None,
        closes: bool = False,
    ) -> None:
        self.lost = 0
        """Lines that could not be written."""
        self._descriptor = descriptor
        self._report = report
        self._closes = closes
        self.is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        """Whether it is a file, to which the system appends blocks of any size whole."""
        self._is_failing = self._is_cut = self._is_closed = False
        self._queue: queue.Queue[Sequence[bytes]] = queue.Queue(max_queued)
        self._thread = threading.Thread(target=self._run, name="headgate-log", daemon=True)
        self._thread.start()

    def put(self, lines: Sequence[bytes]) -> bool:
        """Queue lines, each with its line end, or blocks of lines; returns false if the queue is full. Never waits."""
        try:
            self._queue.put_nowait(lines)
        except queue.Full:
            return False
        return True

    def close(self, timeout: float = 0) -> None:
        """Have the thread end after it has written what is queued, and wait for that for at most `timeout` seconds."""
        self._is_closed = True
        with suppress(queue.Full):
            self._queue.put((), timeout=timeout) if timeout else self._queue.put_nowait(())
        if timeout:
            self._thread.join(timeout)

    def _run(self) -> None:
        """Write until the end; the body of the thread."""
        while not self._is_closed or not self._queue.empty():
            lines = self._queue.get()
            if self.is_file:
                self._write(b"".join(lines))
                continue
            block = b""
            for line in lines:
                if len(block) + len(line) > MAX_LINE_SIZE + 1:
                    self._write(block)
                    block = b""
                block += line
            self._write(block)
        if self._closes:
            os.close(self._descriptor)

    def _write(self, block: bytes) -> None:
        """Write whole lines, or count those that cannot be written."""
        if not block:
            return
        # After a line that was cut off, as by a full disk, the next one begins on a line of its own.
        rest = memoryview(b"\n" + block if self._is_cut else block)
        try:
            while rest:
                try:
                    count = os.write(self._descriptor, rest)
                    self._is_cut = rest[count - 1] != ord("\n")
                    rest = rest[count:]
                except BlockingIOError:
                    # Not `select`, which refuses descriptors from 1024 on.
                    ready = select.poll()
                    ready.register(self._descriptor, select.POLLOUT)
                    ready.poll(_CLOSE_TIMEOUT * 1000)
        except OSError as error:
            self.lost += min(bytes(rest).count(b"\n"), block.count(b"\n"))
            if not self._is_failing:
                self._report(f"{reason_of(error)}; lines are dropped until it can be written")
            self._is_failing = True
        else:
            if self._is_failing:
                self._report(f"written again; {self.lost} lines dropped so far")
            self._is_failing = False


class LogWriter(io.TextIOBase):
    """A text stream whose lines a `LineWriter` writes to a descriptor."""

    def __init__(self, descriptor: int, *, max_queued: int = _MAX_QUEUED) -> None:
        self.counters = LogCounters()
        """The counters since the start."""
        self.settings = LogSection()
        """Level and form of the lines."""
        self._unreported = 0
        self._rest = ""
        self._is_closed = False
        self._lock = threading.Lock()
        self._lines = LineWriter(descriptor, max_queued=max_queued)

    def write(self, text: str) -> int:
        """Log the lines that `text` completes, which libraries or Python itself write. Never waits for the reader."""
        with self._lock:
            *lines, rest = (self._rest + text).split("\n")
            self._rest = rest[:MAX_LINE_SIZE]
        for line in lines:
            self.log(line, "error")
        return len(text)

    def log(self, message: str, level: Level) -> None:
        """Queue a message with its time, unless its level is too low."""
        if _LEVELS.index(level) >= _LEVELS.index(self.settings.level):
            self.write_line(_formatted(message, level, self.settings))

    def write_line(self, line: str) -> None:
        """Queue a line as it is, or count it as dropped. Never waits for the reader."""
        with self._lock:
            if not self._put(line):
                self.counters.dropped += 1
                self._unreported += 1

    def close_log(self, timeout: float = _CLOSE_TIMEOUT) -> None:
        """Write what is queued, within `timeout` seconds; later lines are dropped."""
        with self._lock:
            if self._is_closed:
                return
            self._report_dropped()
            self._is_closed = True
        self._lines.close(timeout)

    def _put(self, line: str) -> bool:
        if self._is_closed or not self._report_dropped():
            return False
        return self._lines.put([line.encode("utf-8", "backslashreplace")[:MAX_LINE_SIZE] + b"\n"])

    def _report_dropped(self) -> bool:
        """Queue a line with the number of dropped lines, if any; returns whether none is unreported."""
        if self._unreported:
            text = f"{self._unreported} log lines dropped: stderr is read too slowly"
            if not self._lines.put([_formatted(text, "warning", self.settings).encode() + b"\n"]):
                return False
            self._unreported = 0
        return True


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


def configure_log(settings: LogSection) -> None:
    """Apply level and form to further lines of this process, inside `open_log`."""
    if isinstance(sys.stderr, LogWriter):
        sys.stderr.settings = settings


def log(message: str) -> None:
    """Log a message for the operator: every line of the program's log passes here, in every server.

    The level is that of the word that the message begins with, such as `warning: `, otherwise info.
    """
    message = " ".join(message.splitlines())
    if not isinstance(sys.stderr, LogWriter):
        write_line(f"headgate: {message}")
        return
    word, _, rest = message.partition(": ")
    if word in _LEVELS:
        sys.stderr.log(rest, cast("Level", word))
    else:
        sys.stderr.log(message, "error" if message.startswith("internal error") else "info")


def _formatted(message: str, level: Level, settings: LogSection) -> str:
    moment = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if settings.lines == "text":
        name = f"headgate[{settings.instance}]" if settings.instance else "headgate"
        return f"{moment} {level} {name}: {message}"
    instance = settings.instance or socket.gethostname()
    return json.dumps({"time": moment, "level": level, "instance": instance, "message": message})


def write_line(text: str) -> None:
    """Write one line to stderr as it is; a closed stderr is ignored."""
    text = " ".join(text.splitlines())
    if isinstance(sys.stderr, LogWriter):
        sys.stderr.write_line(text)
        return
    with suppress(OSError):
        sys.stderr.write(text + "\n")


def log_counters() -> LogCounters:
    """Return the counters of the log of this process."""
    return sys.stderr.counters if isinstance(sys.stderr, LogWriter) else LogCounters()
