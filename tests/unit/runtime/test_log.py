"""Lines on stderr, whose reader may be slow or gone."""

import fcntl
import io
import json
import os
import re
import resource
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress

import pytest

from headgate.config.tree import LogSection
from headgate.runtime.log import LineWriter, LogWriter, configure_log, log, log_counters, open_log, write_line

STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ")


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Give a pipe; a test that closes an end does not use it afterwards."""
    ends = os.pipe()
    yield ends
    for end in ends:
        with suppress(OSError):
            os.close(end)


@contextmanager
def read_in_thread(reading: int, writing: int) -> Iterator[list[bytes]]:
    """Read the lines of a pipe in a thread while inside; give the list that has them at the end."""
    lines: list[bytes] = []

    def read() -> None:
        with open(reading, "rb", closefd=False) as file:
            lines.extend(line.rstrip(b"\n") for line in file)

    thread = threading.Thread(target=read)
    thread.start()
    yield lines
    os.close(writing)
    thread.join(20)


@pytest.mark.parametrize("blocking", [True, False])
def test_lines_are_written_in_order(pipe, blocking):
    wanted = ["x" * (number % 600) + str(number) for number in range(2000)]
    os.set_blocking(pipe[1], blocking)
    with read_in_thread(*pipe) as found:
        log = LogWriter(pipe[1], max_queued=3000)
        for number, line in enumerate(wanted):
            for piece in (f"{line}\n",) if number % 2 else (line[:100], line[100:], "\n"):
                assert log.write(piece) == len(piece)
        log.close_log(20)
    assert [STAMP.sub(b"", line) for line in found] == [b"error headgate: " + line.encode() for line in wanted]
    assert log.counters.dropped == 0


def test_all_that_is_written_to_stderr_in_a_server_becomes_whole_lines(pipe):
    with read_in_thread(*pipe) as found, open(pipe[1], "w", closefd=False) as file, redirect_stderr(file):
        with open_log():
            write_line("two\nlines, and a \udcff")
            log("warning: one\nmore\rmore")
            log("internal error: x")
            print("of a library", file=sys.stderr)
            print("x" * 5000, file=sys.stderr)
            configure_log(LogSection(lines="json", instance="gate-1", level="warning"))
            log("not shown")
            log('error: "quoted"')
            write_line("ready http://a")
            configure_log(LogSection(instance="gate-1"))
            log("the end")
            assert isinstance(sys.stderr, LogWriter)
        assert sys.stderr is file
    quoted = json.loads(found.pop(5))
    assert STAMP.fullmatch(quoted.pop("time").encode() + b" ")
    assert quoted == {"level": "error", "instance": "gate-1", "message": '"quoted"'}
    assert [STAMP.sub(b"", line) for line in found] == [
        b"two lines, and a \\udcff", b"warning headgate: one more more", b"error headgate: internal error: x",
        b"error headgate: of a library", b"error headgate: " + b"x" * (4095 - 41), b"ready http://a",
        b"info headgate[gate-1]: the end",
    ]  # fmt: skip


def test_a_stream_in_memory_stays(capsys):
    with redirect_stderr(io.StringIO()) as memory, open_log():
        assert sys.stderr is memory
        assert log_counters().dropped == 0


def test_a_reader_that_stalls_blocks_nothing_and_learns_of_dropped_lines(pipe):
    log = LogWriter(pipe[1], max_queued=1000)
    line = b"x" * 99
    for _ in range(5000):
        log.write_line(line.decode())  # the pipe holds 64 KiB and is not read
    lost = log.counters.dropped
    assert 5000 - 2000 < lost < 5000
    with read_in_thread(*pipe) as found:
        while not log._lines._queue.empty():
            threading.Event().wait(0.01)
        log.write_line("at last")
        log.close_log(20)
    assert found[-1] == b"at last"
    assert found.count(line) == 5000 - lost
    dropped = [
        re.match(STAMP.pattern + rb"warning headgate: (\d+) log lines dropped", each)
        for each in found[:-1]
        if each != line
    ]
    assert sum(int(each[1]) for each in dropped) == lost


def test_close_waits_a_limited_time(pipe):
    log = LogWriter(pipe[1])
    for _ in range(1200):  # the queue is full, too
        log.write("x" * 1000 + "\n")
    log.close_log(0.01)
    log.close_log(0.01)
    before = log.counters.dropped
    log.write("too late\n")
    assert log.counters.dropped == before + 1
    assert log._lines._thread.is_alive()
    os.close(pipe[0])  # and lets the thread go
    while not log._lines._queue.empty():
        threading.Event().wait(0.01)


def test_a_full_pipe_is_waited_for_without_work(pipe, monkeypatch):
    """Whatever the number of its descriptor: `select` takes none from 1024 on."""
    limits, calls, write = resource.getrlimit(resource.RLIMIT_NOFILE), [], os.write
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(2048, limits[0]), limits[1]))
    high = fcntl.fcntl(pipe[1], fcntl.F_DUPFD, 1500)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    os.set_blocking(high, False)
    monkeypatch.setattr(os, "write", lambda *given: calls.append(given) or write(*given))
    writer = LineWriter(high, max_queued=10, closes=True)
    writer.put([b"x" * 2**20])
    time.sleep(0.3)
    assert len(calls) < 10
    writer.close()


def test_a_closed_pipe_is_ignored(pipe):
    os.close(pipe[0])
    log = LogWriter(pipe[1])
    log.write("x\n")
    log.close_log(20)
