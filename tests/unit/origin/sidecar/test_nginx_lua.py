"""The data plane of nginx with Lua, over a real unix socket, with workers that a test plays."""

import asyncio
import time
from contextlib import asynccontextmanager

import pytest

from headgate.config.tree import Sidecar
from headgate.limit import DelayUntil, Domain, Gatekeeper, Rule
from headgate.origin import Rejections
from headgate.origin.sidecar import nginx_lua
from headgate.origin.sidecar.nginx_lua import NginxLua, RecordReader, encode_domain, encode_record, settings_record
from headgate.release import NEVER, Status

PATIENCE = 10.0
NOW = 1_700_000_000.0


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    # A worker reads the settings; the sidecar does not read such long records.
    monkeypatch.setattr(nginx_lua, "MAX_RECEIVED_BYTES", 100_000)
    # Ticks are called by tests.
    monkeypatch.setattr(nginx_lua, "_TICK", 1_000.0)


class Site:
    """A data plane, and a gatekeeper that remembers the verdicts."""

    def __init__(self, folder, domains=("api",)):
        self.now = NOW
        self.verdicts = []
        self.lines = []
        self.path = str(folder / "s")
        self.gatekeeper = Gatekeeper(lambda accounting, _: self.verdicts.append(accounting))
        self.plane = NginxLua(
            gatekeeper=self.gatekeeper,
            rejections=Rejections(),
            settings=Sidecar(nginx_lua=self.path),
            domains=domains,
            log=self.lines.append,
            clock=lambda: self.now,
        )

    @property
    def totals(self):
        return self.plane.totals

    def hold(self, identifier=b"id", release=NOW + 60, domain="api"):
        control = DelayUntil(domain, identifier, release)
        self.gatekeeper.obey(control, now=self.now)
        self.plane.hold(control, now=self.now)

    async def hold_many(self):
        """Hold more identifiers than a worker that reads nothing has room for."""
        for number in range(5_000):
            self.hold(b"client %d %s" % (number, b"x" * 100))
        await asyncio.sleep(0)

    async def until(self, condition):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.001)

    @asynccontextmanager
    async def worker(self, instance=b"nginx", hello=True, workers=1):
        reader, writer = await asyncio.open_unix_connection(self.path, limit=1 << 12)
        worker = Worker(reader, writer)
        if hello:
            worker.send(b"hello", nginx_lua.VERSION, workers, instance)
            assert (await worker.receive()).kind == b"settings"
        try:
            yield worker
        finally:
            writer.close()


class Worker:
    """The connection of a worker."""

    def __init__(self, reader, writer):
        self._reader, self._writer = reader, writer
        self._records = RecordReader()
        self._received = []

    def send(self, kind, first=0, second=0, content=b""):
        self._writer.write(encode_record(kind, first, second, content))

    def send_bytes(self, data):
        self._writer.write(data)

    async def receive(self):
        """Return the next record that is no sign of life; None at the end of the connection."""
        async with asyncio.timeout(PATIENCE):
            while True:
                while self._received:
                    record = self._received.pop(0)
                    if record.kind != b"alive":
                        return record
                try:
                    data = await self._reader.read(1 << 16)
                except ConnectionError:
                    data = b""
                if not data:
                    return None
                self._received.extend(self._records.feed(data))

    async def received(self, count):
        return [await self.receive() for _ in range(count)]

    async def has_ended(self):
        return await self.receive() is None


@pytest.fixture
def started(tmp_path):
    """Return the context in which a data plane runs."""

    @asynccontextmanager
    async def running():
        site = Site(tmp_path)
        await site.plane.start()
        try:
            yield site
        finally:
            await site.plane.close()

    return running


async def test_a_worker_receives_the_settings_and_the_holds_in_force(started):
    async with started() as site:
        site.hold(b"held", NOW + 60)
        site.hold(b"\0\n %\xff", NOW + 60.0004)
        site.hold(b"ended", NOW - 1)
        async with site.worker() as worker:
            assert sorted(await worker.received(2)) == [
                (b"hold", 1_700_000_060_000, 0, b"api\0held"),
                (b"hold", 1_700_000_060_001, 0, b"api\0\0\n %\xff"),
            ]
            assert site.plane.unready() == ""
            async with site.worker(workers=3):  # a reload has changed their number
                assert site.plane.unready() == "2 of 3 workers of nginx are connected"
                assert site.plane.details() == {"instances": 1, "workers": 2, "expected_workers": 3}
        await site.until(lambda: site.plane.unready() == "no worker of nginx is connected")
        assert site.plane.details() == {"instances": 0, "workers": 0, "expected_workers": 0}


async def test_a_hold_without_an_end_has_one_on_the_wire(started):
    async with started() as site, site.worker() as worker:
        site.hold(release=NEVER)
        assert (await worker.receive()).first == 4_000_000_000_000


async def test_one_worker_of_each_nginx_receives_a_hold(started):
    async with (
        started() as site,
        site.worker(b"one") as first,
        site.worker(b"one") as second,
        site.worker(b"two") as other,
    ):
        site.hold(b"a")
        site.hold(b"b")
        for worker in (first, other):
            assert [record.content for record in await worker.received(2)] == [b"api\0a", b"api\0b"]
        assert site.totals.holds_sent == 4
        second.send(b"accepted", 1, 0, b"api\0id")
        await site.until(lambda: site.verdicts)
        assert second._received == []


async def test_the_newest_worker_receives_all_holds_when_the_receiver_has_ended(started):
    async with started() as site, site.worker() as second, site.worker() as third:
        site.hold(b"early")
        assert (await second.receive()).content == b"api\0early"
        second._writer.close()
        assert (await third.receive()).content == b"api\0early"
        site.hold(b"late")
        assert (await third.receive()).content == b"api\0late"


async def test_verdicts_are_reported(started):
    async with started() as site:
        site.now = NOW + 1
        async with site.worker() as worker:
            worker.send(b"accepted", 1_700_000_000_123, 0, b"api\0id")
            worker.send(b"delayed", 1_700_000_000_123, 1_700_000_001_000, b"api\0\0\n")
            worker.send(b"rejected", 1_700_000_000_123, 0, b"api\0" + b"x" * 255)
            worker.send(b"accepted", 1_700_000_000_123, 0, b"unknown\0id")
            worker.send(b"later", 1, 2, b"a kind that a later version may have")
            worker.send(b"status", 3, 4)
            await site.until(lambda: site.totals.dropped)
            assert [(one.status, one.identifier, one.received, one.release) for one in site.verdicts] == [
                (Status.ACCEPTED, b"id", NOW + 0.123, NOW + 0.123),
                (Status.DELAYED, b"\0\n", NOW + 0.123, NOW + 1),
                (Status.REJECTED, b"x" * 255, NOW + 0.123, NOW + 0.123),
            ]
            assert (site.totals.failed["unknown_domain"], site.totals.dropped) == (1, 3)
            assert site.totals.failed["evicted"] == 4
            assert "nginx names the domain 'unknown'" in site.lines[0]


@pytest.mark.parametrize(
    "data",
    [
        b"accepted 1 0 6 api\0id\n",
        b"hello 2 1 0 \n",
        b"hello 2 1 65 " + b"x" * 65 + b"\n",
        b"hello 2 1 1 a\naccepted 1 0 3 api\n",
        b"hello 2 1 1 a\naccepted 1 0 260 api\0" + b"x" * 256 + b"\n",
        b"hello 2 1 1 a\n" + b"?" * 100,
        b"GET / HTTP/1.1\r\nHost: headgate\r\n\r\n" + b" " * 40,
    ],
    ids=["no hello", "no name", "long name", "no identifier", "long identifier", "no record", "http"],
)
async def test_the_connection_of_a_malformed_record_is_closed(started, data):
    async with started() as site, site.worker(b"other") as good, site.worker(hello=False) as bad:
        bad.send_bytes(data)
        await site.until(lambda: site.totals.failed["malformed"] == 1)
        await site.until(lambda: site.plane.details()["workers"] == 1)
        good.send(b"accepted", 1, 0, b"api\0id")
        await site.until(lambda: site.verdicts)


async def test_another_version_of_the_module_is_logged_once(started):
    async with started() as site:
        for _ in range(2):
            async with site.worker(hello=False) as worker:
                worker.send(b"hello", 1, 1, b"nginx")
                assert await worker.has_ended()
        assert site.lines == ["nginx has another version of headgate.lua (1, not 2); reload nginx"]


async def test_a_worker_that_sends_nothing_is_closed(started):
    async with started() as site, site.worker() as silent, site.worker() as alive:
        for number in range(5):
            alive.send(b"status", 1)
            await site.until(lambda so_far=number: site.totals.dropped == so_far + 1)
            site.plane.tick()
        assert await silent.has_ended()
        assert site.totals.failed["unresponsive"] == 1
        site.hold(b"id")
        assert (await alive.receive()).content == b"api\0id"


async def test_holds_left_out_for_a_slow_worker_are_sent_when_it_has_caught_up(started, monkeypatch):
    monkeypatch.setattr(nginx_lua, "MAX_BUFFERED", 10_000)
    async with started() as site, site.worker() as worker:
        for number in range(20_000):
            site.hold(b"client %d %s" % (number, b"x" * 100))
            if number % 100 == 0:
                await asyncio.sleep(0)
        (connection,) = site.plane.connections
        assert not connection.writable.is_set()
        assert site.totals.holds_sent < 20_000, "some were left out"
        found, most = set(), 0
        while len(found) < 20_000:
            found.add((await worker.receive()).content)
            most = max(most, connection._transport.get_write_buffer_size())
        assert most < 1_000_000, "all holds are 2.6 MB"


async def test_a_worker_that_reads_nothing_is_closed(started, monkeypatch):
    monkeypatch.setattr(nginx_lua, "MAX_BUFFERED", 10_000)
    async with started() as site, site.worker() as worker:
        await site.hold_many()
        for number in range(4):
            worker.send(b"status", 1)
            await site.until(lambda so_far=number: site.totals.dropped == so_far + 1)
            site.plane.tick()
        assert site.totals.failed["unresponsive"] == 1
        await site.until(site.plane.unready)


async def test_another_worker_receives_the_holds_that_were_to_be_sent_to_a_slow_one(started, monkeypatch):
    monkeypatch.setattr(nginx_lua, "MAX_BUFFERED", 10_000)
    async with started() as site, site.worker() as slow, site.worker() as other:
        await site.hold_many()
        site.now -= 3_600
        site.plane.tick()  # now a task waits to send all holds
        await asyncio.sleep(0)
        slow._writer.close()
        found = {(await other.receive()).content for _ in range(5_000)}
        assert len(found) == 5_000


async def test_a_clock_that_is_set_back_sends_all_holds_by_the_new_time(started):
    async with started() as site, site.worker() as worker:
        site.hold(release=NOW + 60)
        assert (await worker.receive()).first == 1_700_000_060_000
        site.now -= 3_600
        site.plane.tick()
        assert (await worker.receive()).kind == b"clear"
        assert (await worker.receive()).first == 1_700_000_060_000 - 3_600_000


async def test_workers_get_a_sign_of_life_by_themselves(started, monkeypatch):
    monkeypatch.setattr(nginx_lua, "_TICK", 0.01)
    async with started() as site, site.worker() as worker:
        data = await worker._reader.readuntil(b"alive 0 0 0 \n")
        assert data.endswith(b"alive 0 0 0 \n")


async def test_a_closed_plane_leaves_nothing(started, tmp_path):
    async with started() as site:
        async with site.worker() as worker:
            await site.plane.close()
            assert await worker.has_ended()
            assert not (tmp_path / "s").exists()
        await site.plane.close()


def settings_of(domains=("api",), spacing=None, rules=(), **settings):
    """Return the records among the settings, by kind."""
    gatekeeper = Gatekeeper(spacing=spacing)
    rejections = Rejections([Domain(name, rules) for name in domains], status=settings.get("rejection_status", 503))
    (record,) = RecordReader().feed(settings_record(Sidecar(**settings), gatekeeper, rejections, domains))
    assert record.kind == b"settings"
    found = {}
    for inner in RecordReader().feed(record.content):
        found.setdefault(inner.kind, []).append(inner)
    return found


def test_limits_are_in_milliseconds():
    found = settings_of(max_delay=2.5, max_delayed=7, max_hold=60.0)
    assert found[b"delays"][0][1:3] == (2_500, 7)
    assert found[b"holds"][0].first == 60_000


@pytest.mark.parametrize(
    ("text", "method"),
    [("client-address", b"client-address"), (" header: X-Api-Key ", b"header:x-api-key")],
)
def test_the_method_is_in_its_shortest_form(text, method):
    (identify,) = settings_of(identify=text, ipv6_prefix=56)[b"identify"]
    assert (identify.first, identify.content) == (56, method)


def test_spacing_is_rounded_down_and_only_for_domains_with_rules():
    found = settings_of(("api", "other"), {"api": 1 / 3})
    assert [record[1:] for record in found[b"spacing"]] == [(333_333, 0, b"api")]


def test_a_rejection_has_a_mark_in_place_of_the_seconds():
    found = settings_of(("api",), rules=(Rule.parse("5/s burst 5"),), rejection_status=429)
    text, problem = found[b"rejection"]
    name, form, body, *fields = text.content.split(b"\0")
    assert (text.first, name, form) == (429, b"api", b"text")
    assert body.endswith(b"accepted in \1 s.\n")
    values = dict(zip(fields[::2], fields[1::2], strict=True))
    assert values[b"retry-after"] == b"\1"
    assert values[b"ratelimit"] == b'"api";r=0;t=\1'
    assert values[b"ratelimit-policy"] == b'"api";q=5;w=1'
    assert b"content-length" not in values
    assert problem.content.split(b"\0")[1] == b"problem"


def test_a_domain_has_the_bytes_that_it_has_on_the_bus():
    assert encode_domain("ü\udcff") == b"\xc3\xbc\xff"
