"""The feed of the dashboard: rows, tables, viewers, and the stream over a real listener."""

import asyncio
import hashlib
import json
import re
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from headgate.config import Configuration
from headgate.config.tree import LogSection
from headgate.observe import feed as feed_module
from headgate.observe.admin import AdminApplication
from headgate.observe.feed import Feed, Sample
from headgate.runtime.access_log import identifier_namer
from headgate.runtime.asgi_server import AsgiLimits, AsgiServer
from headgate.runtime.gate_overview import gate_overview
from headgate.runtime.lifecycle import Server

VENDOR = Path(feed_module.__file__).parent / "dashboard" / "vendor"


class Counting(Server):
    """A server whose processes have counted what `now` says."""

    kind = "gate"

    def __init__(self, *processes, padding=0):
        super().__init__()
        self.now, self.tables, self.overviews, self.padding = list(processes), [], 0, padding
        self.unready = lambda: ""

    async def samples(self, *, tables):
        self.tables.append(tables)
        return [one if tables else Sample(one.counts, one.gauges, process=one.process) for one in self.now]

    async def overview(self, minute):
        self.overviews += 1
        return {"domains": {name: {} for name in minute["domains"]["rows"]}, "padding": "x" * self.padding}


def sample(process, accepted, *, domains=None, holds=0):
    tables = {"domains": domains or {"a": [accepted, 0, 0, 0]}}
    return Sample({"accepted": accepted, "seconds": [accepted, 1]}, {"queued": 1, "holds": holds}, tables, process)


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110  # nothing tells when a connection has ended
            await asyncio.sleep(0.02)


def rows(feed):
    return json.loads(feed.history().partition(b"data: ")[2])["rows"]


def event(queue):
    return json.loads(queue.get_nowait().partition(b"data: ")[2])


async def test_rows_are_what_all_processes_have_counted_since_the_row_before():
    server = Counting(sample(1, 10, holds=3), sample(2, 5, holds=4))
    feed = Feed(server)
    await feed.tick(100)
    server.now = [sample(1, 12), sample(3, 2)]  # 2 is replaced by 3
    await feed.tick(101)
    server.now = [sample(1, 4), sample(3, 3)]  # cannot fall
    await feed.tick(102)
    server.now = []  # no process answers
    await feed.tick(103)
    assert rows(feed) == [[100, 15, [15, 2], 2, 4], [101, 4, [4, 1], 2, 0], [102, 1, [1, 0], 2, 0]]
    for second in range(1_000):
        server.now = [sample(second, 1)]
        await feed.tick(200 + second)
    assert (len(rows(feed)), rows(feed)[-1][:2], len(feed._before)) == (900, [1199, 1], 33)


async def test_tables_are_read_for_all_viewers_together_and_have_a_bound():
    domains = {f"domain-{number:04d}": [number, 0, 0, 0] for number in range(1_000)}
    server = Counting(sample(1, 0, domains=domains))
    feed = Feed(server)
    for second in range(20):
        await feed.tick(second)
    assert (server.tables.count(True), server.overviews) == (2, 0)
    one, other = feed.viewers.join("::1"), feed.viewers.join("::1")
    server.now = [sample(1, 0, domains=domains | {"domain-0003": [5_003, 1, 2, 3]})]
    await feed.tick(20)
    assert server.overviews == 1
    data = one.get_nowait()
    assert data == other.get_nowait()
    assert len(data) < 16_384
    minute = json.loads(data.partition(b"data: ")[2])["now"]["minute"]["domains"]
    assert (minute["total"], len(minute["rows"])) == (1_000, 50)
    assert next(iter(minute["rows"].items())) == ("domain-0003", [5_003, 1, 2, 3])


async def test_the_last_minute_ends():
    server = Counting(sample(1, 0, domains={"a": [0, 0, 0, 0]}))
    feed = Feed(server)
    queue = feed.viewers.join("::1")
    server.now = [sample(1, 0, domains={"a": [7, 0, 0, 0]})]
    counts = []
    for second in range(1_000, 1_090, 10):
        await feed.tick(second)
        counts.append(event(queue)["now"]["minute"]["domains"]["rows"]["a"][0])
    assert (counts[:5], counts[-1]) == ([7] * 5, 0)


async def test_a_slow_overview_is_made_less_often(monkeypatch):
    starts_and_ends = (quarters / 4 for quarters in range(4))
    monkeypatch.setattr(feed_module, "time", SimpleNamespace(monotonic=starts_and_ends.__next__))
    feed = Feed(Counting(sample(1, 0)))
    queue = feed.viewers.join("::1")
    assert ["now" in [await feed.tick(second), event(queue)][1] for second in range(4)] == [True, False, True, False]


async def test_a_viewer_too_many_replaces_the_oldest_of_the_address_that_has_most():
    feed = Feed(Counting(sample(1, 0)))
    person, *stalled = (feed.viewers.join(address) for address in ["::1", *["192.0.2.1"] * 15])
    for second in range(4):
        await feed.tick(second)
    late = feed.viewers.join("::1")
    assert list(feed.viewers) == [person, *stalled[1:], late]
    assert [bool(stalled[0].get_nowait()) for _ in range(4)] == [True, True, True, False]


async def test_a_failure_is_logged_once_and_the_next_second_is_read():
    server, lines = Counting(sample(1, 0)), []
    feed = Feed(server, log=lines.append)

    async def tick(now):
        lines.append("tick")
        raise KeyError("x")

    feed.tick = tick
    running = asyncio.create_task(feed.run())
    await until(lambda: lines.count("tick") == 2)
    running.cancel()
    assert [line for line in lines if line != "tick"] == ["internal error in the dashboard: KeyError('x')"]


async def stream(port, more=b""):
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**16)
    writer.write(b"GET /events HTTP/1.1\r\nHost: localhost\r\n%b\r\n" % more)
    return reader, writer


@asynccontextmanager
async def streaming():
    """Yield a feed, its server, and the port of a listener whose connections last 0.3 s."""
    server = Counting(sample(1, 0))
    feed = Feed(server)
    listener = AsgiServer(limits=AsgiLimits(64, 0.3, 16_384))
    await listener.bind("127.0.0.1", 0)
    await listener.start(AdminApplication(server, feed, addresses=listener.addresses))
    try:
        yield feed, server, listener.addresses[0][1]
    finally:
        await listener.close()


async def test_a_stream_lasts_as_long_as_its_client_reads():
    async with streaming() as (feed, _, port):
        reader, writer = await stream(port)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        assert b"event: history" in await reader.readuntil(b"\n\n")
        for second in range(8):
            await feed.tick(second)
            assert b'{"row":[%d,' % second in await reader.readuntil(b"\n\n")
            await asyncio.sleep(0.1)
        writer.close()
        await until(lambda: not feed.viewers)


async def test_a_client_that_does_not_read_is_closed():
    async with streaming() as (feed, server, port):
        server.padding = 4_000_000
        _, writer = await stream(port)
        await until(lambda: feed.viewers)
        for second in range(100):
            await feed.tick(second)
            await asyncio.sleep(0.05)
            if not feed.viewers:
                break
        assert not feed.viewers
        writer.transport.abort()


async def test_pages_of_other_sites_take_no_stream():
    async with streaming() as (_, _, port):
        for site, status in {"same-origin": 200, "none": 200, "cross-site": 403, "same-site": 403}.items():
            reader, writer = await stream(port, f"Sec-Fetch-Site: {site}\r\n".encode())
            assert (await reader.readline()).startswith(b"HTTP/1.1 %d " % status)
            writer.close()


def details(process, *, release, up, failed, identifier="192.0.2.1"):
    """Return what one process of a gate adds to the overview."""
    return {
        "held": [(release, "a", identifier)],
        "holds": {"a": process},
        "refused": [{"time": process, "id": str(process)}],
        "origins": [("origin:80", failed, "timeout" if failed else "", process)],
        "masters": {"127.0.0.1:1": up},
    }


def test_the_overview_of_a_gate_is_that_of_all_its_processes():
    domain = {"name": "a", "rules": ["1/s"], "mode": "shadow"}
    tree = msgspec.convert({"gate": {"master": "127.0.0.1:1"}, "domain": [domain]}, Configuration)
    answers = [details(1, release=9.0, up=True, failed=True), details(2, release=8.0, up=False, failed=False)]
    answers.append(details(3, release=7.0, up=True, failed=False, identifier=""))
    shown = gate_overview(tree, {"domains": {"rows": {"a": [1, 0, 0, 0]}}}, answers, ())
    assert shown["domains"]["a"] | {"holds": 3, "rules": ("1/s",), "mode": "shadow"} == shown["domains"]["a"]
    assert [(one["identifier"], one["release"]) for one in shown["held"]] == [("192.0.2.1", 9.0), (None, 7.0)]
    assert [one["id"] for one in shown["refused"]] == ["3", "2", "1"]
    assert shown["origins"] == {"origin:80": {"failed": True, "failure": "timeout", "in_flight": 6}}
    assert shown["masters"] == {"127.0.0.1:1": False}


@pytest.mark.parametrize(("identifiers", "pattern"), [("plain", "192.0.2.1"), ("hashed", "[0-9a-f]{16}"), ("off", "")])
def test_identifiers_are_shown_as_the_log_section_says(identifiers, pattern):
    shown = identifier_namer(LogSection(identifiers=identifiers), b"k" * 16)
    assert re.fullmatch(pattern, shown(b"192.0.2.1") or "")
    assert re.fullmatch(pattern.replace("192.0.2.1", "sha256:[0-9a-f]{16}"), shown(b"authorization=secret") or "")


def test_the_vendored_library_is_the_one_that_was_checked():
    lines = (VENDOR / "SHA256SUMS").read_text().splitlines()
    found = {name: hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() for _, name in map(str.split, lines)}
    assert [f"{digest}  {name}" for name, digest in found.items()] == lines
    assert {"LICENSE-uPlot", "SHA256SUMS", "VERSION", *found} == {file.name for file in VENDOR.iterdir()}
