import msgspec
import pytest

from headgate.throttle import Policy
from headgate.throttle.store import MAX_BUCKETS, ThrottleEntry, ThrottleStore
from headgate.throttle.target import Target, parse_target

ORIGIN = "http://www.example.com"


def target(path, origin=ORIGIN) -> Target:
    found = parse_target(origin + path)
    assert found is not None
    return found


def make(most=1_000):
    return ThrottleStore(Policy.draft(), max_targets=most)


def put(store, path, origin=ORIGIN, *, now=0.0, **state) -> ThrottleEntry:
    """Set the values of the entry that holds a target, or of a new one."""
    entry = store.found_or_new(target(path, origin), now=now)
    for name, value in state.items():
        setattr(entry, name, value)
    return entry


def state_of(entry):
    values = msgspec.structs.asdict(entry)
    return {name: values[name] for name in ("path", "is_bucket", "count", "backoff", "retry_after")}


def bucket(path, backoff, *, count=-1, retry_after=float("-inf")):
    return {"path": path, "is_bucket": True, "count": count, "backoff": backoff, "retry_after": retry_after}


def holder(store, path, *, now=0.0):
    """Return the path of the bucket that holds this path, or None."""
    found = store.find(target(path), now=now)
    return found.path if found is not None and found.is_bucket else None


class TestExpiry:
    def test_responses_examine_one_entry_after_the_other(self):
        store = make()
        entries = [put(store, f"/{name}", backoff=10_000.0 * (name != 2)) for name in range(4)]
        for _ in range(4):
            store.examine_next(1_000.0)
        assert list(store._queue) == [entries[0], entries[1], entries[3]]
        assert store.size == 3


class TestBuckets:
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
            assert store.evicted == 0
        for name in ("held", "backing-off"):
            assert store.find(target("/", f"http://{name}.example"), now=1_000.0) is not None
        put(store, "/", "http://last.example", now=1_000.0)
        assert (store.size, store.evicted) == (len(states), 1)

    def test_buckets_count_and_are_evicted(self):
        store = make(most=2)
        store.declare(target("/a"), "/a", now=0.0)
        put(store, "/a", count=1, backoff=9.0)
        put(store, "/b", count=1, backoff=9.0)
        store.declare(target("/c"), "/c", now=0.0)
        assert (store.size, store.evicted) == (2, 1)
        assert holder(store, "/c") == "/c"
        store.declare(target("/d"), "/d", now=0.0)
        assert (store.size, store.evicted) == (2, 1)
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
        assert (store.size, store.evicted) == (160, 9)

    @pytest.mark.parametrize("held", [True, False])
    def test_new_entry_examines_at_most_sixteen(self, monkeypatch, held):
        store, looks = make(most=2_000), []
        is_stored = ThrottleStore._is_stored
        monkeypatch.setattr(ThrottleStore, "_is_stored", lambda *given: looks.append(given) or is_stored(*given))
        for number in range(6_000):
            looks.clear()
            put(store, f"/{number}", now=float(number), count=1, backoff=1e9 if held else float(number))
            assert len(looks) <= 16
            assert store.size <= len(store._queue) <= 2_000

    def test_dropped_entries_leave_the_queue(self):
        store = make(most=100)
        for number in range(1_000):
            store.drop(put(store, f"/{number}", count=0, backoff=0.0))
            assert len(store._queue) <= 2
        assert (store.size, store.evicted) == (0, 0)

    def test_new_entries_drop_expired_ones(self):
        store = make()
        for number in range(100):
            put(store, f"/{number}", count=1)
        for number in range(100, 200):
            put(store, f"/{number}", count=1, now=900.0)
        assert store.size == 100
