"""The store with replies of a server that is not there; with real ones: tests/e2e/test_store.py."""

import asyncio
from types import SimpleNamespace

import pytest
from redis.exceptions import NoScriptError, ResponseError

from headgate.config.store_url import StoreUrl
from headgate.limit import Accounting, DelayUntil, Domain, Rule
from headgate.release import Status
from headgate.store import RedisStore, SharedMaster, redis_store
from headgate.store.master import EXTEND, PROBE, RECORD, pack_doubles
from headgate.store.redis_store import MAX_QUEUE

NOW = 1_700_000_000.0
HOLD = NOW + 50.0


async def until(condition):
    while not condition():  # noqa: ASYNC110  # there is no event
        await asyncio.sleep(0.001)


class Setup:
    """A master and its store, whose server gives these replies to calls that record."""

    def __init__(self, *replies, scheme="redis"):
        self.replies, self.calls, self.lines, self.published = list(replies), [], [], []
        url = StoreUrl.parse(f"{scheme}://127.0.0.1:1")
        self.store = RedisStore(url, log=self.lines.append, clock=lambda: NOW, draw=lambda: 0.0)
        self.master = SharedMaster(
            [Domain("api", (Rule.parse("1/min burst 2"),))], self.store.add, max_identifiers=99, max_delay=5.0
        )
        self.store.attach(self.master, self.published.append)
        self.store._send = self.send

    async def send(self, operation, calls):
        self.calls.append((operation, sum(map(len, calls))))
        if operation == RECORD and calls:
            reply = self.replies.pop(0)
            return [pack_doubles([reply] * len(call)) if isinstance(reply, float) else reply for call in calls]
        return [b"" if operation == PROBE else pack_doubles([HOLD] * len(call)) for call in calls]

    def account(self, *identifiers):
        for identifier in identifiers:
            self.master.account(Accounting("api", Status.ACCEPTED, identifier, NOW, NOW), NOW)

    async def run(self, *identifiers):
        """Account, and serve until all replies are used."""
        self.store.start()
        for identifier in identifiers:
            await until(lambda: self.store.state == "up")
            left = len(self.replies)
            self.account(identifier)
            await until(lambda: len(self.replies) < left)  # noqa: B023  # called at once
        await self.store.close()
        return self.store.counters


async def test_releases_that_are_later_than_those_of_the_master_are_published():
    setup = Setup(HOLD, HOLD, NOW - 1.0)
    counters = await setup.run(b"a", b"a", b"b")
    # The second one finds a hold of its own master, which is as late or later.
    assert setup.published == [DelayUntil("api", b"a", HOLD)]
    assert (counters.learned, counters.records) == (1, {"shared": 3, "unshared": 0, "lost": 0})
    assert setup.lines == ["store 127.0.0.1:1: connected"]


@pytest.mark.parametrize("error", [ResponseError("OOM command not allowed."), b"\0" * 16])
async def test_an_error_in_a_reply_is_a_failure_after_which_the_live_holds_are_sent(error):
    setup = Setup(HOLD, error, HOLD)
    counters = await setup.run(b"a", b"b", b"c")
    assert counters.failures == 1
    assert counters.records["lost"] == (1 if isinstance(error, Exception) else 0)
    down, up = setup.lines[1:]
    assert down.endswith("; going on in memory until it answers")
    assert up == setup.lines[0]
    # Those of the third client's request may be sent before it or after it.
    assert (EXTEND, 1) in setup.calls or (EXTEND, 2) in setup.calls
    assert counters.holds_sent >= 1


async def test_a_script_that_is_missing_is_loaded_and_its_call_repeated():
    setup, loaded = Setup(NoScriptError("NOSCRIPT"), HOLD), []

    async def load(script):
        loaded.append(script)

    setup.store._client.script_load = load
    setup.master.record("api", Status.ACCEPTED, b"a", NOW, NOW)
    (call,) = setup.store._group(RECORD, list(setup.store._queue))
    assert await setup.store._execute(RECORD, call) == [pack_doubles([HOLD])]
    assert (len(loaded), setup.store.counters.scripts_loaded, setup.replies) == (1, 1, [])


def test_records_are_not_shared_while_the_store_is_down_or_its_queue_is_full():
    setup = Setup()
    for _ in range(MAX_QUEUE + 3):
        setup.store.add(setup.master.shared["api"], b"a", NOW, NOW)
    assert (len(setup.store._queue), setup.store.counters.records["unshared"]) == (MAX_QUEUE, 3)
    setup.store.state = "up"
    setup.store._on_failure(OSError())
    assert setup.store.state == "down"
    assert (len(setup.store._queue), setup.store.counters.records["unshared"]) == (0, MAX_QUEUE + 3)
    setup.account(b"a")
    assert setup.store.counters.records["unshared"] == MAX_QUEUE + 4
    assert setup.lines == ["store 127.0.0.1:1: no answer in 2 s; going on in memory until it answers"]


@pytest.mark.parametrize(("scheme", "sizes"), [("redis", [512, 88]), ("redis+cluster", [600])])
async def test_records_are_sent_in_batches_which_are_larger_for_a_cluster(monkeypatch, scheme, sizes):
    setup = Setup(*[HOLD] * len(sizes), scheme=scheme)
    monkeypatch.setattr(setup.store, "_failure_of_servers", lambda: asyncio.sleep(0))
    monkeypatch.setattr(setup.store._client, "get_node_from_key", lambda _: SimpleNamespace(name="a"), raising=False)
    setup.account(*(b"%d" % number for number in range(600)))
    setup.store.start()
    await until(lambda: not setup.replies)
    await setup.store.close()
    assert [size for operation, size in setup.calls if operation == RECORD and size] == sizes


async def test_a_server_is_checked_without_records_and_what_waits_is_sent_before_the_end(monkeypatch):
    monkeypatch.setattr(redis_store, "_IDLE", 0.02)
    setup = Setup(HOLD, HOLD)
    setup.store.start()
    for checks in (1, 4):
        await until(lambda: setup.calls.count((PROBE, 0)) >= checks)  # noqa: B023  # called at once
        setup.account(b"a")
        await asyncio.sleep(0)
    await setup.store.close()
    assert (setup.replies, setup.store.counters.records["shared"]) == ([], 2)
