"""The database of a shared throttle: its schema, opening it, and descriptions of errors.

This file knows nothing of what the rows mean.
"""

import os
import sqlite3
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from headgate.errors import ConfigurationError

SCHEMA_VERSION: Final = 2
_APPLICATION_ID: Final = 0x48677468
"""Distinguishes the file from other SQLite databases."""

_SCHEMA: Final = (
    # `change` is one more than any before it, so that a reader of the last number finds what has changed since. An
    # entry that was dropped stays as a row whose count is NULL, until the rows before `floor` are deleted.
    """CREATE TABLE entries (
        change INTEGER PRIMARY KEY, kind INTEGER NOT NULL, origin TEXT NOT NULL, path TEXT NOT NULL,
        count INTEGER, backoff REAL, retry_after REAL, failed REAL, noted REAL, UNIQUE (kind, origin, path)
    )""",
    "CREATE TABLE state (identity TEXT NOT NULL, floor INTEGER NOT NULL)",
    "INSERT INTO state VALUES (lower(hex(randomblob(8))), 0)",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)

_SETTINGS: Final = (
    # With a WAL this never damages the file, and a program that is killed loses nothing that was committed. A power cut
    # may lose the last commits: then a target fails once more. FULL would wait for the disk at each commit.
    "PRAGMA synchronous = NORMAL",
    # Bytes of the WAL that stay once it is empty, however far one long reader has made it grow.
    "PRAGMA journal_size_limit = 4194304",
    "PRAGMA trusted_schema = OFF",
)

_MIN_SIZE: Final = 512
"""Bytes that a database has at least."""
_MAX_ROW: Final = 10_000
"""Bytes that a value or row may have; those of a throttle are far shorter."""

_LOCKED: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
_NOT_A_DATABASE: Final = "is not an SQLite database; choose another path, or delete the file"
_PERMISSION: Final = "allow this program to write the file and its directory, or choose another path"
_SENTENCES: Final = {
    **dict.fromkeys(_LOCKED, "is locked by another program; wait for that program, or end it"),
    sqlite3.SQLITE_CANTOPEN: f"cannot be opened; {_PERMISSION}",
    sqlite3.SQLITE_READONLY: f"cannot be written; {_PERMISSION}",
    sqlite3.SQLITE_NOTADB: _NOT_A_DATABASE,
    sqlite3.SQLITE_CORRUPT: "is damaged; delete it while no program uses it, with the -wal and -shm files beside it",
    sqlite3.SQLITE_FULL: "cannot grow, since its disk is full; free some space",
}

_PAUSE: Final = 0.01
"""Seconds between two attempts to prepare a connection."""

_creating: Final = threading.Lock()


def open_database(path: Path, *, timeout: float) -> sqlite3.Connection:
    """Open the file, or create it; the connection is for any thread, and without implicit transactions.

    It waits `timeout` seconds for another program's lock, also while it is opened. Raises `ConfigurationError` for a
    file of another kind, and `sqlite3.Error` for one that cannot be used now.
    """
    _create(path)
    with suppress(OSError):
        if 0 < path.stat().st_size < _MIN_SIZE:  # which SQLite would take for an empty one, and overwrite
            raise ConfigurationError(f"{path} {_NOT_A_DATABASE}")
    connection = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
    try:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_ROW)
        _prepare_in_time(connection, path, timeout)
    except BaseException:
        connection.close()
        raise
    return connection


def is_locked(error: Exception) -> bool:
    """Return whether the cause is another program's lock, so that a retry may help."""
    return _code(error) in _LOCKED


def describe_error(path: Path, error: Exception) -> str:
    """Return a sentence that says what is wrong with the file, and what to do."""
    if isinstance(error, ConfigurationError):
        return str(error)
    code = _code(error)
    if code == sqlite3.SQLITE_CANTOPEN:
        with suppress(OSError):  # which is of no help in a sentence about the file
            if path.is_dir():
                return f"{path} is a directory; name a file in it"
            if not path.parent.is_dir():
                return f"{path} cannot be opened, since {path.parent} is not a directory; create it"
    return f"{path} {_SENTENCES.get(code, f'cannot be used ({error}); choose a path on a local disk')}"


def _code(error: Exception) -> int:
    """Return SQLite's primary error code; 0 for an error of something else."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def _create(path: Path) -> None:
    """Create an empty file that only its owner may read, because it contains requested URLs."""
    # One thread at a time: closing a file releases all locks of this process on it, also SQLite's.
    with _creating, suppress(OSError):  # it exists already, or SQLite finds out why it cannot be opened
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def _prepare_in_time(connection: sqlite3.Connection, path: Path, timeout: float) -> None:
    """Prepare a connection, with retries for the locks that SQLite itself does not wait for."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            return _prepare(connection, path)
        except sqlite3.Error as error:
            if not is_locked(error) or time.monotonic() >= deadline:
                raise
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        time.sleep(_PAUSE)


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Create the tables in an empty file, refuse one that is something else, and configure the connection."""
    execute = connection.execute
    if _is_empty(connection):
        execute("PRAGMA page_size = 1024")  # each commit writes whole pages, of few rows
        execute("PRAGMA journal_mode = WAL")
        execute("BEGIN IMMEDIATE")
        if _is_empty(connection):  # another process may have created it meanwhile
            for statement in _SCHEMA:
                execute(statement)
        execute("COMMIT")
    application, version = _number(connection, "application_id"), _number(connection, "user_version")
    if application != _APPLICATION_ID:
        raise ConfigurationError(f"{path} is a database of another program; choose another path")
    if version != SCHEMA_VERSION:
        raise ConfigurationError(
            f"{path} was written by another version of headgate (schema {version}, expected {SCHEMA_VERSION}); "
            "choose another path, or delete the file while no program uses it"
        )
    if execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
        raise ConfigurationError(f"{path} cannot have a write-ahead log where it is; choose a path on a local disk")
    for statement in _SETTINGS:
        execute(statement)


def _is_empty(connection: sqlite3.Connection) -> bool:
    numbers = _number(connection, "application_id"), _number(connection, "user_version")
    return numbers == (0, 0) and connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    (number,) = connection.execute(f"PRAGMA {pragma}").fetchone()
    return int(number)
