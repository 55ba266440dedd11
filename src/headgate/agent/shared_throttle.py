"""A throttle that shares its holds with other processes, through one SQLite table of release times.

Each process counts for itself. The release times that follow from its counts are written to the table, and each
request is held until the later of its own release time and that in the table: rows are combined with `max`, in any
order, so no process shortens a hold of another.
"""

import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from headgate.advice.cache import REPORT_TIMEOUT
from headgate.agent.fork_hooks import FORK_HOOKS
from headgate.errors import ConfigurationError, fail_if
from headgate.release import ASAP
from headgate.throttle import Explanation, Policy, Throttle
from headgate.throttle.fields import Headers, ThrottleFields
from headgate.throttle.target import Target, path_matches
from headgate.throttle.throttle import RETRY_BUDGET

_APPLICATION_ID: Final = 0x48677468
"""Distinguishes the file from other SQLite databases."""
SCHEMA_VERSION: Final = 4
_BUCKET: Final = "*"
"""Precedes the path of a bucket, so that all buckets sort before all targets."""

_OPEN_TIMEOUT: Final = 5.0
_BUSY_TIMEOUT: Final = 0.05
"""Seconds to wait for another program's lock: when the throttle is created or the process forks, and for a request."""
_RETRY_INTERVAL: Final = 1.0
"""Seconds until a file that could not be used is tried again."""
_TRIM_INTERVAL: Final = 1_000
"""Holds written after which the oldest rows are deleted, if there are too many."""

_CREATE: Final = f"""
    PRAGMA journal_mode = WAL;
    BEGIN IMMEDIATE;
    CREATE TABLE IF NOT EXISTS holds (
        origin TEXT, path TEXT, release REAL NOT NULL, PRIMARY KEY (origin, path)
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS by_release ON holds (release);
    CREATE TABLE IF NOT EXISTS responses (url TEXT PRIMARY KEY, since REAL NOT NULL, response BLOB NOT NULL);
    PRAGMA application_id = {_APPLICATION_ID};
    PRAGMA user_version = {SCHEMA_VERSION};
    COMMIT;
"""
_KIND: Final = """
    SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)
    FROM pragma_application_id, pragma_user_version
"""
_WRITE: Final = """
    INSERT INTO holds VALUES (?, ?, ?)
    ON CONFLICT DO UPDATE SET release = max(release, excluded.release)
"""
_READ: Final = "SELECT path, release FROM holds WHERE origin = ? AND (path < '/' OR path = ?) AND release > ?"
_RESPONSE: Final = """
    SELECT response, since FROM responses
    WHERE url = ?1 AND abs(since - ?2) < CASE WHEN response = x'' THEN ?3 ELSE ?4 END
"""
_CLAIM: Final = """
    INSERT INTO responses VALUES (?1, ?2, x'') ON CONFLICT DO UPDATE SET since = ?2, response = x''
    WHERE abs(since - ?2) >= CASE WHEN response = x'' THEN ?3 ELSE ?4 END
"""
_KEEP: Final = "INSERT OR REPLACE INTO responses VALUES (?, ?, ?)"
_DROP: Final = "DELETE FROM responses WHERE url = ? OR since <= ?"
_KEPT_FOR: Final = 60.0
"""Seconds for which other processes use a response to a fetch. To them it looks new, so this is short."""
_MAX_RESPONSE_SIZE: Final = 65_536
_CLEAR: Final = "DELETE FROM holds WHERE origin = ?"
_TRIM: Final = """
    DELETE FROM holds WHERE (origin, path) IN (
        SELECT origin, path FROM holds ORDER BY release LIMIT max(0, (SELECT count(*) FROM holds) - ?)
    )
"""
_MIN_SIZE: Final = 512
"""Bytes that a database has at least; SQLite would overwrite a smaller file."""


class SharedThrottle(Throttle, AbstractContextManager["SharedThrottle"]):
    """A `Throttle` that shares its holds with all processes of this machine that have the same `path`.

    ::

        with SharedThrottle("/var/lib/crawler/throttle.sqlite3") as throttle:
            courtesy = Courtesy(throttle=throttle)

    The processes also share what they fetch, traffic advice and robots.txt: one of them fetches, and its response
    serves the others that need it within a minute.

    A hold of one process, by backoff or `Retry-After`, holds all others from their next request on. Everything else is
    separate for each process: failure counts, so each one may send `num_errors_to_ignore` failing requests before its
    first hold; opt-outs, which do not void a hold of another process; retry budgets, buckets and user gestures.

    **The file** is a SQLite database with a write-ahead log, on a local disk. It is created if missing, for its owner
    only, and is not deleted. It contains at most `max_targets` release times. A power cut may lose the last few. A
    deleted or replaced file is noticed by the next request. `reset` deletes all holds; other processes keep those that
    they have caused.

    **No request fails because of the file.** While it cannot be used (locked, damaged, disk full), a process uses its
    memory, explains why in `trouble`, tries again every second, and then writes what it has learned. A request reads
    one row; only one that causes a hold writes, and waits at most 50 ms for another program's lock, also in an event
    loop. If the clock is set back, holds in the file last longer by as much.

    Any number of threads can share one. `os.fork` and `multiprocessing` are safe at any time. A program that is forked
    in another way (uWSGI) may create it before the fork and use it afterwards.

    Raises `ConfigurationError`, which describes the problem with the path, if the file cannot be used at the start.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        policy: Policy = Policy(),  # noqa: B008 - frozen
        *,
        draw: Callable[[], float] = random.random,
        max_targets: int = 100_000,
        max_opt_outs: int = 10_000,
        hold_localhost: bool = False,
        retry_budget: int | None = RETRY_BUDGET,
    ) -> None:
        fail_if(
            not isinstance(path, (str, os.PathLike)),
            f"path must be the path of a file that the processes share, got {path!r:.80}",
        )
        self._settings: dict[str, Any] = {
            "draw": draw,
            "max_targets": max_targets,
            "max_opt_outs": max_opt_outs,
            "hold_localhost": hold_localhost,
            "retry_budget": retry_budget,
        }
        super().__init__(policy, **self._settings)
        self.trouble = ""
        """Why the file cannot be used now; empty if it can."""
        self._path = Path(path).absolute()
        self._max_rows = max_targets
        self._lock = threading.RLock()
        self._is_closed = False
        self._connection: sqlite3.Connection | None = None
        self._inode: int | None = None
        self._pid = 0
        """The process that opened the file."""
        self._retry_at = ASAP
        self._unwritten: dict[tuple[str, str], float] = {}
        self._until_trim = 0
        try:
            self._open(_OPEN_TIMEOUT)
        except (sqlite3.Error, OSError) as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_BUSY:  # it may be free for the requests
                raise ConfigurationError(
                    f"{self._path} cannot be used: {error}; choose a path on a local disk"
                ) from error
        finally:
            self._disconnect()  # so that a program which forks next has nothing open, however it forks
        FORK_HOOKS.register(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy as path and settings: the other process, or the copy, opens the file for itself."""
        return partial(type(self), **self._settings), (str(self._path), self.policy)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file for good; the throttle goes on without it."""
        with self._lock:
            self._is_closed = True
            self._disconnect()

    def release_time(self, url: str | Target, *, now: float, interactive: bool = False) -> float:
        """Return the later of this process's release time and that in the file; `ASAP` if neither holds `url`."""
        with self._lock:
            release = super().release_time(url, now=now, interactive=interactive)
            if interactive or self._is_after_gesture(now):
                return release
            return max(release, self._shared_release(self._target(url), now))

    def explain(self, url: str, *, now: float) -> Explanation:
        """Return why `url` is held or free at `now`; the reason is "shared" for a hold that only the file has."""
        with self._lock:
            explanation = super().explain(url, now=now)
            release = self.release_time(url, now=now)
        if release <= explanation.release or release <= now:
            return explanation
        return msgspec.structs.replace(explanation, retry_after=release, held=True, reason="shared")

    def response_received(
        self,
        url: str | Target,
        status: int,
        headers: Headers,
        *,
        now: float,
        sent: float | None = None,
        method: str = "GET",
    ) -> ThrottleFields | None:
        """Count the response, and share the holds that it causes."""
        with self._lock:
            fields = super().response_received(url, status, headers, now=now, sent=sent, method=method)
            self._share(url, now)
            return fields

    def request_lost(self, url: str | Target, *, now: float, sent: float | None = None) -> None:
        """Count the failure, and share the hold that it causes."""
        with self._lock:
            super().request_lost(url, now=now, sent=sent)
            self._share(url, now)

    def clear(self, url: str) -> None:
        """Drop all that is known of an origin, also in the file."""
        with self._lock:
            super().clear(url)
            target = self.target(url)
            if target is not None:
                self._unwritten = {key: end for key, end in self._unwritten.items() if key[0] != target.origin}
                self._run(lambda connection: connection.execute(_CLEAR, (target.origin,)).fetchall())

    def malformed_body(self, url: str, status: int, *, now: float) -> None:
        """Count the failure, and share the hold that it causes."""
        with self._lock:
            super().malformed_body(url, status, now=now)
            self._share(url, now)

    def reset(self) -> None:
        """Drop all failures of this process, and all holds in the file."""
        with self._lock:
            super().reset()
            self._unwritten.clear()
            self._run(lambda connection: connection.execute("DELETE FROM holds").fetchall())

    def claim_response(self, url: str, *, now: float) -> bytes | None:
        """Return the response that another process got, empty while it fetches, or None: then this one is to fetch."""
        parameters = url, now, REPORT_TIMEOUT, _KEPT_FOR

        def claim(connection: sqlite3.Connection) -> list[tuple[Any, float]]:
            found = connection.execute(_RESPONSE, parameters).fetchall()
            if not found and not connection.execute(_CLAIM, parameters).rowcount:
                return [(b"", now)]  # another process was faster
            return found

        with self._lock:
            found = self._run(claim)
        return found[0][0] if found else None

    def keep_response(self, url: str, response: bytes, *, now: float) -> None:
        """Share the response to a fetch, or end the claim if it is empty or long."""

        def keep(connection: sqlite3.Connection) -> None:
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                connection.execute(_DROP, (url, now - _KEPT_FOR))
                if 0 < len(response) <= _MAX_RESPONSE_SIZE:
                    connection.execute(_KEEP, (url, now, response))

        with self._lock:
            self._run(keep)

    def _share(self, url: str | Target, now: float) -> None:
        """Write the hold of a target, if there is one, and what could not be written before."""
        target = self._target(url)
        for entry in () if target is None else self._store.holding(target, now=now):
            if entry.release > now and len(self._unwritten) < self._max_rows:
                key = entry.origin, (_BUCKET + entry.path if entry.is_bucket else entry.path)
                self._unwritten[key] = max(entry.release, self._unwritten.get(key, ASAP))
        if self._unwritten:
            self._run(self._write)

    def _write(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        with connection:
            connection.executemany(_WRITE, [(*key, release) for key, release in self._unwritten.items()])
            self._until_trim -= len(self._unwritten)
            if self._until_trim <= 0:
                connection.execute(_TRIM, (self._max_rows,))
                self._until_trim = _TRIM_INTERVAL
        self._unwritten.clear()

    def _shared_release(self, target: Target | None, now: float) -> float:
        """Return the latest release time in the file of a target and of the buckets that hold it."""
        if target is None or self._is_exempt(target):
            return ASAP
        parameters = target.origin, target.path, now
        rows = self._run(lambda connection: connection.execute(_READ, parameters).fetchall()) or []
        return max(
            (release for path, release in rows if path_matches(path.removeprefix(_BUCKET), target.path)), default=ASAP
        )

    def _run(
        self, use: Callable[[sqlite3.Connection], list[tuple[Any, float]] | None]
    ) -> list[tuple[Any, float]] | None:
        """Use the file; None if it cannot be used now, which `trouble` then explains."""
        if self._connection is not None and self._pid != os.getpid():
            self._is_closed, self.trouble = True, f"{self._path} was in use when this process was forked"
        if self._is_closed or time.monotonic() < self._retry_at:
            return None
        try:
            connection = self._connection
            if connection is None or self._inode != _inode_of(self._path):
                connection = self._open(_BUSY_TIMEOUT)
            rows = use(connection)
        except (sqlite3.Error, OSError, ConfigurationError) as error:
            self.trouble = f"{self._path} cannot be used now: {error}"
            self._retry_at = time.monotonic() + _RETRY_INTERVAL
            self._disconnect()
            return None
        self.trouble = ""
        return rows

    def _open(self, timeout: float) -> sqlite3.Connection:
        """Open the file, or create it for its owner only, since it contains URLs."""
        self._disconnect()
        with suppress(FileExistsError):
            os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        fail_if(
            0 < self._path.stat().st_size < _MIN_SIZE,
            f"{self._path} is not an SQLite database; choose another path, or delete the file",
        )
        connection = sqlite3.connect(self._path, timeout=timeout, isolation_level=None, check_same_thread=False)
        self._connection, self._inode, self._pid = connection, _inode_of(self._path), os.getpid()
        kind = connection.execute(_KIND).fetchone()
        if kind == (0, 0, 0):
            connection.executescript(_CREATE)
        elif kind[:2] != (_APPLICATION_ID, SCHEMA_VERSION):
            raise ConfigurationError(
                f"{self._path} was written by another program, or another version of headgate;"
                " choose another path, or delete the file while no program uses it"
            )
        # A process that is killed loses nothing that it has committed.
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def before_fork(self) -> None:
        """Close the file while the process is forked: SQLite's locks do not survive in the child."""
        self._lock.acquire()
        self._disconnect()

    def after_fork(self, *, is_child: bool) -> None:
        """Go on in both processes; each opens the file again."""
        if is_child:
            self._lock = threading.RLock()
        else:
            self._lock.release()


def _inode_of(path: Path) -> int | None:
    with suppress(OSError):
        return path.stat().st_ino
    return None
