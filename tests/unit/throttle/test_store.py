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


def test_each_target_has_one_entry():
    store = make()
    entry = put(store, "/a")
    assert store.find(target("/a"), now=0.0) is put(store, "/a") is entry
    assert put(store, "/b") is not entry
    assert put(store, "/a", "https://www.example.com") is not entry
    assert store.size == 3
    assert store.find(target("/c"), now=0.0) is None


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

    def test_responses_examine_one_entry_after_the_other(self):
        store = make()
        entries = [put(store, f"/{name}", backoff=10_000.0 * (name != 2)) for name in range(4)]
        for _ in range(4):
            store.examine_next(1_000.0)
        assert list(store._queue) == [entries[0], entries[1], entries[3]]
        assert store.size == 3

    def test_responses_go_on_dropping_entries_after_the_clock_was_set_back(self):
        store = make()
        for now in (10_000.0, 0.0):
            put(store, f"/{now}", now=now, backoff=now)
            store.examine_next(now)
        for second in range(500):
            store.examine_next(float(second))
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
        assert state_of(entry) == bucket("/m", 7.0, count=4, retry_after=5.0)
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
        assert state_of(store.find(target("/m/c"), now=900.0)) == bucket("/m", 900.0)
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
        assert state_of(narrow) == bucket("/a/b", 99.0, count=9, retry_after=50.0)
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

    def test_bucket_absorbs_its_members_before_they_are_evicted(self):
        store = make(most=1)
        put(store, "/m/a", count=4, backoff=9.0)
        store.declare(target("/m/b"), "/m", now=0.0)
        assert store.find(target("/m/b"), now=0.0).failures == 4
        assert (store.size, store.evicted) == (1, 0)

    def test_dropping_an_expired_entry_is_not_counted(self):
        store = make(most=2)
        put(store, "/forgotten", now=-2_000.0)
        put(store, "/held", count=1, backoff=9.0)
        put(store, "/new")
        assert (store.size, store.evicted) == (2, 0)
        assert store.find(target("/held"), now=0.0) is not None

    def test_origins_without_entries_are_dropped(self):
        store = make(most=6_000)
        for number in range(5_000):
            put(store, "/", f"http://{number}.example")
        store.declare(target("/m/a"), "/m", now=0.0)
        assert store.forget(now=120.0) == 5_001
        assert (store.size, len(store._queue)) == (0, 0)
        assert not (store._targets)
        assert not (store._buckets)
