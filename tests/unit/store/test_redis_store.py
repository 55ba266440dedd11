"""A store over scripted connections: which server gets which record, and what happens to its answers."""

import asyncio
import sys

import pytest

from headgate.config.section import Address
from headgate.config.store_url import StoreUrl
from headgate.errors import MissingExtra
from headgate.limit import DelayUntil, Domain, Rule
from headgate.store import RedisStore, SharedMaster, redis_store
from headgate.store.connection import Moved, SlotRange, StoreError
from headgate.store.library import pack_doubles
from tests.unit.store.test_server import Script, record

NOW = 1_000.0
A, B, C = (Address("h", port) for port in (1, 2, 3))
HALVES = [SlotRange(0, 8_191, A), SlotRange(8_192, 16_383, B)]
DOMAIN = Domain("api", (Rule.parse("1/s burst 1"),))


class Answers(Script):
    """Releases that lie a number of seconds after `NOW`."""

    def __init__(self, seconds=0.0, **options):
        super().__init__(**options)
        self.seconds = seconds

    async def receive(self):
        reply = await super().receive()
        return pack_doubles([NOW + self.seconds] * (len(reply) // 8)) if isinstance(reply, bytes) else reply


class Running:
    """A started store with a master, over the connections in `scripts` by address."""

    def __init__(self, scripts, monkeypatch, url="redis://h:1", domain=DOMAIN):
        self.scripts, self.published, self.lines = scripts, [], []

        async def connect(_url, address):
            if address not in scripts:
                raise StoreError("refused")
            return scripts[address]

        monkeypatch.setattr(redis_store, "connect", connect)
        self.store = RedisStore(StoreUrl.parse(url), log=self.lines.append, clock=lambda: NOW, draw=lambda: 0.0)
        self.attach(domain)
        self.store.start()

    def attach(self, domain):
        self.master = SharedMaster([domain], self.store, max_identifiers=100, max_delay=5.0)
        self.store.attach(self.master, self.published.append)

    def add(self, *identifiers):
        for identifier in identifiers:
            self.store.add(self.master.functions["api"], identifier, NOW, NOW)

    async def until(self, done):
        for _ in range(2_000):
            if done():
                return
            await asyncio.sleep(0.001)
        raise AssertionError("nothing happened")


@pytest.fixture
def run(monkeypatch):
    """Return a function that runs `steps` with a store."""

    def ran(steps, scripts, **options):
        async def main():
            running = Running(scripts, monkeypatch, **options)
            try:
                await steps(running)
            finally:
                await running.store.close()
            return running

        return asyncio.run(main())

    return ran


def keys(script):
    return {key for _, sent in script.sent for key in sent}


def test_later_hold_is_published_once(run):
    async def steps(running):
        assert running.store.state == "connecting"
        running.add(b"a", b"a", b"b")
        await running.until(lambda: running.store.counters.shared == 3)
        assert running.store.state == "up"

    running = run(steps, {A: Answers(5.0)})
    assert running.published == [DelayUntil("api", b"a", NOW + 5), DelayUntil("api", b"b", NOW + 5)]
    assert running.store.counters.learned == 2
    assert set(running.master.holds("api", now=NOW)) == set(running.published)


def test_release_that_is_not_later_changes_nothing(run):
    async def steps(running):
        running.add(b"a")
        await running.until(lambda: running.store.counters.shared == 1)

    assert run(steps, {A: Answers(0.0)}).published == []


def test_answers_to_records_of_other_rules_are_ignored(run):
    async def steps(running):
        running.scripts[A].hold.clear()
        running.add(b"a")
        await running.until(lambda: running.scripts[A].sent)
        running.attach(Domain("api", (Rule.parse("9/s"),)))
        running.scripts[A].hold.set()
        await running.until(lambda: running.store.counters.shared == 1)

    assert run(steps, {A: Answers(5.0)}).published == []


def test_live_holds_are_sent_after_each_connection(run):
    async def steps(running):
        running.master.learn("api", b"held", NOW + 3, NOW)
        running.master.learn("api", b"other", NOW + 3, NOW)
        await running.until(lambda: running.store.counters.holds_sent == 2)

    scripts = {A: Answers()}
    run(steps, scripts)
    assert keys(scripts[A]) == {b"headgate:{api;held}", b"headgate:{api;other}"}


def test_each_server_of_a_cluster_gets_its_slots_and_its_holds(run):
    identifiers = [b"%d" % number for number in range(40)]

    async def steps(running):
        running.master.learn("api", b"x1", NOW + 3, NOW)
        running.master.learn("api", b"x2", NOW + 3, NOW)
        await running.until(lambda: running.store.state == "up" and running.store.counters.holds_sent == 2)
        running.add(*identifiers)
        await running.until(lambda: running.store.counters.shared == 40)

    from redis.crc import key_slot

    scripts = {A: Answers(slots=HALVES), B: Answers(slots=HALVES)}
    run(steps, scripts)
    assert all(key_slot(key) <= 8_191 for key in keys(scripts[A]))
    assert all(key_slot(key) > 8_191 for key in keys(scripts[B]))
    assert len(keys(scripts[A]) | keys(scripts[B])) == 42


def test_record_that_has_moved_is_sent_to_its_new_server(run):
    async def steps(running):
        await running.until(lambda: running.store.state == "up")
        # All slots have moved to a third server, and the first one knows only when it is asked.
        for address in (A, B):
            script = running.scripts[address]
            script.ranges = [SlotRange(0, 16_383, C)]
            script.replies.extend(Moved(slot, C) for slot in [0])
        running.add(b"a")
        await running.until(lambda: running.store.counters.shared == 1)
        await running.until(lambda: not {A, B} & running.store._servers.keys())

    scripts = {A: Answers(slots=HALVES), B: Answers(slots=HALVES), C: Answers(slots=[SlotRange(0, 16_383, C)])}
    running = run(steps, scripts)
    assert keys(scripts[C]) == {b"headgate:{api;a}"}
    assert scripts[A].closed
    assert scripts[B].closed
    assert running.store.counters.lost == running.store.counters.unshared == 0


def test_records_that_wait_for_a_server_without_slots_are_sent_to_its_successor(run):
    async def steps(running):
        await running.until(lambda: running.store.state == "up")
        store = running.store
        only = store._servers[A]
        only.put((*record(b"a", running.master.functions["api"])[:3], NOW, NOW))
        store.on_slots(only, [SlotRange(0, 16_383, C)])
        await running.until(lambda: store.counters.shared == 1)

    scripts = {A: Answers(), C: Answers(slots=[SlotRange(0, 16_383, C)])}
    run(steps, scripts)
    assert keys(scripts[C]) == {b"headgate:{api;a}"}


def test_slots_are_asked_for_while_a_server_is_down(run, monkeypatch):
    monkeypatch.setattr(redis_store, "_WATCH_INTERVAL", 0.01)

    async def steps(running):
        await running.until(lambda: running.store.state == "partial")
        running.scripts[A].ranges = [SlotRange(0, 8_191, A), SlotRange(8_192, 16_383, C)]
        await running.until(lambda: running.store.state == "up")
        assert set(running.store._servers) == {A, C}

    scripts = {A: Answers(slots=HALVES), C: Answers(slots=[SlotRange(0, 8_191, A), SlotRange(8_192, 16_383, C)])}
    run(steps, scripts)


def test_record_of_a_slot_without_server_is_not_shared(run):
    async def steps(running):
        await running.until(lambda: running.store.state == "up")
        running.add(*[b"%d" % number for number in range(20)])
        await running.until(lambda: running.store.counters.shared + running.store.counters.unshared == 20)
        assert running.store.counters.unshared > 0

    run(steps, {A: Answers(slots=HALVES[:1])})


def test_cluster_is_found_by_any_of_its_nodes(run):
    async def steps(running):
        await running.until(lambda: running.store.state == "up")
        assert set(running.store._servers) == {A, B}

    run(steps, {A: Answers(slots=HALVES), B: Answers(slots=HALVES)}, url="redis+cluster://gone:1,h:2")


def test_close_sends_what_waits(run):
    async def steps(running):
        await running.until(lambda: running.store.state == "up")
        running.add(b"a")

    assert run(steps, {A: Answers()}).store.counters.shared == 1


def test_close_does_not_wait_long_for_a_server_that_does_not_answer(run, monkeypatch):
    monkeypatch.setattr(redis_store, "_FLUSH_CHECKS", 1)
    monkeypatch.setattr(redis_store, "_FLUSH_TIMEOUT", 0.0)

    async def steps(running):
        await running.until(lambda: running.store.state == "up")
        running.scripts[A].hold.clear()
        running.add(b"a")

    assert run(steps, {A: Answers()}).store.counters.shared == 0


def test_missing_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(MissingExtra, match="extra 'redis'"):
        RedisStore(StoreUrl.parse("redis://h"), log=print)
