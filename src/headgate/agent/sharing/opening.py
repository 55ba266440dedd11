"""Opening the file of a shared throttle: it is made where there is none, and refused where it is something else.

This file knows the layout, and the sentence for each way in which a file can be no use. What is in the rows it does not
know.
"""

import os
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from headgate.errors import ConfigurationError

__all__ = ["LAYOUT", "is_busy", "open_database", "sentence"]

LAYOUT: Final = 1
"""The version of the tables below: another number, another layout."""

_APPLICATION: Final = 0x48677468
"""What tells such a file from any other database."""

_TABLES: Final = (
    """CREATE TABLE kept (
        kind INTEGER NOT NULL, name TEXT NOT NULL, change INTEGER NOT NULL,
        count INTEGER NOT NULL, backoff REAL, retry_after REAL, failed REAL,
        PRIMARY KEY (kind, name)
    ) WITHOUT ROWID""",
    "CREATE TABLE log (change INTEGER PRIMARY KEY, kind INTEGER NOT NULL, name TEXT NOT NULL)",
    "CREATE TABLE state (identity TEXT NOT NULL)",
)

_SETTINGS: Final = {
    # With a WAL this never damages the file, and a program that is killed loses nothing that was committed. A power cut
    # may lose the last commits: then a target fails once more. FULL would wait for the disk at each failure instead.
    "synchronous": "NORMAL",
    # Pages: the WAL starts over once it has so many, and gives back the bytes that one long reader made it grow beyond.
    "wal_autocheckpoint": "4000",
    "journal_size_limit": "4194304",
    # Whoever else may write the file is not trusted with more than rows.
    "trusted_schema": "OFF",
    "cell_size_check": "ON",
}
_SMALLEST: Final = 512
"""Bytes that a database has at least."""
_LONGEST_VALUE: Final = 10_000
"""Bytes that one value or row may have; ours are far shorter."""

_WHAT_NEXT: Final = {
    sqlite3.SQLITE_BUSY: "is locked by another program; end that one",
    sqlite3.SQLITE_LOCKED: "is locked by another program; end that one",
    sqlite3.SQLITE_PROTOCOL: "is locked by another program; end that one",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; let this program write it and its folder, or choose another path",
    sqlite3.SQLITE_READONLY: "may not be written; let this program write it and its folder, or choose another path",
    sqlite3.SQLITE_NOTADB: "is no SQLite database; choose another path, or delete the file",
    sqlite3.SQLITE_CORRUPT: "is damaged; delete it while no program uses it, with the -wal and -shm files beside it",
    sqlite3.SQLITE_FULL: "has no room to grow on its disk; make some",
}
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})

_creating: Final = threading.Lock()


def open_database(path: Path) -> sqlite3.Connection:
    """Open the file, made first where there is none, for any thread and no implicit transaction.

    Raises `ConfigurationError` for what is something else, and `sqlite3.Error` for what cannot be had now.
    """
    _create(path)
    with suppress(OSError):
        if 0 < path.stat().st_size < _SMALLEST:  # which SQLite would take for an empty one, and write over
            raise ConfigurationError(f"{path} {_WHAT_NEXT[sqlite3.SQLITE_NOTADB]}")
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
        connection.text_factory = _text
        _settle(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def is_busy(error: Exception) -> bool:
    """Say whether trying again soon may help: another program has locked the file."""
    return _code(error) in _BUSY


def sentence(path: Path, error: Exception) -> str:
    """Say what is wrong with the file, where it is, and what next."""
    code = _code(error)
    if code == sqlite3.SQLITE_CANTOPEN:
        with suppress(OSError):  # whoever may not look into the folder may not write it either
            if path.is_dir():
                return f"{path} is a folder; name a file in it"
            if not path.parent.is_dir():
                return f"{path} cannot be opened, since there is no folder {path.parent}; create it"
    what = _WHAT_NEXT.get(code, f"cannot be used ({error}); choose a path on a local disk")
    return str(error) if isinstance(error, ConfigurationError) else f"{path} {what}"


def _code(error: Exception) -> int:
    """Give SQLite's code without the details; 0 for what comes from elsewhere."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def _create(path: Path) -> None:
    """Make an empty file that its owner alone may read: what fails is not for everybody."""
    # One thread at a time: closing a file gives up every lock that this process has on it, SQLite's included.
    with _creating, suppress(OSError):  # it is there already, or SQLite finds out what is the matter
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def _settle(connection: sqlite3.Connection, path: Path) -> None:
    """See that it is the right kind of file, and set it."""
    ask = connection.execute
    if _marks(connection) == (0, 0) and not _schema(connection):
        ask("PRAGMA page_size = 1024")  # each change writes whole pages, of few rows
        ask("PRAGMA journal_mode = WAL")
        ask("BEGIN IMMEDIATE")
        if not _schema(connection):  # nobody else was faster
            _lay_out(connection)
        ask("COMMIT")
    application, layout = _marks(connection)
    if application != _APPLICATION:
        raise ConfigurationError(f"{path} is a database of another program; choose another path")
    if layout != LAYOUT:
        raise ConfigurationError(
            f"{path} has layout {layout}, and this headgate knows {LAYOUT}; choose another path, "
            "or delete the file while no program uses it"
        )
    if _schema(connection) != set(_TABLES):
        raise sqlite3.DatabaseError("its tables are not those of a throttle")
    (mode,) = ask("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise ConfigurationError(f"{path} can have no WAL where it is; choose a path on a local disk")
    for name, value in _SETTINGS.items():
        ask(f"PRAGMA {name} = {value}")


def _marks(connection: sqlite3.Connection) -> tuple[int, int]:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (layout,) = connection.execute("PRAGMA user_version").fetchone()
    return application, layout


def _schema(connection: sqlite3.Connection) -> set[str]:
    return {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE name NOT LIKE 'sqlite%'")}


def _lay_out(connection: sqlite3.Connection) -> None:
    for table in _TABLES:
        connection.execute(table)
    connection.execute("INSERT INTO state VALUES (lower(hex(randomblob(8))))")
    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
    connection.execute(f"PRAGMA user_version = {LAYOUT}")


def _text(value: bytes) -> str:
    # What another program wrote need not be UTF-8; with such a mark in it, it is no name of ours either.
    return value.decode(errors="replace")
