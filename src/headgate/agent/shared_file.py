"""The rows of a shared throttle's file: applies changes to them, and reads the changes of other processes.

This file knows SQL and nothing of threads. Every call is one transaction. A change is applied to the current row in the
file, by the same rule as in memory, so the counts of several processes add up.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple

from headgate.agent.shared_database import open_database
from headgate.release import NEVER
from headgate.throttle.entry import BUCKET, BUDGET, KINDS, OPT_OUT, TARGET, Change, EntryKey, ThrottleEntry, applied
from headgate.throttle.policy import Policy
from headgate.throttle.target import path_matches

_BUSY_TIMEOUT: Final = 0.25
_OPEN_TIMEOUT: Final = 5.0
"""Seconds to wait for another program's lock, in a call and after `open`."""

_MAX_BEHIND: Final = 16_384
"""Changes that a reader may be behind without reading the whole file again."""
_TRIM_INTERVAL: Final = 4_096
"""Rows written after which the bounds are checked, at the latest."""
_MAX_DELAY: Final = 3_600.0
"""Seconds by which a change may be written late, as by a stopped process; if it is more, the clock was set back."""
_MAX_COUNT: Final = 2**31

_COLUMNS: Final = "kind, origin, path, count, backoff, retry_after, failed, noted"
_NEWS: Final = f"SELECT {_COLUMNS} FROM entries WHERE change > ? ORDER BY change"  # noqa: S608 - constants
_COUNT: Final = "SELECT count(*) FROM entries WHERE kind BETWEEN ? AND ? AND count IS NOT NULL"
_POSITION: Final = "SELECT identity, floor, max(floor, coalesce((SELECT max(change) FROM entries), 0)) FROM state"
_TRIM: Final = """DELETE FROM entries WHERE change IN (
    SELECT change FROM entries WHERE kind BETWEEN ? AND ? AND count IS NOT NULL
    ORDER BY max(backoff, retry_after) > ?, count > 0, change LIMIT ?)"""


class News(NamedTuple):
    """What has changed in the file since it was last read."""

    is_whole: bool
    """Whether the rows are the whole content of the file."""
    rows: list[tuple[EntryKey, ThrottleEntry | None]]
    """In the order of the changes; None for a dropped entry."""


class ThrottleFile:
    """One process's use of the file, which is opened when first needed; for one thread at a time.

    The file contains at most `max_targets` targets and buckets, as many budgets, and `max_opt_outs` hosts. Methods that
    need the file raise `sqlite3.Error` or `ConfigurationError` if it cannot be used.
    """

    def __init__(self, path: str | os.PathLike[str], policy: Policy, *, max_targets: int, max_opt_outs: int) -> None:
        self.path = Path(path).absolute()
        self._policy = policy
        self._limits = ((TARGET, BUCKET, max_targets), (OPT_OUT, OPT_OUT, max_opt_outs), (BUDGET, BUDGET, max_targets))
        self._connection: sqlite3.Connection | None = None
        self._inode: tuple[int, int] | None = None
        self._identity = ""
        self._last = 0
        """The number of the last change that was read."""
        self._unread = 0
        """The number of the last change of another process when this one began to write."""
        self._moved: list[tuple[EntryKey, None]] = []
        """Targets whose changes were applied to a bucket that another process had declared."""
        self._version = -1
        self._until_trim = 0

    def open(self) -> None:
        """Open the file, and check that it can be written. Until it is closed, all calls wait longer for a lock."""
        self._open(_OPEN_TIMEOUT)
        with self._transaction("BEGIN IMMEDIATE") as connection:
            connection.execute("UPDATE state SET floor = floor")  # a read-only file lets a transaction begin

    def close(self) -> None:
        """Close the file; it is opened again when needed."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection, self._version = None, -1

    def exchange(self, changes: Sequence[tuple[EntryKey, Change]] = (), *, reset: bool = False) -> News:
        """Apply changes to the rows; return what has changed since the last call, these included.

        With `reset`, everything except the opt-outs is deleted first. If there is nothing to write, this does not wait
        for another program's lock.
        """
        writes = bool(changes) or reset
        if not writes and not self._is_changed():
            return News(is_whole=False, rows=[])
        with self._transaction("BEGIN IMMEDIATE" if writes else "BEGIN") as connection:
            position = connection.execute(_POSITION).fetchone()
            if position is None:
                raise sqlite3.DatabaseError("its state is missing")
            identity, floor, last = position
            self._unread, self._moved = last, []
            if reset:
                connection.execute("DELETE FROM entries WHERE kind <> ?", (OPT_OUT,))
                floor = last = last + 1
                connection.execute("UPDATE state SET floor = ?", (floor,))
            for key, run in groupby(changes, key=itemgetter(0)):
                last = self._apply(key, [change for _, change in run], last)
            is_whole = identity != self._identity or not floor <= self._last <= last
            rows = [*self._moved, *self._rows(-1 if is_whole else self._last)]
            self._until_trim -= len(rows)
            if writes and self._until_trim <= 0:
                self._trim(last, rows)
        self._identity, self._last = identity, last
        if is_whole:
            rows = [(key, entry) for key, entry in rows if entry is not None]
        return News(is_whole, rows)

    def _is_changed(self) -> bool:
        """Return whether another process has changed the file or replaced it."""
        if self._is_moved():
            self.close()
        if self._connection is None:
            return True
        (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        is_changed, self._version = version != self._version, version
        return bool(is_changed)

    def _is_moved(self) -> bool:
        return self._connection is not None and self._inode != _inode(self.path)

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        connection = self._begun(begin)
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            self._version = -1  # the changes must still be read
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise

    def _begun(self, begin: str) -> sqlite3.Connection:
        """Begin a transaction in the file that is at the path now."""
        connection = self._opened()
        connection.execute(begin)
        if not self._is_moved():
            return connection
        self.close()
        connection = self._opened()
        connection.execute(begin)
        return connection

    def _opened(self) -> sqlite3.Connection:
        return self._open(_BUSY_TIMEOUT) if self._connection is None else self._connection

    def _open(self, timeout: float) -> sqlite3.Connection:
        self._connection = connection = open_database(self.path, timeout=timeout)
        self._inode = _inode(self.path)
        return connection

    def _apply(self, key: EntryKey, changes: Sequence[Change], last: int) -> int:
        """Apply changes to the row of a key, or of the bucket that it is now in; return the last number."""
        is_bucket = key.kind == BUCKET
        bucket = self._bucket(key, changes[0].now) if key.kind == TARGET else None
        if bucket is not None:
            self._moved.append((key, None))
            key = bucket.key
        entry = self._get(key)
        is_known = entry is not None
        for change in changes:
            if entry is not None and entry.noted - change.now > _MAX_DELAY:
                entry.follow_clock(change.now)
            is_new = entry is None
            entry = applied(change, entry, key, self._policy)
            if key.kind == BUCKET and entry is not None:
                last = self._take_in(entry, change.now, last, with_wider=is_new)
        if is_bucket and entry is not None:
            last = self._pass_on(entry, last)
        return self._put(key, entry, last) if is_known or entry is not None else last

    def _bucket(self, key: EntryKey, now: float) -> ThrottleEntry | None:
        """Return the longest other bucket that a target or bucket is in."""
        found = [
            bucket
            for bucket in self._select("kind = ? AND origin = ? AND count IS NOT NULL", BUCKET, key.origin)
            if bucket is not None and bucket.key != key and path_matches(bucket.path, key.path)
        ]
        live = [bucket for bucket in found if not bucket.is_expired(now, self._policy)]
        return max(live, key=lambda bucket: len(bucket.path), default=None)

    def _take_in(self, bucket: ThrottleEntry, now: float, last: int, *, with_wider: bool) -> int:
        """Add to a bucket the counts and holds of its members, which are dropped, and of the wider bucket it is in.

        A member is also added to the narrower bucket that it is in: its process had already forgotten that bucket.
        """
        wider = self._bucket(bucket.key, now) if with_wider else None
        if wider is not None:
            bucket.absorb(wider)
        where = "kind = ? AND origin = ? AND path BETWEEN ? AND ? AND count IS NOT NULL"
        for member in self._select(where, TARGET, bucket.origin, bucket.path, bucket.path + "\x7f"):
            if member is not None and path_matches(bucket.path, member.path):
                if not member.is_expired(now, self._policy):
                    bucket.absorb(member)
                    narrower = self._bucket(member.key, now)
                    if narrower is not None and len(narrower.path) > len(bucket.path):
                        narrower.absorb(member)
                        last = self._put(narrower.key, narrower, last)
                last = self._put(member.key, None, last)
        return last

    def _pass_on(self, bucket: ThrottleEntry, last: int) -> int:
        """Copy the counts of a bucket to narrower buckets that this process did not know yet."""
        where = "kind = ? AND origin = ? AND change > ? AND change <= ? AND count IS NOT NULL"
        for other in self._select(where, BUCKET, bucket.origin, self._last, self._unread):
            if other is not None and other.path != bucket.path and path_matches(bucket.path, other.path):
                other.absorb(bucket)
                last = self._put(other.key, other, last)
        return last

    def _get(self, key: EntryKey) -> ThrottleEntry | None:
        return next(self._select("kind = ? AND origin = ? AND path = ?", *key), None)

    def _put(self, key: EntryKey, entry: ThrottleEntry | None, last: int) -> int:
        """Write a row under the next number; return that number."""
        values = (None,) * 5 if entry is None else _values(entry)
        connection = self._opened()
        connection.execute(
            "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (last + 1, *key, *values)
        )
        return last + 1

    def _select(self, where: str, *values: object) -> Iterator[ThrottleEntry | None]:
        """Yield the entries of some rows; None for a dropped or invalid one."""
        rows = self._opened().execute(f"SELECT {_COLUMNS} FROM entries WHERE {where}", values).fetchall()  # noqa: S608 - constants
        return (_entry(*row) for row in rows)

    def _rows(self, after: int) -> list[tuple[EntryKey, ThrottleEntry | None]]:
        rows = self._opened().execute(_NEWS, (after,))
        return [(EntryKey(*row[:3]), _entry(*row)) for row in rows if _is_key(*row[:3])]

    def _trim(self, last: int, rows: list[tuple[EntryKey, ThrottleEntry | None]]) -> None:
        """Delete the least important rows if there may be more than the bounds allow."""
        connection = self._opened()
        now = max((entry.noted for _, entry in rows if entry is not None), default=0.0)
        room = _TRIM_INTERVAL
        for first, kind, limit in self._limits:
            (count,) = connection.execute(_COUNT, (first, kind)).fetchone()
            if count > limit - limit // 16:
                surplus = count - (limit - limit // 8)
                count -= connection.execute(_TRIM, (first, kind, now, surplus)).rowcount
            room = min(room, limit - count)
        self._until_trim = room
        old = last - _MAX_BEHIND
        if connection.execute("DELETE FROM entries WHERE change <= ? AND count IS NULL", (old,)).rowcount:
            connection.execute("UPDATE state SET floor = ?", (old,))


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _values(entry: ThrottleEntry) -> tuple[float, ...]:
    return entry.count, entry.backoff, entry.retry_after, entry.failed, entry.noted


def _is_key(kind: object, origin: object, path: object) -> bool:
    """Return whether a row has a valid key; other programs may have changed the file."""
    if kind not in KINDS or not isinstance(origin, str) or not isinstance(path, str):
        return False
    return path.startswith("/") if kind in {TARGET, BUCKET} else not path


def _entry(kind: int, origin: str, path: str, count: object, *instants: object) -> ThrottleEntry | None:
    """Return the entry of a row; None for a dropped row or invalid values."""
    if not isinstance(count, int) or not -1 <= count <= _MAX_COUNT or not _is_key(kind, origin, path):
        return None
    numbers = [instant for instant in instants if isinstance(instant, float)]  # a NaN is read as None
    if len(numbers) < len(instants):
        return None
    backoff, retry_after, failed, noted = numbers
    if NEVER in {backoff, failed, noted}:  # only a Retry-After may be for ever
        return None
    return ThrottleEntry(backoff, count, retry_after, failed, noted, kind, origin, path)
