import pytest

from headgate.throttle.entry import Entry
from headgate.throttle.store import MOST_BUCKETS, Store
from headgate.throttle.target import Target, parse_target

ORIGIN = "http://www.example.com"


def target(path, origin=ORIGIN) -> Target:
    found = parse_target(origin + path)
    assert found is not None
    return found


def store(most=1_000):
    return Store(most=most, failing_lifetime=900.0, healthy_lifetime=120.0)


def put(shelves, path, origin=ORIGIN, *, now=0.0, **state) -> Entry:
    entry = shelves.open(target(path, origin), now=now)
    for name, value in state.items():
        setattr(entry, name, value)
    return entry


def holder(shelves, path, *, now=0.0):
    """Give the path of the bucket that holds this path; None where none does."""
    found = shelves.bucket(target(path), now=now)
    return None if found is None else found[0]


class TestTargets:
    def test_each_has_its_own_entry_once(self):
        shelves = store()
        entry = put(shelves, "/a")
        assert shelves.find(target("/a"), now=0.0) is shelves.open(target("/a"), now=0.0) is entry
        assert put(shelves, "/b") is not entry
        assert put(shelves, "/a", "https://www.example.com") is not entry
        assert shelves.size == 3
        assert shelves.find(target("/c"), now=0.0) is None

    def test_to_close_drops_only_this_entry(self):
        shelves = store()
        entry, other = put(shelves, "/a"), put(shelves, "/b")
        shelves.close(target("/a"), other)
        assert shelves.size == 2
        shelves.close(target("/a"), entry)
        shelves.close(target("/a"), entry)
        assert shelves.size == 1
        assert shelves.find(target("/a"), now=0.0) is None

    def test_to_clear_drops_all(self):
        shelves = store()
        put(shelves, "/a")
        shelves.declare(target("/b/c"), "/b", now=0.0)
        shelves.clear()
        assert shelves.size == 0
        assert shelves.find(target("/a"), now=0.0) is None
        assert holder(shelves, "/b") is None


class TestForgetting:
    @pytest.mark.parametrize(("count", "lifetime"), [(1, 900.0), (0, 120.0), (-1, 120.0)])
    @pytest.mark.parametrize("horizon", ["backoff", "retry_after"])
    def test_a_lifetime_after_the_later_horizon(self, count, lifetime, horizon):
        shelves = store()
        entry = put(shelves, "/a", count=count, **{horizon: 50.0})
        assert shelves.find(target("/a"), now=50.0 + lifetime - 0.001) is entry
        assert shelves.forget(now=50.0 + lifetime - 0.001) == 0
        assert shelves.find(target("/a"), now=50.0 + lifetime) is None
        assert shelves.size == 1
        assert shelves.forget(now=50.0 + lifetime) == 1
        assert shelves.size == 0

    def test_one_that_is_forgotten_is_replaced_whether_or_not_it_was_dropped(self):
        shelves = store()
        old = put(shelves, "/a", count=5)
        new = shelves.open(target("/a"), now=900.0)
        assert new is not old
        assert (new.failures, shelves.size) == (0, 1)

    def test_what_never_ends_is_never_forgotten(self):
        shelves = store()
        put(shelves, "/a", retry_after=float("inf"))
        assert shelves.forget(now=1e300) == 0
        assert shelves.find(target("/a"), now=1e300) is not None

    def test_a_forgotten_bucket_holds_nobody_any_more(self):
        shelves = store()
        shelves.declare(target("/a/b"), "/a", now=0.0)
        put(shelves, "/a/b", count=1)
        shelves.declare(target("/a/b/c"), "/a/b", now=0.0)
        put(shelves, "/a/b", count=-1)
        assert holder(shelves, "/a/b/c", now=119.0) == "/a/b"
        assert holder(shelves, "/a/b/c", now=120.0) == "/a"
        assert holder(shelves, "/a/b/c", now=900.0) is None
        shelves.open(target("/a/b/c"), now=900.0)
        assert shelves.forget(now=900.0) == 2
        assert shelves.size == 1


class TestBuckets:
    def test_a_bucket_takes_its_members_in(self):
        shelves = store()
        put(shelves, "/m/a", count=4, backoff=3.0, retry_after=5.0)
        put(shelves, "/m", count=2, backoff=7.0)
        put(shelves, "/m/old", count=9, now=-2_000.0)
        put(shelves, "/mm", count=6)
        put(shelves, "/m/a", "http://www.example.com:8080", count=7)
        put(shelves, "/m/a", "http://www.example.co", count=8)
        shelves.declare(target("/m/c"), "/m", now=0.0)
        entry = shelves.find(target("/m/new"), now=0.0)
        assert entry == Entry(7.0, count=4, retry_after=5.0, noted=0.0)
        assert shelves.find(target("/m"), now=0.0) is entry is shelves.open(target("/m/a"), now=0.0)
        assert shelves.find(target("/mm"), now=0.0).failures == 6
        assert shelves.size == 4

    def test_a_bucket_is_declared_once(self):
        shelves = store()
        shelves.declare(target("/m/a"), "/m", now=0.0)
        entry = put(shelves, "/m/b", count=3)
        shelves.declare(target("/m/c"), "/m", now=1.0)
        assert shelves.find(target("/m/c"), now=1.0) is entry
        assert shelves.size == 1

    def test_a_forgotten_bucket_is_declared_anew(self):
        shelves = store()
        shelves.declare(target("/m/a"), "/m", now=0.0)
        put(shelves, "/m/b", count=3)
        shelves.declare(target("/m/c"), "/m", now=900.0)
        assert shelves.find(target("/m/c"), now=900.0) == Entry(900.0, noted=900.0)
        assert shelves.size == 1

    def test_the_longest_match_wins_in_whatever_order_they_were_declared(self):
        for order in (["/a", "/a/b", "/a/b/"], ["/a/b/", "/a/b", "/a"], ["/a/b", "/a/b/", "/a"]):
            shelves = store()
            for path in order:
                shelves.declare(target("/a/b/c"), path, now=0.0)
            found = [holder(shelves, path) for path in ("/a/b/c", "/a/b", "/a/bc", "/a", "/")]
            assert found == ["/a/b/", "/a/b", "/a", "/a", None]
            assert shelves.size == 3

    def test_a_wider_bucket_leaves_a_narrower_one_as_it_is(self):
        shelves = store()
        shelves.declare(target("/a/b/c"), "/a/b", now=0.0)
        narrow = put(shelves, "/a/b/c", count=9, backoff=99.0)
        put(shelves, "/a/x", count=2)
        shelves.declare(target("/a/y"), "/a", now=0.0)
        assert shelves.find(target("/a/b/c"), now=0.0) is narrow
        assert shelves.find(target("/a/x"), now=0.0).failures == 2

    def test_a_narrower_bucket_starts_as_the_wider_one_that_held_its_members(self):
        shelves = store()
        shelves.declare(target("/a/b/c"), "/a", now=0.0)
        wide = put(shelves, "/a/b/c", count=9, backoff=99.0, retry_after=50.0)
        shelves.declare(target("/a/b/c"), "/a/b", now=0.0)
        narrow = shelves.find(target("/a/b/c"), now=0.0)
        assert narrow == Entry(99.0, count=9, retry_after=50.0, noted=0.0)
        assert narrow is not wide
        assert shelves.find(target("/a/c"), now=0.0) is wide

    def test_an_origin_has_so_many_and_no_more(self):
        shelves = store()
        for number in range(MOST_BUCKETS):
            shelves.declare(target(f"/{number}"), f"/{number}", now=0.0)
            put(shelves, f"/{number}", count=1)
        shelves.declare(target("/more/a"), "/more", now=0.0)
        assert holder(shelves, "/more/a") is None
        assert shelves.size == MOST_BUCKETS == 64
        other = target("/more/a", "http://other.example")
        shelves.declare(other, "/more", now=0.0)
        assert shelves.bucket(other, now=0.0) is not None

    @pytest.mark.parametrize("state", [{"count": 0}, {"count": 1, "backoff": -1_000.0}])
    def test_one_that_holds_nobody_gives_way(self, state):
        shelves = store()
        for number in range(MOST_BUCKETS):
            shelves.declare(target(f"/{number}"), f"/{number}", now=0.0)
            put(shelves, f"/{number}", count=1)
        put(shelves, "/7", **state)
        shelves.declare(target("/more/a"), "/more", now=0.0)
        assert holder(shelves, "/more/a") == "/more"
        assert holder(shelves, "/7") is None
        assert shelves.size == MOST_BUCKETS
        assert sum(holder(shelves, f"/{number}") is not None for number in range(MOST_BUCKETS)) == MOST_BUCKETS - 1

    def test_the_entries_of_an_origin(self):
        shelves = store()
        shelves.declare(target("/a/b"), "/a", now=0.0)
        mine = [put(shelves, "/a/b"), put(shelves, "/c"), put(shelves, "/")]
        put(shelves, "/c", "http://www.example.com:8080")
        put(shelves, "/c", "https://www.example.com")
        found = list(shelves.of_origin(ORIGIN))
        assert len(found) == 3
        assert {id(entry) for entry in found} == {id(entry) for entry in mine}


class TestRoom:
    def test_what_is_forgotten_goes_first_then_the_healthy_then_the_released_then_the_held(self):
        states = {
            "held": {"count": 0, "retry_after": 1e9},
            "backing-off": {"count": 9, "backoff": 1_001.0},
            "released": {"count": 9, "backoff": 999.0},
            "healthy": {"count": 0, "backoff": 999.0},
            "forgotten": {"count": 9, "backoff": 0.0},
        }
        shelves = store(most=len(states))
        for name, state in states.items():
            put(shelves, "/", f"http://{name}.example", **state)
        for index, gone in enumerate(["forgotten", "healthy", "released"]):
            put(shelves, "/", f"http://new{index}.example", now=1_000.0, count=1, backoff=2_000.0)
            assert shelves.size == len(states)
            assert shelves.find(target("/", f"http://{gone}.example"), now=1_000.0) is None
            assert shelves.evicted == 0
        for name in ("held", "backing-off"):
            assert shelves.find(target("/", f"http://{name}.example"), now=1_000.0) is not None
        put(shelves, "/", "http://last.example", now=1_000.0)
        assert (shelves.size, shelves.evicted) == (len(states), 1)

    def test_buckets_need_room_too_and_give_it(self):
        shelves = store(most=2)
        shelves.declare(target("/a"), "/a", now=0.0)
        put(shelves, "/a", count=1, backoff=9.0)
        put(shelves, "/b", count=1, backoff=9.0)
        shelves.declare(target("/c"), "/c", now=0.0)
        assert (shelves.size, shelves.evicted) == (2, 1)
        assert holder(shelves, "/c") == "/c"
        shelves.declare(target("/d"), "/d", now=0.0)
        assert (shelves.size, shelves.evicted) == (2, 1)
        assert holder(shelves, "/c") is None

    def test_one_pass_makes_room_for_a_sixteenth(self):
        shelves = store(most=160)
        for number in range(161):
            put(shelves, f"/{number}", count=1, backoff=9.0)
        assert shelves.size == 150
        assert shelves.evicted == 11

    def test_no_live_hold_goes_where_anything_else_can(self):
        shelves = store(most=160)
        for number in range(156):
            put(shelves, f"/{number}", count=1, backoff=9.0)
        for number in range(156, 161):
            put(shelves, f"/{number}", count=0)
        assert (shelves.size, shelves.evicted) == (157, 0)
        assert all(shelves.find(target(f"/{number}"), now=0.0) is None for number in range(156, 160))

    def test_arrivals_among_live_holds_do_not_take_a_pass_each(self):
        shelves = store(most=160)
        for number in range(159):
            put(shelves, f"/{number}", count=1, backoff=9.0)
        put(shelves, "/first", count=0)
        put(shelves, "/second", count=0)
        assert (shelves.size, shelves.evicted) == (160, 0)
        put(shelves, "/third", count=0)
        assert (shelves.size, shelves.evicted) == (150, 10)
        put(shelves, "/fourth", count=0)
        assert (shelves.size, shelves.evicted) == (151, 10)

    def test_a_bucket_takes_its_members_in_before_they_could_make_room_for_it(self):
        shelves = store(most=1)
        put(shelves, "/m/a", count=4, backoff=9.0)
        shelves.declare(target("/m/b"), "/m", now=0.0)
        assert shelves.find(target("/m/b"), now=0.0).failures == 4
        assert (shelves.size, shelves.evicted) == (1, 0)

    def test_what_is_forgotten_is_no_hold_given_up(self):
        shelves = store(most=2)
        put(shelves, "/forgotten", now=-2_000.0)
        put(shelves, "/held", count=1, backoff=9.0)
        put(shelves, "/new")
        assert (shelves.size, shelves.evicted) == (2, 0)
        assert shelves.find(target("/held"), now=0.0) is not None

    def test_nothing_is_left_of_places_with_nothing_in_them(self):
        shelves = store(most=6_000)
        for number in range(5_000):
            put(shelves, "/", f"http://{number}.example")
        assert len(shelves._shelves) <= 1_024
        shelves.declare(target("/m/a"), "/m", now=0.0)
        assert shelves.forget(now=120.0) == 5_001
        assert (shelves.size, shelves._shelves, shelves._buckets) == (0, {}, {})


class TestKeepingWhatOthersKnow:
    def test_an_entry_is_put_and_found_as_it_is(self):
        shelves, entry = store(), Entry(7.0, count=4, retry_after=5.0)
        shelves.put(target("/a"), entry)
        assert shelves.own(target("/a")) is shelves.find(target("/a"), now=0.0) is entry
        other = Entry(9.0)
        shelves.put(target("/a"), other)
        assert shelves.own(target("/a")) is other
        assert shelves.own(target("/b")) is None
        assert shelves.size == 1

    def test_a_bucket_is_put_without_looking_for_its_members(self):
        shelves, entry = store(), Entry(7.0, count=4)
        member = put(shelves, "/m/a", count=1)
        shelves.put_bucket(ORIGIN, "/m", entry)
        shelves.put_bucket(ORIGIN, "/m/a", Entry(8.0))
        assert shelves.own_bucket(ORIGIN, "/m") is shelves.find(target("/m/b"), now=0.0) is entry
        assert holder(shelves, "/m/a/b") == "/m/a"
        assert shelves.own(target("/m/a")) is member
        assert shelves.own_bucket(ORIGIN, "/n") is None
        assert shelves.own_bucket("http://other.example", "/m") is None
        assert shelves.size == 3

    def test_room_is_nobodys_concern_there(self):
        shelves = store(1)
        shelves.put(target("/a"), Entry(0.0))
        shelves.put(target("/b"), Entry(0.0))
        shelves.put_bucket(ORIGIN, "/c", Entry(0.0))
        assert shelves.size == 3

    def test_what_is_own_may_be_forgotten(self):
        shelves = store()
        old = put(shelves, "/a", count=1)
        assert shelves.find(target("/a"), now=900.0) is None
        assert shelves.own(target("/a")) is old
