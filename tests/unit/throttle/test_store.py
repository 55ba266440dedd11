from dataclasses import dataclass
from itertools import pairwise

import pytest

from headgate.throttle import Policy
from headgate.throttle.entry import (
    BUCKET,
    BUDGET,
    OPT_OUT,
    TARGET,
    ClockSetBack,
    EntryKey,
    OptedOut,
    ResponseOutcome,
    ResponseReceived,
    RetryTokens,
    ThrottleEntry,
)
from headgate.throttle.store import MAX_BUCKETS, MemoryStore
from headgate.throttle.target import Target, parse_target

ORIGIN = "http://www.example.com"


def target(path, origin=ORIGIN) -> Target:
    found = parse_target(origin + path)
    assert found is not None
    return found


def make(most=1_000, **settings):
    return MemoryStore(Policy(), max_targets=most, max_opt_outs=most, **settings)


@dataclass(frozen=True)
class SetValues:
    """A change that sets values of an entry, or of a new one."""

    state: dict
    now: float

    def apply(self, entry, key, policy):
        entry = entry or ThrottleEntry(self.now, noted=self.now, kind=key.kind, origin=key.origin, path=key.path)
        for name, value in self.state.items():
            setattr(entry, name, value)
        return entry


def put(store, path, origin=ORIGIN, *, now=0.0, **state) -> ThrottleEntry:
    """Set the values of the entry that holds a target, or of a new one."""
    found = store.find(target(path, origin), now=now)
    key = EntryKey(TARGET, origin, path) if found is None else found.key
    store.change(key, SetValues(state, now))
    return store.get(key)


def bucket(path, backoff, **values) -> ThrottleEntry:
    return ThrottleEntry(backoff, kind=BUCKET, origin=ORIGIN, path=path, **values)


def holder(store, path, *, now=0.0):
    """Return the path of the bucket that holds this path, or None."""
    found = store.find(target(path), now=now)
    return found.path if found is not None and found.kind == BUCKET else None


class TestTargets:
    def test_each_target_has_one_entry(self):
        store = make()
        entry = put(store, "/a")
        assert store.find(target("/a"), now=0.0) is put(store, "/a") is entry
        assert put(store, "/b") is not entry
        assert put(store, "/a", "https://www.example.com") is not entry
        assert store.size == 3
        assert store.find(target("/c"), now=0.0) is None

    def test_reset_drops_everything_except_opt_outs(self):
        store = make()
        put(store, "/a")
        store.declare(target("/b/c"), "/b", now=0.0)
        store.change(EntryKey(OPT_OUT, "a.example"), OptedOut())
        store.change(EntryKey(BUDGET, ORIGIN), RetryTokens(shares=-10, full=20))
        store.reset()
        assert store.size == 0
        assert store.find(target("/a"), now=0.0) is None
        assert holder(store, "/b") is None
        assert store.get(EntryKey(BUDGET, ORIGIN)) is None
        assert store.get(EntryKey(OPT_OUT, "a.example")) is not None
        put(store, "/a")
        assert store.size == 1


class TestOnChange:
    def test_change_is_reported_with_the_new_entry(self):
        told = []
        store = make(on_change=lambda *change: told.append(change))
        response = ResponseReceived(now=5.0, outcome=ResponseOutcome.FAILURE)
        store.record(target("/a"), response)
        key = EntryKey(TARGET, ORIGIN, "/a")
        assert told == [(key, response, store.get(key))]
        store.record(target("/a"), response)
        assert told == [(key, response, store.get(key))] * 2
        told.pop()
        store.apply(key, response)
        store.put(key, None)
        assert len(told) == 1

    @pytest.mark.parametrize(("step", "is_told"), [(60.0, True), (59.0, False)])
    def test_clock_set_back_by_a_minute_is_reported_once(self, step, is_told):
        told = []
        store = make(on_change=lambda *change: told.append(change))
        entry = put(store, "/a", now=100.0, backoff=190.0)
        entry.noted = 100.0
        horizons = entry.horizons
        told.clear()
        for _ in range(2):
            assert store.find(target("/a"), now=100.0 - step) is entry
        change = ClockSetBack(now=100.0 - step, horizons=horizons)
        assert told == [(entry.key, change, entry)] * is_told
        assert entry.backoff == 190.0 - step

    def test_calls_without_a_change_are_not_reported(self):
        store = make(on_change=lambda *_: pytest.fail("changed"))
        store.record(target("/a"), ResponseReceived(now=5.0, outcome=ResponseOutcome.SUCCESS))
        store.clear_backoff(ORIGIN, now=5.0, end=lambda: 9.0)
        store.find(target("/a"), now=5.0)
        assert store.forget(now=5.0) == 0


class TestExpiry:
    @pytest.mark.parametrize(("count", "lifetime"), [(1, 900.0), (0, 120.0), (-1, 120.0)])
    @pytest.mark.parametrize("horizon", ["backoff", "retry_after"])
    def test_entry_expires_a_lifetime_after_the_later_horizon(self, count, lifetime, horizon):
        store = make()
        entry = put(store, "/a", count=count, **{horizon: 50.0})
        assert store.find(target("/a"), now=50.0 + lifetime - 0.001) is entry
        assert store.forget(now=50.0 + lifetime - 0.001) == 0
        assert store.find(target("/a"), now=50.0 + lifetime) is None
        assert store.size == 1
        assert store.forget(now=50.0 + lifetime) == 1
        assert store.size == 0

    def test_responses_look_at_each_entry_in_use_once_in_a_lifetime(self):
        store = make()
        entries = [put(store, f"/{name}", backoff=10_000.0 * (name > 0)) for name in range(12)]
        looks = []
        for second in range(240):
            store.record(target("/other"), ResponseReceived(float(second), ResponseOutcome.SUCCESS))
            looks.append(store._queue[-1])
        changes = [here is not there for here, there in pairwise(looks)]
        assert sum(changes) == 23  # every ten seconds
        assert entries[0] not in store._queue

    def test_responses_go_on_dropping_entries_after_the_clock_was_set_back(self):
        store = make()
        for now in (10_000.0, 0.0):
            put(store, f"/{now}", now=now, backoff=now)
            store.record(target("/other"), ResponseReceived(now, ResponseOutcome.SUCCESS))
        for second in range(500):
            store.record(target("/other"), ResponseReceived(float(second), ResponseOutcome.SUCCESS))
        assert store.size == 1

    def test_expired_entry_is_replaced(self):
        store = make()
        put(store, "/a", count=5)
        new = put(store, "/a", now=900.0)
        assert (new.failures, new.backoff, store.size) == (0, 900.0, 1)

    def test_expired_bucket_holds_no_target(self):
        store = make()
        store.declare(target("/a/b"), "/a", now=0.0)
        put(store, "/a/b", count=1)
        store.declare(target("/a/b/c"), "/a/b", now=0.0)
        put(store, "/a/b", count=-1)
        assert holder(store, "/a/b/c", now=119.0) == "/a/b"
        assert holder(store, "/a/b/c", now=120.0) == "/a"
        assert holder(store, "/a/b/c", now=900.0) is None
        put(store, "/a/b/c", now=900.0)
        assert [entry.path for entry in store._queue if store._is_stored(entry)] == ["/a/b/c"]


class TestBuckets:
    def test_bucket_absorbs_its_members(self):
        store = make()
        put(store, "/m/old", count=9, now=-2_000.0)
        put(store, "/m/a", count=4, backoff=3.0, retry_after=5.0)
        put(store, "/m", count=2, backoff=7.0)
        put(store, "/mm", count=6)
        put(store, "/m/a", "http://www.example.com:8080", count=7)
        put(store, "/m/a", "http://www.example.co", count=8)
        store.declare(target("/m/c"), "/m", now=0.0)
        entry = store.find(target("/m/new"), now=0.0)
        assert entry == bucket("/m", 7.0, count=4, retry_after=5.0, noted=0.0)
        assert store.find(target("/m"), now=0.0) is entry is put(store, "/m/a")
        assert store.find(target("/mm"), now=0.0).failures == 6
        assert store.size == 4

    def test_repeated_declaration_changes_nothing(self):
        store = make()
        store.declare(target("/m/a"), "/m", now=0.0)
        entry = put(store, "/m/b", count=3)
        store.declare(target("/m/c"), "/m", now=1.0)
        assert store.find(target("/m/c"), now=1.0) is entry
        assert store.size == 1

    def test_expired_bucket_is_declared_anew(self):
        store = make()
        store.declare(target("/m/a"), "/m", now=0.0)
        put(store, "/m/b", count=3)
        store.declare(target("/m/c"), "/m", now=900.0)
        assert store.find(target("/m/c"), now=900.0) == bucket("/m", 900.0, noted=900.0)
        assert store.size == 1

    def test_longest_match_wins_in_any_order_of_declaration(self):
        for order in (["/a", "/a/b", "/a/b/"], ["/a/b/", "/a/b", "/a"], ["/a/b", "/a/b/", "/a"]):
            store = make()
            for path in order:
                store.declare(target("/a/b/c"), path, now=0.0)
            found = [holder(store, path) for path in ("/a/b/c", "/a/b", "/a/bc", "/a", "/")]
            assert found == ["/a/b/", "/a/b", "/a", "/a", None]
            assert store.size == 3

    def test_wider_bucket_does_not_change_a_narrower_one(self):
        store = make()
        store.declare(target("/a/b/c"), "/a/b", now=0.0)
        narrow = put(store, "/a/b/c", count=9, backoff=99.0)
        put(store, "/a/x", count=2)
        store.declare(target("/a/y"), "/a", now=0.0)
        assert store.find(target("/a/b/c"), now=0.0) is narrow
        assert store.find(target("/a/x"), now=0.0).failures == 2

    def test_narrower_bucket_starts_with_the_values_of_the_wider_one(self):
        store = make()
        store.declare(target("/a/b/c"), "/a", now=0.0)
        wide = put(store, "/a/b/c", count=9, backoff=99.0, retry_after=50.0)
        store.declare(target("/a/b/c"), "/a/b", now=0.0)
        narrow = store.find(target("/a/b/c"), now=0.0)
        assert narrow == bucket("/a/b", 99.0, count=9, retry_after=50.0, noted=0.0)
        assert narrow is not wide
        assert store.find(target("/a/c"), now=0.0) is wide

    def test_number_of_buckets_per_origin_is_bounded(self):
        store = make()
        for number in range(MAX_BUCKETS):
            store.declare(target(f"/{number}"), f"/{number}", now=0.0)
            put(store, f"/{number}", count=1)
        store.declare(target("/more/a"), "/more", now=0.0)
        assert holder(store, "/more/a") is None
        assert store.size == MAX_BUCKETS == 64
        other = target("/more/a", "http://other.example")
        store.declare(other, "/more", now=0.0)
        assert store.find(other, now=0.0).path == "/more"

    @pytest.mark.parametrize("state", [{"count": 0}, {"count": 1, "backoff": -1_000.0}])
    def test_bucket_without_a_hold_is_replaced(self, state):
        store = make()
        for number in range(MAX_BUCKETS):
            store.declare(target(f"/{number}"), f"/{number}", now=0.0)
            put(store, f"/{number}", count=1)
        put(store, "/7", **state)
        store.declare(target("/more/a"), "/more", now=0.0)
        assert holder(store, "/more/a") == "/more"
        assert holder(store, "/7") is None
        assert store.size == MAX_BUCKETS
        assert sum(holder(store, f"/{number}") is not None for number in range(MAX_BUCKETS)) == MAX_BUCKETS - 1


class TestEviction:
    def test_expired_then_healthy_then_released_then_held_entries_are_dropped(self):
        states = {
            "held": {"count": 0, "retry_after": 1e9},
            "backing-off": {"count": 9, "backoff": 1_001.0},
            "released": {"count": 9, "backoff": 999.0},
            "healthy": {"count": 0, "backoff": 999.0},
            "forgotten": {"count": 9, "backoff": 0.0},
        }
        store = make(most=len(states))
        for name, state in states.items():
            put(store, "/", f"http://{name}.example", **state)
        for index, gone in enumerate(["forgotten", "healthy", "released"]):
            put(store, "/", f"http://new{index}.example", now=1_000.0, count=1, backoff=2_000.0)
            assert store.size == len(states)
            assert store.find(target("/", f"http://{gone}.example"), now=1_000.0) is None
            assert store.counters.evicted == 0
        for name in ("held", "backing-off"):
            assert store.find(target("/", f"http://{name}.example"), now=1_000.0) is not None
        put(store, "/", "http://last.example", now=1_000.0)
        assert (store.size, store.counters.evicted) == (len(states), 1)

    def test_buckets_count_and_are_evicted(self):
        store = make(most=2)
        store.declare(target("/a"), "/a", now=0.0)
        put(store, "/a", count=1, backoff=9.0)
        put(store, "/b", count=1, backoff=9.0)
        store.declare(target("/c"), "/c", now=0.0)
        assert (store.size, store.counters.evicted) == (2, 1)
        assert holder(store, "/c") == "/c"
        store.declare(target("/d"), "/d", now=0.0)
        assert (store.size, store.counters.evicted) == (2, 1)
        assert holder(store, "/c") is None

    def test_least_important_of_the_next_sixteen_is_dropped(self):
        store = make(most=160)
        put(store, "/healthy", count=0, backoff=0.0)
        for number in range(159):
            put(store, f"/{number}", count=1, backoff=9.0)
        for number in range(10):
            assert store.size == 160
            put(store, f"/new/{number}", count=1, backoff=9.0)
        assert store.find(target("/healthy"), now=0.0) is None
        assert (store.size, store.counters.evicted) == (160, 9)

    @pytest.mark.parametrize("held", [True, False])
    def test_new_entry_examines_at_most_sixteen(self, monkeypatch, held):
        store, looks = make(most=2_000), []
        is_stored = MemoryStore._is_stored
        monkeypatch.setattr(MemoryStore, "_is_stored", lambda *given: looks.append(given) or is_stored(*given))
        for number in range(6_000):
            looks.clear()
            put(store, f"/{number}", now=float(number), count=1, backoff=1e9 if held else float(number))
            assert len(looks) <= 16
            assert store.size <= len(store._queue) <= 2_000

    def test_dropped_entries_leave_the_queue(self):
        store = make(most=100)
        for number in range(1_000):
            put(store, f"/{number}", count=0, backoff=0.0)
            store.record(target(f"/{number}"), ResponseReceived(now=0.0, outcome=ResponseOutcome.SUCCESS))
            assert len(store._queue) <= 2
        assert (store.size, store.counters.evicted) == (0, 0)

    def test_new_entries_drop_expired_ones(self):
        store = make()
        for number in range(100):
            put(store, f"/{number}", count=1)
        for number in range(100, 200):
            put(store, f"/{number}", count=1, now=900.0)
        assert store.size == 100

    def test_bucket_absorbs_its_members_before_they_are_evicted(self):
        store = make(most=1)
        put(store, "/m/a", count=4, backoff=9.0)
        store.declare(target("/m/b"), "/m", now=0.0)
        assert store.find(target("/m/b"), now=0.0).failures == 4
        assert (store.size, store.counters.evicted) == (1, 0)

    def test_dropping_an_expired_entry_is_not_counted(self):
        store = make(most=2)
        put(store, "/forgotten", now=-2_000.0)
        put(store, "/held", count=1, backoff=9.0)
        put(store, "/new")
        assert (store.size, store.counters.evicted) == (2, 0)
        assert store.find(target("/held"), now=0.0) is not None

    def test_origins_without_entries_are_dropped(self):
        store = make(most=6_000)
        for number in range(5_000):
            put(store, "/", f"http://{number}.example")
        store.declare(target("/m/a"), "/m", now=0.0)
        assert store.forget(now=120.0) == 5_001
        assert (store.size, len(store._queue)) == (0, 0)
        assert not any(store._entries)

    def test_oldest_opt_out_and_budget_are_evicted(self):
        store = make(most=3)
        for number in range(5):
            store.change(EntryKey(OPT_OUT, f"{number}.example"), OptedOut())
            store.change(EntryKey(BUDGET, f"http://{number}.example"), RetryTokens(shares=-10, full=20))
        stored = [
            [store.get(EntryKey(kind, start + f"{number}.example")) is not None for number in range(5)]
            for kind, start in ((OPT_OUT, ""), (BUDGET, "http://"))
        ]
        assert stored == [[False, False, True, True, True]] * 2
        assert store.counters.opt_outs_evicted == 2


class TestPut:
    """Entries of other processes are stored unchanged."""

    def test_put_entry_is_found(self):
        store, entry = make(), ThrottleEntry(7.0, count=4, retry_after=5.0, kind=TARGET, origin=ORIGIN, path="/a")
        store.put(entry.key, entry)
        assert store.get(entry.key) is store.find(target("/a"), now=5.0) is entry
        store.put(entry.key, ThrottleEntry(9.0, count=2, kind=TARGET, origin=ORIGIN, path="/a"))
        assert store.find(target("/a"), now=5.0) == ThrottleEntry(9.0, count=2, kind=TARGET, origin=ORIGIN, path="/a")
        assert store.size == 1
        store.put(entry.key, None)
        store.put(entry.key, None)
        assert (store.get(entry.key), store.size) == (None, 0)

    def test_put_replaces_an_expired_entry(self):
        store = make()
        old = put(store, "/a", count=1)
        assert store.find(target("/a"), now=900.0) is None
        assert store.get(old.key) is old
        new = ThrottleEntry(900.0, count=2, kind=TARGET, origin=ORIGIN, path="/a")
        store.put(new.key, new)
        assert store.find(target("/a"), now=900.0) == new
        assert store.size == 1

    def test_put_bucket_holds_targets_with_own_entries_until_it_expires(self):
        store = make()
        put(store, "/m/a", count=9, backoff=99.0)
        store.put(EntryKey(BUCKET, ORIGIN, "/m"), bucket("/m", 7.0, count=4))
        assert store.find(target("/m/a"), now=5.0) == bucket("/m", 7.0, count=4)
        store.put(EntryKey(BUCKET, ORIGIN, "/m"), bucket("/m", -900.0, count=4))
        assert store.find(target("/m/a"), now=5.0).count == 9

    def test_put_does_not_move_instants(self):
        store = make(most=3)
        put(store, "/a", count=9, backoff=99.0, noted=50.0)
        for number in range(9):
            entry = ThrottleEntry(1e9, noted=float(number), count=1, origin=ORIGIN, path=f"/{number}")
            store.put(entry.key, entry)
        assert store.counters.clock_steps == 0

    def test_put_respects_the_maximum_of_buckets(self):
        store = make()
        for number in range(MAX_BUCKETS + 1):
            store.put(EntryKey(BUCKET, ORIGIN, f"/{number}"), bucket(f"/{number}", 7.0))
        assert store.size == MAX_BUCKETS
