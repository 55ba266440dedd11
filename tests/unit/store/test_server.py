"""One server of a store, with a scripted connection: what is sent, in which order, and what a failure costs."""

import asyncio
from collections import deque

import pytest

from headgate.config.section import Address
from headgate.limit import Domain, Rule
from headgate.store import library, server
from headgate.store.connection import ClusterDown, Migrating, Moved, NotLoaded, SlotRange, StoreError
from headgate.store.library import DomainFunctions, pack_doubles
from headgate.store.server import StoreCounters, StoreServer, StoreServerPhase

API, OTHER = (DomainFunctions(Domain(name, (Rule.parse("1/s"),)), 10.0) for name in ("api", "other"))
ELSEWHERE = Moved(5, Address("elsewhere", 1))
TURNS = 2_000


class Script:
    """A connection that answers calls as `replies` says: one item for each call, or a release for each record."""

    def __init__(self, replies=(), slots=(), failure=None):
        self.replies, self.ranges, self.failure = deque(replies), list(slots), failure
        self.sent, self.waiting, self.loads, self.closed = [], deque(), 0, False
        self.hold = asyncio.Event()
        self.hold.set()

    async def slots(self):
        return self.ranges

    async def prepare(self):
        if self.failure:
            raise StoreError(self.failure)
        return False

    async def load(self):
        self.loads += 1

    async def send(self, commands):
        for _, function, count, *rest in commands:
            keys = rest[: int(count)]
            self.sent.append((function, keys))
            self.waiting.append(len(keys))

    async def receive(self):
        await self.hold.wait()
        reply = self.replies.popleft() if self.replies else None
        count = self.waiting.popleft()
        if isinstance(reply, Exception):
            raise reply
        return pack_doubles([1.0] * count) if reply is None else reply

    async def close(self):
        self.closed = True


class Reports:
    """What a server reports."""

    def __init__(self, holds=()):
        self.releases, self.moved, self.slots, self.steps = [], [], [], holds

    def on_releases(self, records, releases):
        self.releases += [(record[1], release) for record, release in zip(records, releases, strict=True)]

    def on_moved(self, one, moved, records):
        self.moved.append((moved, [record[1] for record in records]))

    def on_slots(self, one, slots):
        self.slots.append(slots)

    def holds(self, one):
        return iter(self.steps)


class Driven:
    """A running server with its scripts, one for each connection."""

    def __init__(self, *scripts, holds=()):
        self.reports, self.counters, self.lines = Reports(holds), StoreCounters(), []
        self.scripts = deque(scripts)
        self.now = 100.0
        self.server = StoreServer(
            Address("h", 1),
            self.reports,
            self.counters,
            connect=self.connect,
            slot=lambda key: len(key),
            log=self.lines.append,
            clock=lambda: self.now,
            draw=lambda: 0.0,
        )

    async def connect(self, address):
        if not self.scripts:
            raise StoreError("refused")
        return self.scripts.popleft()

    async def until(self, done):
        for _ in range(TURNS):
            if done():
                return
            await asyncio.sleep(0.001)
        raise AssertionError("nothing happened")


def record(identifier, functions=API):
    return functions, identifier, functions.key(identifier), 100.0, 100.0


def run(steps, *scripts, holds=()):
    """Run `steps` with a server; return it after it has been cancelled."""

    async def main():
        driven = Driven(*[make() for make in scripts], holds=holds)
        task = asyncio.create_task(driven.server.run())
        try:
            await steps(driven)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return driven

    return asyncio.run(main())


def test_records_are_sent_in_order_and_grouped_by_domain():
    script = []

    async def steps(driven):
        script.append(driven.scripts[0])
        for number in range(4):
            assert driven.server.put(record(b"%d" % number, API if number != 2 else OTHER))
        await driven.until(lambda: driven.counters.shared == 4)
        assert driven.server.idle

    driven = run(steps, Script)
    keys = [API.key(b"0"), API.key(b"1"), API.key(b"3")]
    assert script[0].sent == [(library.RECORD, keys), (library.RECORD, [OTHER.key(b"2")])]
    assert driven.reports.releases == [(b"0", 1.0), (b"1", 1.0), (b"3", 1.0), (b"2", 1.0)]
    assert driven.lines == ["store h:1: connected"]
    assert script[0].closed


def test_records_of_a_cluster_are_grouped_by_slot():
    script = []

    async def steps(driven):
        script.append(driven.scripts[0])
        for identifier in (b"a", b"bb", b"c", b"a"):
            driven.server.put(record(identifier))
        await driven.until(lambda: driven.counters.shared == 4)

    run(steps, lambda: Script(slots=[SlotRange(0, 16_383, Address("h", 1))]))
    sent = [keys for _, keys in script[0].sent]
    assert sent == [[API.key(b"a"), API.key(b"c"), API.key(b"a")], [API.key(b"bb")]]


def test_two_batches_are_in_flight_and_the_rest_waits(monkeypatch):
    monkeypatch.setattr(server, "BATCH_SIZE", 2)

    async def steps(driven):
        script = driven.scripts[0]
        script.hold.clear()
        for number in range(7):
            driven.server.put(record(b"%d" % number))
        await driven.until(lambda: len(script.sent) == 2)
        await asyncio.sleep(0.01)
        assert [len(keys) for _, keys in script.sent] == [2, 2]
        script.hold.set()
        await driven.until(lambda: driven.counters.shared == 7)
        assert [len(keys) for _, keys in script.sent] == [2, 2, 2, 1]

    run(steps, Script)


def test_functions_that_are_missing_are_loaded_and_records_sent_again_in_order(monkeypatch):
    monkeypatch.setattr(server, "BATCH_SIZE", 2)

    async def steps(driven):
        script = driven.scripts[0]
        for number in range(6):
            driven.server.put(record(b"%d" % number))
        await driven.until(lambda: driven.counters.shared == 6)
        assert script.loads == driven.counters.libraries_loaded == 1
        assert [identifier for identifier, _ in driven.reports.releases] == [b"%d" % number for number in range(6)]

    run(steps, lambda: Script([NotLoaded(), NotLoaded()]))


def test_moved_records_are_handed_over_and_the_slots_asked_for():
    async def steps(driven):
        driven.server.put(record(b"a"))
        await driven.until(lambda: len(driven.reports.slots) == 2)
        assert driven.reports.moved == [(ELSEWHERE, [b"a"])]
        assert driven.counters.shared == driven.counters.failures == 0

    run(steps, lambda: Script([ELSEWHERE], slots=[SlotRange(0, 16_383, Address("h", 1))]))


def test_record_of_a_slot_that_migrates_is_not_shared():
    async def steps(driven):
        driven.server.put(record(b"a"))
        await driven.until(lambda: driven.counters.unshared == 1)
        driven.server.put(record(b"b"))
        await driven.until(lambda: driven.counters.shared == 1)
        assert driven.counters.failures == 0

    run(steps, lambda: Script([Migrating()]))


def test_failure_loses_what_was_sent_and_drops_what_waits(monkeypatch):
    monkeypatch.setattr(server, "BATCH_SIZE", 2)

    async def steps(driven):
        for number in range(7):
            driven.server.put(record(b"%d" % number))
        await driven.until(lambda: driven.counters.failures == 1)
        # The first batch was answered; two more were sent.
        assert (driven.counters.shared, driven.counters.lost, driven.counters.unshared) == (2, 4, 1)
        await driven.until(lambda: driven.server.phase is StoreServerPhase.DOWN)
        assert not driven.server.put(record(b"x"))
        assert not driven.server.put_first([record(b"x")])
        await driven.until(lambda: driven.server.phase is StoreServerPhase.UP)
        assert driven.server.put(record(b"y"))
        await driven.until(lambda: driven.counters.shared == 3)

    driven = run(steps, lambda: Script([None, StoreError("no answer.")]), Script)
    down = "store h:1: no answer; going on in memory until it answers"
    assert driven.lines == ["store h:1: connected", down, "store h:1: connected"]


CLUSTER = [SlotRange(0, 16_383, Address("h", 1))]


def test_what_waits_for_a_server_of_a_cluster_is_kept_while_it_is_down(monkeypatch):
    monkeypatch.setattr(server, "BATCH_SIZE", 2)

    async def steps(driven):
        for number in range(7):
            driven.server.put(record(b"%d" % number))
        await driven.until(lambda: driven.server.phase is StoreServerPhase.DOWN)
        assert (driven.counters.shared, driven.counters.lost, driven.counters.unshared) == (2, 4, 0)
        assert driven.server.put(record(b"x"))
        assert driven.server.put_first([record(b"w")])
        assert [one[1] for one in driven.server.abandon()] == [b"w", b"6", b"x"]
        assert driven.server.put(record(b"y"))
        await driven.until(lambda: driven.counters.shared == 3)

    run(steps, lambda: Script([None, StoreError("no answer")], slots=CLUSTER), lambda: Script(slots=CLUSTER))


def test_what_waited_too_long_is_not_sent():
    async def steps(driven):
        await driven.until(lambda: driven.server.phase is StoreServerPhase.UP)
        driven.server.put(record(b"a"))
        await driven.until(lambda: driven.server.phase is StoreServerPhase.DOWN)
        driven.server.put(record(b"b"))
        driven.now += server.MAX_WAIT
        driven.server.put((API, b"c", API.key(b"c"), driven.now, driven.now))
        driven.now += 0.5
        await driven.until(lambda: driven.counters.shared == 1)
        assert (driven.counters.lost, driven.counters.unshared) == (1, 1)
        assert driven.reports.releases == [(b"c", 1.0)]

    run(steps, lambda: Script([StoreError("no answer")], slots=CLUSTER), lambda: Script(slots=CLUSTER))


def test_calls_that_a_cluster_refuses_are_sent_again_in_order_after_another_connection(monkeypatch):
    monkeypatch.setattr(server, "BATCH_SIZE", 2)
    scripts = []

    async def steps(driven):
        scripts.extend(driven.scripts)
        for number in range(6):
            driven.server.put(record(b"%d" % number))
        await driven.until(lambda: driven.counters.shared == 6)
        assert (driven.counters.lost, driven.counters.unshared, driven.counters.failures) == (0, 0, 1)
        assert [identifier for identifier, _ in driven.reports.releases] == [b"%d" % number for number in range(6)]

    refused = ClusterDown("The cluster is down")
    driven = run(steps, lambda: Script([refused, refused], slots=CLUSTER), lambda: Script(slots=CLUSTER))
    assert "The cluster is down; going on in memory" in driven.lines[1]
    assert scripts[0].closed


def test_reply_of_another_size_is_a_failure():
    async def steps(driven):
        driven.server.put(record(b"a"))
        await driven.until(lambda: driven.counters.failures == 1)

    driven = run(steps, lambda: Script([b"12345678" * 2]))
    assert "unexpected reply of 16 bytes to 1 records" in driven.lines[1]


def test_server_that_is_never_reached_is_reported_once():
    async def steps(driven):
        assert driven.server.put(record(b"a"))
        await driven.until(lambda: driven.counters.failures == 3)
        assert driven.counters.unshared == 1

    driven = run(steps)
    assert driven.lines == ["store h:1: refused; going on in memory until it answers"]


def test_connection_that_cannot_be_prepared_is_closed():
    scripts = []

    async def steps(driven):
        scripts.extend(driven.scripts)
        await driven.until(lambda: driven.counters.failures == 1)

    run(steps, lambda: Script(failure="read only"))
    assert scripts[0].closed


def test_error_in_a_callback_is_reported_and_ends_the_connection_only():
    async def steps(driven):
        def fail(records, releases):
            del driven.reports.on_releases
            raise ZeroDivisionError("oops")

        driven.reports.on_releases = fail
        driven.server.put(record(b"a"))
        await driven.until(lambda: driven.counters.failures == 1)
        await driven.until(lambda: driven.server.phase is StoreServerPhase.UP)

    driven = run(steps, Script, Script)
    assert "internal error: ZeroDivisionError: oops" in driven.lines[1]


def test_queue_is_bounded(monkeypatch):
    monkeypatch.setattr(server, "MAX_QUEUE", 3)

    async def steps(driven):
        driven.scripts[0].hold.clear()
        assert [driven.server.put(record(b"%d" % number)) for number in range(5)] == [True] * 3 + [False] * 2
        assert not driven.server.put_first([record(b"x")])
        driven.server.abandon()
        assert driven.server.put_first([record(b"b")])
        assert driven.server.put_first([record(b"a")])
        assert [one[1] for one in driven.server.abandon()] == [b"a", b"b"]

    run(steps, Script)


def test_holds_are_sent_in_steps_between_records(monkeypatch):
    monkeypatch.setattr(server, "BATCH_SIZE", 2)
    script = []

    async def steps(driven):
        script.append(driven.scripts[0])
        for number in range(6):
            driven.server.put(record(b"%d" % number))
        await driven.until(lambda: driven.counters.shared == 6 and driven.server.idle)

    driven = run(steps, Script, holds=([record(b"a")], [], [record(b"b")]))
    assert driven.counters.holds_sent == 2
    functions = [function for function, _ in script[0].sent]
    assert sorted(functions) == [library.EXTEND] * 2 + [library.RECORD] * 3
    assert functions != sorted(functions)
    assert functions != sorted(functions, reverse=True)
    assert (b"a", 1.0) in driven.reports.releases


@pytest.mark.parametrize("reply", [NotLoaded(), ELSEWHERE, Migrating()])
def test_holds_that_are_not_accepted_are_not_sent_as_records(reply):
    async def steps(driven):
        await driven.until(lambda: driven.counters.holds_sent == 1 and driven.server.idle)
        assert (driven.counters.unshared, driven.reports.moved) == (0, [])

    run(steps, lambda: Script([reply]), holds=([record(b"a")],))
