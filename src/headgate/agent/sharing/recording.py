"""Where a mirror keeps what it knows: as a throttle does, and noting what an operation is about to change.

This file knows what the key of an entry is, and nothing of when or why one changes. The values before are noted once
for each key, at the first touch, so that whoever asks afterwards can tell what is different.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias, TypeVar

from headgate.agent.sharing.rows import BUCKET, BUDGET, TARGET, Key, Values, parts
from headgate.release import ASAP
from headgate.throttle import Policy
from headgate.throttle.budget import RetryBudget
from headgate.throttle.entry import Entry
from headgate.throttle.store import MOST_BUCKETS, Store
from headgate.throttle.target import Target

__all__ = ["Record", "RecordedBudget", "RecordedNames", "RecordedStore"]

T = TypeVar("T")

_Places: TypeAlias = dict[int | str, dict[str, Entry]]


class Record:
    """The rows that were touched, and what they were before; None where there was none."""

    def __init__(self) -> None:
        self.is_on = False
        self.cleared: set[int] = set()
        self.before: dict[Key, Values | None] = {}

    def note(self, kind: int, name: str, before: Values | None) -> None:
        """Note a row that is about to change."""
        if self.is_on:
            self.before.setdefault((kind, name), before)

    def note_clearing(self, kind: int) -> None:
        """Note that all rows of a kind are about to go."""
        if self.is_on:
            self.cleared.add(kind)
            self.before = {key: values for key, values in self.before.items() if key[0] != kind}


class RecordedStore(Store):
    """A store that notes which entries are about to change."""

    def __init__(self, record: Record, most: int, policy: Policy) -> None:
        super().__init__(most=most, failing_lifetime=policy.failing_lifetime, healthy_lifetime=policy.entry_lifetime)
        self._record = record

    def find(self, target: Target, *, now: float) -> Entry | None:
        """Give the entry that holds this target, for whoever may change it."""
        entry = super().find(target, now=now)
        if entry is not None and self._record.is_on:  # whoever finds it now may change it
            bucket = self.bucket(target, now=now)
            if bucket is None:
                self._record.note(TARGET, target.name, values_in(entry))
            else:
                self._record.note(BUCKET, target.origin + bucket[0], values_in(entry))
        return entry

    def of_origin(self, origin: str) -> Iterator[Entry]:
        """Yield the entries of an origin, for whoever may change them."""
        if self._record.is_on:
            for path, entry in self._buckets.get(origin, {}).items():
                self._record.note(BUCKET, origin + path, values_in(entry))
            for name, entry in self._shelf(origin).items():
                self._record.note(TARGET, name, values_in(entry))
        return super().of_origin(origin)

    def put(self, target: Target, entry: Entry) -> None:
        """Keep this entry as the target's own."""
        self._record.note(TARGET, target.name, values_in(self.own(target)))
        super().put(target, entry)

    def put_bucket(self, origin: str, path: str, entry: Entry) -> None:
        """Keep this entry as a bucket's."""
        self._record.note(BUCKET, origin + path, values_in(self.own_bucket(origin, path)))
        super().put_bucket(origin, path, entry)

    def clear(self) -> None:
        """Drop everything."""
        self._record.note_clearing(TARGET)
        self._record.note_clearing(BUCKET)
        super().clear()

    def values_of(self, kind: int, name: str) -> Values | None:
        """Give the values of a row; None where there is none."""
        return values_in(self._at(kind, name))

    def learn(self, kind: int, name: str, values: Values) -> None:
        """Put an entry as a row has it; of an origin with all the buckets it may have, no other."""
        origin, path = parts(name)
        count, backoff, retry_after, failed = values
        entry = Entry(backoff, count, retry_after, failed)
        if kind == TARGET:
            self.put(Target(name, origin, path), entry)
        elif len(self._buckets.get(origin, ())) < MOST_BUCKETS or self.own_bucket(origin, path) is not None:
            self.put_bucket(origin, path, entry)

    def unlearn(self, kind: int, name: str) -> None:
        """Drop the entry of a row that went."""
        origin, path = parts(name)
        entry = self._at(kind, name)
        if entry is None:
            return
        if kind == TARGET:
            self.close(Target(name, origin, path), entry)
        else:
            self._drop(self._buckets, origin, [path])

    def _at(self, kind: int, name: str) -> Entry | None:
        origin, path = parts(name)
        return self.own(Target(name, origin, path)) if kind == TARGET else self.own_bucket(origin, path)

    def _drop(self, places: _Places, key: int | str, names: list[str]) -> None:
        if self._record.is_on:
            for name in names:
                kind, whole = (TARGET, name) if places is self._shelves else (BUCKET, f"{key}{name}")
                self._record.note(kind, whole, values_in(places[key][name]))
        super()._drop(places, key, names)


class RecordedNames(dict[str, T]):
    """A dictionary that notes which of its names are about to change."""

    def __init__(self, record: Record, kind: int, count: Callable[[T], int]) -> None:
        super().__init__()
        self._record, self._kind, self._count = record, kind, count

    def values_of(self, name: str) -> Values | None:
        """Give the values of a row; None where there is none."""
        return (self._count(self[name]), ASAP, ASAP, ASAP) if name in self else None

    def __setitem__(self, name: str, value: T) -> None:
        self._record.note(self._kind, name, self.values_of(name))
        super().__setitem__(name, value)

    def __delitem__(self, name: str) -> None:
        self._record.note(self._kind, name, self.values_of(name))
        super().__delitem__(name)

    def clear(self) -> None:
        """Drop everything."""
        self._record.note_clearing(self._kind)
        super().clear()


class RecordedBudget(RetryBudget):
    """A retry budget that notes which origins' are about to change."""

    def __init__(self, record: Record, tokens: int, *, most: int) -> None:
        super().__init__(tokens, most=most)
        self._left: RecordedNames[int] = RecordedNames(record, BUDGET, lambda left: left)

    def __len__(self) -> int:
        return len(self._left)

    def __contains__(self, origin: str) -> bool:
        return origin in self._left

    def values_of(self, origin: str) -> Values | None:
        """Give the values of a row; None where there is none."""
        return self._left.values_of(origin)

    def learn(self, origin: str, left: int | None) -> None:
        """Put the shares that a row leaves an origin; None, or as many as it may have, is no row."""
        if left is not None and 0 <= left < self._full:
            self._left[origin] = left
        else:
            self._left.pop(origin, None)


def values_in(entry: Entry | None) -> Values | None:
    return None if entry is None else (entry.count, entry.backoff, entry.retry_after, entry.failed)
