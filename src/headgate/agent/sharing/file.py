"""The file of a shared throttle, as a mirror needs it: is there news, what is it, and write this down.

This file knows the SQL and the locks, and nothing of targets. Every change has a number, one more than the last, and a
line in a log that says which row it was; a mirror that has seen so many reads the rows of those with greater ones, and
where there is no such row, it went. The log is cut; whoever is further behind reads everything anew.
"""

import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from headgate.agent.sharing.mirror import Changes
from headgate.agent.sharing.opening import is_busy, open_database
from headgate.agent.sharing.rows import (
    BUCKET,
    BUDGET,
    OPT_OUT,
    TARGET,
    Key,
    Limits,
    News,
    Position,
    Row,
    checked,
    checked_key,
)

__all__ = ["FARTHEST", "PATIENCE", "Forked", "ThrottleFile"]

T = TypeVar("T")

FARTHEST: Final = 16_384
"""How many changes a mirror may be behind without reading everything anew."""
_CUT: Final = 1_024
"""How many more lines the log may have."""

_SHORTEST_WAIT: Final = 0.0002
_LONGEST_WAIT: Final = 0.002
_MOST: Final = 2**62
_POSITION: Final = "SELECT identity, (SELECT coalesce(max(change), 0) FROM log) FROM state"
_CHANGED: Final = """SELECT log.kind, log.name, kept.count, kept.backoff, kept.retry_after, kept.failed
    FROM log LEFT JOIN kept ON kept.kind = log.kind AND kept.name = log.name
    WHERE log.change > ? AND coalesce(kept.change, log.change) = log.change ORDER BY log.change"""
_ALL: Final = """SELECT kind, name, count, backoff, retry_after, failed FROM kept
    WHERE kind BETWEEN ? AND ? ORDER BY change DESC LIMIT ?"""
_TRIM: Final = """DELETE FROM kept WHERE kind BETWEEN ? AND ? AND change NOT IN
    (SELECT change FROM kept WHERE kind BETWEEN ? AND ? ORDER BY change DESC LIMIT ?)"""

OPENING: Final = 5.0
PATIENCE: Final = 0.5
"""Seconds that a program's lock is waited for at most: when a throttle is made, and when there is a request."""


class Forked(Exception):
    """The process was forked behind Python's back while the file was open, so it must not be touched here."""


class ThrottleFile:
    """One process's way to the file, opened when first needed; for one thread at a time.

    Whatever needs the file raises `sqlite3.Error` or `ConfigurationError` where it cannot be used.
    """

    def __init__(self, path: str | os.PathLike[str], limits: Limits) -> None:
        self.path = Path(path).absolute()
        self._limits = limits
        self._connection: sqlite3.Connection | None = None
        self._ask: Callable[[str], sqlite3.Cursor]
        self._execute: Callable[..., sqlite3.Cursor]
        self._many: Callable[..., object]
        self._process = 0
        self._place: tuple[int, int] | None = None
        self._opened = 0

    def check(self) -> None:
        """See that the file can be opened and written; it is not kept open.

        So a program that does no more before it forks has nothing open across the fork, however it forks.
        """
        connection = _patiently(partial(open_database, self.path), OPENING)
        try:
            _patiently(partial(connection.execute, "BEGIN IMMEDIATE"), OPENING)
            connection.execute("UPDATE state SET identity = identity")  # a file that may only be read lets one begin
        finally:
            connection.close()

    def open(self) -> None:
        """Open the file if it is not."""
        if self._connection is None:
            self._connection = _patiently(partial(open_database, self.path), PATIENCE)
            self._process, self._place = os.getpid(), self._there()
            self._ask = self._connection.cursor().execute
            self._execute, self._many = self._connection.execute, self._connection.executemany
            self._opened += 1

    def close(self) -> None:
        """Let go of the file, until it is needed again."""
        if self._connection is not None:
            connection = self._connected()
            self._connection = None
            with suppress(sqlite3.Error):
                connection.close()

    def version(self) -> int:
        """Give a number that is another one whenever anybody else has changed anything, and after opening."""
        self._connected()
        version: int = self._ask("PRAGMA data_version").fetchone()[0]
        return (self._opened << 32) + version

    def is_moved(self) -> bool:
        """Say whether the file is open, and another or none where it was."""
        return self._connection is not None and self._there() != self._place

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Have the file stand still for what is read inside."""
        with self._transaction("BEGIN"):
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Have the file for oneself; what is written inside is all there afterwards, or nothing is."""
        with self._transaction("BEGIN IMMEDIATE"):
            yield

    def everything(self) -> News:
        """Give all there is, as far as it may be."""
        rows: list[Row] = []
        is_cut = False
        for first, last, most in self._bounds():
            found = self._select(_ALL, first, last, most + 1)
            is_cut = is_cut or len(found) > most
            rows += [row for each in reversed(found[:most]) if (row := checked(*each)) is not None]
        return News(self._position(), is_whole=True, gone=[], rows=rows, is_cut=is_cut)

    def news(self, position: Position) -> News | None:
        """Give what has changed since a position, and all there is where that is too long ago; None for nothing."""
        now = self._position()
        if position.identity != now.identity or not 0 <= now.change - position.change <= FARTHEST:
            return self.everything()
        if position == now:
            return None
        gone, rows = [], []
        for kind, name, count, *instants in self._select(_CHANGED, position.change):
            key = checked_key(kind, name)
            if key is not None and count is None:
                gone.append(key)
            elif (row := checked(kind, name, count, *instants)) is not None:
                rows.append(row)
        return News(now, is_whole=False, gone=gone, rows=rows, is_cut=False)

    def write(self, changes: Changes, position: Position) -> Position:
        """Write down what a mirror changed that has seen all until `position`; gives the position it is at then."""
        if changes.cleared:
            self._many("DELETE FROM kept WHERE kind = ?", [(kind,) for kind in changes.cleared])
        if changes.gone:
            self._many("DELETE FROM kept WHERE kind = ? AND name = ?", changes.gone)
        if changes.cleared or len(changes.gone) > FARTHEST // 2:
            position = self._jump(position)
        elif changes.gone:
            position = self._log(position, changes.gone)
        if changes.rows:
            rows = [(*row.key, number, *row.values) for number, row in enumerate(changes.rows, position.change + 1)]
            self._many("INSERT OR REPLACE INTO kept VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            position = self._log(position, [row.key for row in changes.rows])
        return position

    def trim(self) -> None:
        """Drop the rows that are more than there may be, the ones longest unchanged."""
        for first, last, most in self._bounds():
            self._execute(_TRIM, (first, last, first, last, most - most // 16))
        self._jump(self._position())

    def _bounds(self) -> list[tuple[int, int, int]]:
        """Give how many rows there may be from one kind to another."""
        entries, opt_outs = self._limits
        return [(TARGET, BUCKET, entries), (OPT_OUT, OPT_OUT, opt_outs), (BUDGET, BUDGET, entries)]

    def _position(self) -> Position:
        found = self._execute(_POSITION).fetchone()
        if found is None or not 0 <= found[1] < _MOST:
            raise sqlite3.DatabaseError("its state is not that of a throttle")
        return Position(*found)

    def _log(self, position: Position, keys: list[Key]) -> Position:
        """Give each key the next number in the log."""
        lines = [(number, *key) for number, key in enumerate(keys, position.change + 1)]
        self._many("INSERT OR REPLACE INTO log VALUES (?, ?, ?)", lines)
        last = position.change + len(keys)
        if last // _CUT != position.change // _CUT:
            self._many("DELETE FROM log WHERE change <= ?", [(last - FARTHEST,)])
        return position._replace(change=last)

    def _jump(self, position: Position) -> Position:
        """Leave so many numbers out that nobody is near enough to ask what went."""
        return self._log(position._replace(change=position.change + FARTHEST), [(-1, "")])

    def _select(self, question: str, *values: int) -> list[tuple[object, ...]]:
        return self._execute(question, values).fetchall()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        connection = self._begun(begin)
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise

    def _begun(self, begin: str) -> sqlite3.Connection:
        """Begin a transaction in the file that is where ours should be, if need be in another one than before."""
        connection = self._connected()
        try:
            _patiently(partial(connection.execute, begin), PATIENCE)
        except sqlite3.DatabaseError:
            if not self.is_moved():
                raise
        else:
            if not self.is_moved():
                return connection
        self.close()
        connection = self._connected()
        _patiently(partial(connection.execute, begin), PATIENCE)
        return connection

    def _connected(self) -> sqlite3.Connection:
        self.open()
        assert self._connection is not None
        if self._process != os.getpid():
            # SQLite's locks are the parent's, and it knows none of that; nor would it in a second connection.
            raise Forked
        return self._connection

    def _there(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino


def _patiently(attempt: Callable[[], T], patience: float) -> T:
    """Try until it is not another program's lock that is in the way, for at most so many seconds.

    SQLite's own way of waiting takes longer and longer steps, so whoever has waited longest is the last to get in.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= deadline:
                raise
        time.sleep(random.uniform(_SHORTEST_WAIT, _LONGEST_WAIT))
