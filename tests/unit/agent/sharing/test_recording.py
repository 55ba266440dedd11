import pytest

from headgate.agent.sharing.recording import Record, RecordedBudget, RecordedNames, RecordedStore
from headgate.agent.sharing.rows import BUCKET, BUDGET, OPT_OUT, TARGET
from headgate.release import ASAP
from headgate.throttle import Policy
from headgate.throttle.store import MOST_BUCKETS
from headgate.throttle.target import parse_target

ORIGIN = "http://www.example.com"


def target(path, origin=ORIGIN):
    return parse_target(origin + path)


@pytest.fixture
def record():
    return Record()


@pytest.fixture
def store(record):
    return RecordedStore(record, 100, Policy())


@pytest.fixture
def budget(record):
    return RecordedBudget(record, 2, most=2)


class TestStore:
    def test_nothing_is_noted_unless_it_is_asked_for(self, record, store):
        store.open(target("/a"), now=0.0).fail()
        store.declare(target("/b/c"), "/b", now=0.0)
        store.find(target("/a"), now=0.0)
        list(store.of_origin(ORIGIN))
        store.clear()
        assert (record.before, record.cleared) == ({}, set())

    def test_a_new_entry_was_nothing(self, record, store):
        record.is_on = True
        store.open(target("/a"), now=3.0).fail()
        assert record.before == {(TARGET, ORIGIN + "/a"): None}
        assert store.values_of(TARGET, ORIGIN + "/a") == (1, 3.0, ASAP, ASAP)

    def test_one_that_is_found_is_noted_as_it_was_first(self, record, store):
        store.open(target("/a"), now=3.0).fail()
        record.is_on = True
        store.find(target("/a"), now=3.0).fail()
        store.open(target("/a"), now=3.0).fail()
        assert store.find(target("/b"), now=3.0) is None
        assert record.before == {(TARGET, ORIGIN + "/a"): (1, 3.0, ASAP, ASAP)}

    def test_one_that_is_forgotten_and_replaced(self, record, store):
        store.open(target("/a"), now=3.0).fail()
        record.is_on = True
        store.open(target("/a"), now=5_000.0)
        assert record.before == {(TARGET, ORIGIN + "/a"): (1, 3.0, ASAP, ASAP)}

    def test_the_bucket_is_what_is_found(self, record, store):
        store.declare(target("/b/c"), "/b", now=3.0)
        record.is_on = True
        store.find(target("/b/x"), now=3.0).fail()
        assert record.before == {(BUCKET, ORIGIN + "/b"): (-1, 3.0, ASAP, ASAP)}
        assert store.values_of(BUCKET, ORIGIN + "/b") == (1, 3.0, ASAP, ASAP)

    def test_a_bucket_that_is_declared_swallows(self, record, store):
        store.open(target("/b/c"), now=3.0).fail()
        store.open(target("/c"), now=3.0)
        record.is_on = True
        store.declare(target("/b/c"), "/b", now=3.0)
        assert record.before == {(BUCKET, ORIGIN + "/b"): None, (TARGET, ORIGIN + "/b/c"): (1, 3.0, ASAP, ASAP)}

    def test_what_is_dropped(self, record, store):
        entry = store.open(target("/a"), now=3.0)
        store.declare(target("/b/c"), "/b", now=3.0)
        record.is_on = True
        store.close(target("/a"), entry)
        store.forget(now=9_000.0)
        assert record.before == {
            (TARGET, ORIGIN + "/a"): (-1, 3.0, ASAP, ASAP),
            (BUCKET, ORIGIN + "/b"): (-1, 3.0, ASAP, ASAP),
        }
        assert store.values_of(TARGET, ORIGIN + "/a") is store.values_of(BUCKET, ORIGIN + "/b") is None

    def test_all_of_an_origin_may_change(self, record, store):
        store.open(target("/a"), now=3.0)
        store.open(target("/a", "http://other.example"), now=3.0)
        store.declare(target("/b/c"), "/b", now=3.0)
        record.is_on = True
        assert len(list(store.of_origin(ORIGIN))) == 2
        assert record.before.keys() >= {(TARGET, ORIGIN + "/a"), (BUCKET, ORIGIN + "/b")}

    def test_clearing_makes_what_was_noted_before_it_void(self, record, store):
        store.open(target("/a"), now=3.0)
        record.is_on = True
        record.note(OPT_OUT, "a", None)
        store.find(target("/a"), now=3.0)
        store.clear()
        store.open(target("/a"), now=4.0)
        assert record.cleared == {TARGET, BUCKET}
        assert record.before == {(OPT_OUT, "a"): None, (TARGET, ORIGIN + "/a"): None}

    def test_rows_are_learnt_and_unlearnt(self, store):
        rows = {(TARGET, ORIGIN + "/a"): (1, 2.0, 3.0, 4.0), (BUCKET, ORIGIN + "/b"): (5, 6.0, 7.0, 8.0)}
        for key, values in rows.items():
            store.learn(*key, values)
            assert store.values_of(*key) == values
        entry = store.find(target("/b/c"), now=0.0)
        assert (entry.count, entry.backoff, entry.retry_after, entry.failed) == (5, 6.0, 7.0, 8.0)
        for key in rows:
            store.unlearn(*key)
            store.unlearn(*key)
            assert store.values_of(*key) is None
        assert store.size == 0

    def test_an_origin_has_no_more_buckets_than_it_may(self, store):
        for number in range(MOST_BUCKETS + 5):
            store.learn(BUCKET, f"{ORIGIN}/{number}", (1, 1.0, ASAP, ASAP))
        assert store.size == MOST_BUCKETS
        store.learn(BUCKET, f"{ORIGIN}/0", (2, 1.0, ASAP, ASAP))
        assert store.values_of(BUCKET, f"{ORIGIN}/0") == (2, 1.0, ASAP, ASAP)


class TestNames:
    def test_what_changes_is_noted(self, record):
        names = RecordedNames(record, OPT_OUT, lambda _: 0)
        names["a"] = names["b"] = None
        record.is_on = True
        names["c"] = None
        del names["a"]
        assert record.before == {(OPT_OUT, "c"): None, (OPT_OUT, "a"): (0, ASAP, ASAP, ASAP)}
        assert names.values_of("b") == (0, ASAP, ASAP, ASAP)
        assert names.values_of("a") is None

    def test_clearing(self, record):
        names = RecordedNames(record, OPT_OUT, lambda _: 0)
        names["a"] = None
        record.is_on = True
        names.clear()
        assert (record.cleared, list(names)) == ({OPT_OUT}, [])


class TestBudget:
    def test_what_changes_is_noted(self, record, budget):
        record.is_on = True
        assert budget.spend(ORIGIN)
        assert record.before == {(BUDGET, ORIGIN): None}
        assert budget.values_of(ORIGIN) == (10, ASAP, ASAP, ASAP)
        record.before = {}
        budget.earn(ORIGIN)
        assert record.before == {(BUDGET, ORIGIN): (10, ASAP, ASAP, ASAP)}
        assert (ORIGIN in budget, len(budget)) == (True, 1)
        budget.clear()
        assert record.cleared == {BUDGET}

    @pytest.mark.parametrize(("left", "retries"), [(0, 0), (10, 1), (19, 1), (20, 2), (1_000, 2), (-1, 2), (None, 2)])
    def test_no_more_is_learnt_than_there_may_be(self, budget, left, retries):
        budget.spend(ORIGIN)
        budget.learn(ORIGIN, left)
        assert budget.left(ORIGIN) == retries
