"""Tables of expiring values; entries examined are counted by the function that gives their expiry."""

import pytest

from headgate.limit.table import BATCH_SIZE, EXAMINED_AT_ONCE, SHARDS, Table, Tables
from headgate.release import ASAP, NEVER


class Examined:
    """An expiry function, for values that are their own expiry, which counts its calls."""

    def __init__(self):
        self.count = 0

    def __call__(self, value):
        self.count += 1
        return value

    def during(self, call, *arguments):
        """Return how many entries are examined during a call."""
        before = self.count
        call(*arguments)
        return self.count - before


def filled(most, expiries, tick=1.0):
    """Return tables, one table of them and what counts: an entry `b"0"`, `b"1"`, … for each of the expiries."""
    examined = Examined()
    tables = Tables(most)
    table = tables.include(Table(examined, tick))
    for number, expiry in enumerate(expiries):
        tables.add(table, b"%d" % number, expiry, 0.0)
    return tables, table, examined


def names(table):
    return sorted(name for batch, _ in table.batches() for name, _ in batch)


def test_entry_is_kept_until_its_expiry():
    tables, table, _ = filled(10, [5.0, 6.0])
    assert (table.get(b"0"), table.get(b"1"), table.get(b"2")) == (5.0, 6.0, None)
    assert (tables.forget(4.9), tables.forget(5.0), tables.forget(5.0)) == (0, 1, 0)
    assert (names(table), table.size, tables.size) == ([b"1"], 1, 1)


def test_entry_is_dropped_with_its_tick():
    tables, table, _ = filled(10, [4.1, 4.9, 5.0], tick=1.0)
    assert tables.forget(4.95) == 0
    assert tables.forget(5.0) == 3
    assert table.size == 0


def test_new_entry_examines_two_due_entries():
    tables, table, examined = filled(100, [1.0] * 10)
    assert examined.during(tables.add, table, b"new", 9.0, 2.0) == 2 + 1
    assert table.size == 9


def test_new_entry_in_a_full_table_examines_a_bounded_number():
    """Here all have been prolonged, so that none of those due can go."""
    tables, table, examined = filled(100, [1.0] * 100)
    for number in range(100):
        table.put(b"%d" % number, 50.0)
    assert examined.during(tables.add, table, b"new", 50.0, 2.0) == EXAMINED_AT_ONCE + 2
    assert (tables.size, tables.evicted) == (100, 1)
    assert table.get(b"new") == 50.0


def test_postponed_entry_is_kept_and_the_next_one_is_dropped():
    tables, table, _ = filled(3, [1.0, 2.0, 9.0])
    table.put(b"0", 8.0)
    tables.add(table, b"new", 9.0, 3.0)
    assert names(table) == [b"0", b"2", b"new"]
    assert tables.evicted == 0


@pytest.mark.parametrize("most", [None, 0, 1, 3, 10])
def test_forget_examines_at_most_the_limit(most):
    tables, table, examined = filled(100, [1.0] * 5 + [9.0] * 5)
    other = tables.include(Table(examined, 1.0))
    tables.add(other, b"0", 1.0, 0.0)
    expected = 6 if most is None else min(6, most)
    assert examined.during(tables.forget, 2.0, most) == expected
    assert tables.size == table.size + other.size == 11 - expected


def test_expiry_just_after_its_tick_is_examined_once():
    """The float after 0.9, divided by 0.1, is 9 exactly: its tick begins before it."""
    tables, table, examined = filled(10, [0.9000000000000001], tick=0.1)
    assert examined.during(tables.forget, 0.9, 10) == 1
    assert (tables.size, table.is_due(0.9)) == (1, False)
    assert tables.forget(1.1) == 1


def test_infinite_expiries_are_kept():
    tables, table, _ = filled(3, [NEVER, 5.0, ASAP])
    assert tables.forget(0.0) == 1
    assert (tables.forget(9e14), tables.forget(9e15)) == (1, 0)
    assert names(table) == [b"0"]


def test_largest_table_loses_an_entry():
    tables, table, examined = filled(4, [9.0] * 3)
    other = tables.include(Table(examined, 1.0))
    tables.add(other, b"0", 5.0, 0.0)
    tables.add(other, b"1", 9.0, 0.0)
    assert (table.size, other.size) == (2, 2)


def test_expired_entry_of_any_table_is_dropped_first():
    tables, table, examined = filled(4, [9.0] * 3)
    other = tables.include(Table(examined, 1.0))
    tables.add(other, b"0", 1.0, 0.0)
    tables.add(table, b"new", 9.0, 2.0)
    assert (table.size, other.size, tables.evicted) == (4, 0, 0)


@pytest.mark.parametrize(("now", "evicted"), [(1.4, 1), (1.5, 0), (1.75, 0)])
def test_dropping_an_expired_entry_is_not_counted_as_eviction(now, evicted):
    tables, table, _ = filled(1, [1.5])
    tables.add(table, b"new", 9.0, now)
    assert (names(table), tables.evicted) == ([b"new"], evicted)


def test_entries_are_spread_over_all_shards():
    _, table, _ = filled(100_000, [9.0] * 50_000)
    sizes = [len(shard) for shard in table.shards]
    assert len(sizes) == SHARDS
    assert sum(sizes) == table.size == 50_000
    assert max(sizes) < 3 * 50_000 / SHARDS


def test_table_may_change_between_two_batches():
    tables, table, _ = filled(20_000, [5.0] * 20_000)
    sizes = []
    for batch, _ in table.batches():
        sizes.append(len(batch))
        if len(sizes) == 2:
            tables.forget(6.0)
    assert all(BATCH_SIZE <= size < 1.1 * BATCH_SIZE for size in sizes[:2])
    assert sizes[2:] == [0]


@pytest.mark.parametrize("size", [0, 1, 4_000, 20_000])
def test_batches_contain_all_entries(size):
    _, table, _ = filled(20_000, [5.0] * size)
    batches = list(table.batches())
    assert sorted(name for batch, _ in batches for name, _ in batch) == sorted(b"%d" % number for number in range(size))
    assert [more for _, more in batches] == [True] * (len(batches) - 1) + [False]
    assert len(batches) <= 1 + size // BATCH_SIZE


class Kept:
    """A value with an expiry and the end of its protection."""

    def __init__(self, expiry, until):
        self.expiry = expiry
        self.until = until


def protecting(most, values, tick=1.0):
    """Return tables, and one table of values whose entries are protected; an entry for each of the values."""
    tables = Tables(most)
    table = tables.include(Table(lambda value: value.expiry, tick, lambda value: value.until))
    for number, value in enumerate(values):
        tables.add(table, b"%d" % number, value, 0.0)
    return tables, table


def test_protected_entry_is_dropped_after_all_others():
    tables, table = protecting(4, [Kept(5.0, 5.0), Kept(6.0, 6.0), Kept(9.0, ASAP), Kept(8.0, ASAP)])
    for name, left in ((b"a", [b"0", b"1", b"2", b"a"]), (b"b", [b"0", b"1", b"a", b"b"])):
        tables.add(table, name, Kept(10.0, ASAP), 1.0)
        assert names(table) == left
    assert tables.evicted == 2


def test_if_all_are_protected_the_first_to_end_is_dropped():
    tables, table = protecting(3, [Kept(9.0, 7.0), Kept(9.0, 5.0), Kept(9.0, 6.0)])
    tables.add(table, b"new", Kept(20.0, ASAP), 1.0)
    assert names(table) == [b"0", b"2", b"new"]
    # The next one replaces the unprotected one.
    tables.add(table, b"newer", Kept(20.0, ASAP), 1.0)
    assert names(table) == [b"0", b"2", b"newer"]
    assert (tables.size, tables.evicted) == (3, 2)


def test_new_entry_is_not_stored_after_a_bounded_number_of_protected_ones():
    tables, table = protecting(100, [Kept(9.0, 9.0)] * 99 + [Kept(10.0, ASAP)])
    for number in range(1, 7):
        tables.add(table, b"new", Kept(20.0, ASAP), 1.0)
        assert (table.get(b"new"), tables.evicted, table.kept.size) == (None, number, number * EXAMINED_AT_ONCE)
    tables.add(table, b"new", Kept(20.0, ASAP), 1.0)
    assert table.get(b"new") is not None
    assert (table.get(b"99"), tables.size, tables.evicted) == (None, 100, 7)


def test_entry_whose_protection_has_ended_is_dropped_like_all_others():
    tables, table = protecting(2, [Kept(9.0, 3.0), Kept(9.0, 5.0)])
    tables.add(table, b"new", Kept(8.0, ASAP), 1.0)  # replaces 0; 1 is kept
    assert (names(table), table.kept.size) == ([b"1", b"new"], 1)
    tables.add(table, b"newer", Kept(20.0, ASAP), 5.0)
    assert (names(table), table.kept.size) == ([b"1", b"newer"], 0)
    tables.add(table, b"newest", Kept(20.0, ASAP), 5.0)
    assert names(table) == [b"newer", b"newest"]


def test_kept_entry_is_forgotten_after_its_expiry():
    tables, table = protecting(2, [Kept(4.0, 3.0), Kept(4.0, 3.5)])
    tables.add(table, b"new", Kept(20.0, ASAP), 1.0)
    assert table.kept.size == 1
    assert (tables.forget(3.0), table.kept.size) == (0, 1)
    assert (tables.forget(4.0), table.kept.size, names(table)) == (1, 0, [b"new"])


def test_table_with_the_most_unprotected_entries_loses_one():
    tables, table = protecting(6, [Kept(9.0, 9.0)] * 4)
    other = tables.include(Table(lambda value: value.expiry, 1.0, lambda value: value.until))
    for number in range(2):
        tables.add(other, b"%d" % number, Kept(5.0, ASAP), 0.0)
    tables.add(table, b"new", Kept(9.0, ASAP), 1.0)
    assert (table.size, other.size, tables.evicted) == (5, 1, 1)
