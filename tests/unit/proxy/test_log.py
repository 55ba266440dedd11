"""Log lines, and readers of stderr that are slow or gone."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headgate.proxy.connect import ConnectRequest
from headgate.proxy.counters import Counts
from headgate.proxy.log import DecisionLog, LogWriter, TrafficSummary
from headgate.proxy.refusal import Refusal

SECRET = "c2VjcmV0"
ORIGIN = "https://www.example.org"
ASKED = ConnectRequest(
    authority="www.example.org:443",
    fields=[("proxy-authorization", f"Bearer {SECRET}"), ("chrome-tunnel", f"key={SECRET}")],
    peer=("192.0.2.7", 50_000),
)


class Written(LogWriter):
    """Keeps the lines instead."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []

    def write(self, line: bytes) -> None:
        assert SECRET.encode() not in line
        self.lines.append(json.loads(line))


@contextmanager
def piped() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    try:
        yield reading, writing
    finally:
        for descriptor in (reading, writing):
            try:
                os.close(descriptor)
            except OSError:
                continue


def read_all(descriptor: int) -> list[bytes]:
    pieces = []
    while piece := os.read(descriptor, 1 << 16):
        pieces.append(piece)
    return b"".join(pieces).splitlines()


def test_lines_are_written_in_order() -> None:
    wanted = [b"x" * (number % 600) + str(number).encode() for number in range(2000)]
    with piped() as (reading, writing):
        lines = LogWriter(writing, max_queued=3000)
        got: list[bytes] = []
        thread = threading.Thread(target=lambda: got.extend(read_all(reading)))
        thread.start()
        for line in wanted:
            lines.write(line)
        lines.close(20)
        os.close(writing)
        thread.join(20)
    assert got == wanted
    assert lines.dropped == 0


def test_a_message_is_one_line() -> None:
    with piped() as (reading, writing):
        lines = LogWriter(writing)
        lines.say("two\nlines, and a \udcff")
        lines.close(20)
        os.close(writing)
        assert read_all(reading) == [b"two lines, and a \\udcff"]


def test_a_reader_that_stalls_blocks_nothing_and_learns_of_dropped_lines() -> None:
    with piped() as (reading, writing):
        lines = LogWriter(writing, max_queued=1000)
        line = b"x" * 99
        for _ in range(5000):
            lines.write(line)  # the pipe holds 64 KiB and is not read
        lost = lines.dropped
        assert 5000 - 2000 < lost < 5000
        got: list[bytes] = []
        thread = threading.Thread(target=lambda: got.extend(read_all(reading)))
        thread.start()
        while not lines._queue.empty():
            thread.join(0.01)
        lines.write(b"at last")
        lines.close(20)
        os.close(writing)
        thread.join(20)
    assert got[-1] == b"at last"
    assert got.count(line) == 5000 - lost
    told = [json.loads(each) for each in got[:-1] if each != line]
    assert {each["event"] for each in told} == {"dropped"}
    assert sum(each["lines"] for each in told) == lost


def test_close_waits_a_limited_time() -> None:
    with piped() as (reading, writing):
        lines = LogWriter(writing)
        for _ in range(1200):  # the queue is full, too
            lines.write(b"x" * 1000)
        thread = lines._thread
        lines.close(0.01)
        lines.close(0.01)
        before = lines.dropped
        lines.write(b"too late")
        assert lines.dropped == before + 1
        assert thread.is_alive()
        os.close(reading)  # and lets the thread go
        thread.join(20)
        assert not thread.is_alive()


def test_a_closed_pipe_is_ignored() -> None:
    with piped() as (reading, writing):
        os.close(reading)
        lines = LogWriter(writing)
        lines.write(b"x")
        lines.close(20)


def test_a_non_blocking_descriptor_is_waited_for() -> None:
    with piped() as (reading, writing):
        os.set_blocking(writing, False)
        lines = LogWriter(writing)
        for _ in range(100):
            lines.write(b"x" * 1000)
        got: list[bytes] = []
        thread = threading.Thread(target=lambda: got.extend(read_all(reading)))
        thread.start()
        lines.close(20)
        os.close(writing)
        thread.join(20)
    assert got == [b"x" * 1000] * 100


@pytest.mark.parametrize(("clients", "named"), [(False, {}), (True, {"client": "192.0.2.7"})])
def test_a_refusal_is_one_line(clients: bool, named: dict[str, str]) -> None:
    lines = Written()
    log = DecisionLog(lines, clients=clients, clock=lambda: 1.23456)
    log.refused(ASKED, ORIGIN, Refusal("port", "port 25 is not open"))
    log.refused(ConnectRequest(authority="", peer=ASKED.peer), None, Refusal("malformed"))
    assert lines.lines == [
        {
            "event": "refused", "time": 1.235, "origin": "https://www.example.org", "reason": "port", "status": 403,
            "why": "port 25 is not open", **named,
        },
        {"event": "refused", "time": 1.235, "origin": None, "reason": "malformed", "status": 400, **named},
    ]  # fmt: skip


def test_details_are_truncated() -> None:
    lines = Written()
    DecisionLog(lines).refused(ASKED, ORIGIN, Refusal("name", "x" * 9000))
    assert len(lines.lines[0]["why"]) == 1024


def test_traffic_is_summarised() -> None:
    counts, add_count = Counts(), TrafficSummary(now=100.0)
    assert add_count.line(counts, now=160.0) is None
    counts.connects.update(accepted=2, port=1)
    counts.tunnels = 2
    assert json.loads(add_count.line(counts, now=220.0) or b"") == {
        "event": "tunnels", "time": 220.0, "accepted": 2, "open": 2, "received": 0, "sent": 0, "seconds": 60.0,
    }  # fmt: skip
    assert add_count.line(counts, now=280.0) is None
    counts.received, counts.sent, counts.tunnels = 7, 3, 0
    counts.connects["accepted"] += 1
    line = json.loads(add_count.line(counts, now=290.5) or b"")
    assert (line["accepted"], line["open"], line["received"], line["sent"], line["seconds"]) == (1, 0, 7, 3, 10.5)
    counts.sent += 1
    assert json.loads(add_count.line(counts, now=200.0) or b"")["seconds"] == 0.0  # the clock was set back
