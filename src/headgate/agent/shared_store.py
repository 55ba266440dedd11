"""A throttle's store that several processes share: a view in memory, and a thread that synchronizes it with the file.

The throttle reads and changes only the view, so it never waits for SQLite. Changes are also queued: the thread applies
them to the rows of the file, and copies the rows that other processes changed into the view. This file knows neither
SQL nor what a change does.

The view is the content of the file plus the queued changes: after a row is copied from the file, the queued changes for
its key are applied to it again.
"""

import atexit
import enum
import os
import sqlite3
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from headgate.agent.fork_hooks import FORK_HOOKS
from headgate.agent.shared_database import describe_error, is_locked
from headgate.agent.shared_file import News, ThrottleFile
from headgate.errors import ConfigurationError
from headgate.throttle.entry import BUCKET, OPT_OUT, TARGET, Change, EntryKey, ResponseReceived, ThrottleEntry
from headgate.throttle.policy import Policy
from headgate.throttle.store import Counters, MemoryStore
from headgate.throttle.target import Target

_REFRESH_INTERVAL: Final = 0.05
"""Seconds between two checks for changes of other processes."""
_RETRY_INTERVAL: Final = 1.0
"""Seconds until a file that could not be used is tried again."""
_CLOSE_TIMEOUT: Final = 2.0
_FORK_TIMEOUT: Final = 2.0
"""Seconds to wait until the thread stops using the file, when the store is closed or the process is forked."""
_MAX_PENDING: Final = 10_000
"""Changes that may wait for the file."""
_ROWS_AT_ONCE: Final = 256
"""Rows copied into the view before other threads may use it again."""


class _Phase(enum.Enum):
    """Each phase is followed by the next one."""

    OPEN = enum.auto()
    CLOSING = enum.auto()
    """The thread uses the file once more, and ends."""
    CLOSED = enum.auto()
    """The file is not used any more, and no changes are queued."""


class SqliteStore:
    """A `Store` that all processes with the same `path` share; for any number of threads and event loops.

    Raises `ConfigurationError`, which says what is wrong with the path, where the file cannot be used at the start.
    That, `close` and `synchronize` wait for the file; nothing else does.
    """

    def __init__(self, path: str | os.PathLike[str], policy: Policy, *, max_targets: int, max_opt_outs: int) -> None:
        self.trouble = ""
        """Why the file cannot be used now, and what to do; empty if it can."""
        self.pending = 0
        """Changes that are not in the file yet."""
        self.lost = 0
        """Changes that were dropped, because the queue was full while the file could not be used."""
        self.counters = Counters()
        """How often entries of the view that were in use were dropped or changed."""
        self._new_view = partial(
            MemoryStore,
            policy,
            max_targets=max_targets,
            max_opt_outs=max_opt_outs,
            on_change=self._note,
            counters=self.counters,
        )
        self._view = self._new_view()
        self._file = ThrottleFile(path, policy, max_targets=max_targets, max_opt_outs=max_opt_outs)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._noted: list[tuple[EntryKey, Change]] = []
        self._is_reset = False
        """Whether everything but the opt-outs is to be deleted from the file before the queued changes are applied."""
        self._thread: threading.Thread | None = None
        self._is_in_file = False
        self._rounds = self._rounds_wanted = 0
        """How often the thread has used the file, and how often it has to."""
        self._phase = _Phase.OPEN
        self._is_locked_for_fork = self._is_ready_for_fork = False
        self._open()
        FORK_HOOKS.register(self, SqliteStore._before_fork, SqliteStore._after_fork)
        atexit.register(self.close)

    @property
    def size(self) -> int:
        """How many targets and buckets the view has."""
        with self._lock:
            return self._in_use().size

    def find(self, target: Target, *, now: float) -> ThrottleEntry | None:
        """Return the entry that holds a target."""
        with self._lock:
            return self._in_use().find(target, now=now)

    def get(self, key: EntryKey) -> ThrottleEntry | None:
        """Return the entry under a key."""
        with self._lock:
            return self._in_use().get(key)

    def change(self, key: EntryKey, change: Change) -> None:
        """Apply a change to the entry under a key."""
        with self._lock:
            self._in_use().change(key, change)

    def record(self, target: Target, response: ResponseReceived) -> None:
        """Apply a response to the entry that holds a target."""
        with self._lock:
            self._in_use().record(target, response)

    def declare(self, target: Target, path: str, *, now: float) -> None:
        """Hold all targets of this one's origin that `path` matches together, from now on."""
        with self._lock:
            self._in_use().declare(target, path, now=now)

    def clear_backoff(self, origin: str, *, now: float, end: Callable[[], float]) -> None:
        """End each backoff of an origin at the instant that `end` returns."""
        with self._lock:
            self._in_use().clear_backoff(origin, now=now, end=end)

    def forget(self, *, now: float) -> int:
        """Drop expired entries of the view; return their number. Rows are deleted when the file is full."""
        with self._lock:
            return self._in_use().forget(now=now)

    def reset(self) -> None:
        """Drop everything except opt-outs, for all processes."""
        with self._lock:
            self._in_use().reset()
            self._is_reset = True
            self._set_noted(_opt_outs(self._noted))
            self._changed.notify_all()

    def synchronize(self, timeout: float) -> bool:
        """Wait until the queued changes are in the file, and its rows in the view; return False after `timeout`."""
        with self._lock:
            self._in_use()
            wanted = self._rounds + 1 + self._is_in_file
            self._rounds_wanted = max(self._rounds_wanted, wanted)
            self._changed.notify_all()
            is_done = self._changed.wait_for(lambda: self._rounds >= wanted or self._phase is _Phase.CLOSED, timeout)
            return is_done and not self.trouble

    def close(self) -> None:
        """Write the queued changes, if that is possible now, and close the file for good; the view stays."""
        with self._lock:
            if self._phase is _Phase.OPEN:
                self._phase = _Phase.CLOSING
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(_CLOSE_TIMEOUT)
        with self._lock:
            self._leave("is not used any more, since this throttle was closed")

    def _open(self) -> None:
        """Read the file, so that the first request already knows what is in it."""
        try:
            self._file.open()
            self._take(self._file.exchange())
        except (sqlite3.Error, ConfigurationError, ValueError) as error:
            raise ConfigurationError(describe_error(self._file.path, error)) from error
        finally:
            self._file.close()  # so that a program which forks next has nothing open, however it forks

    def _in_use(self) -> MemoryStore:
        """Return the view, after starting the thread if necessary."""
        if self._thread is None and self._phase is _Phase.OPEN:
            thread = threading.Thread(target=self._run, name="headgate shared throttle", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # no more threads, or the interpreter is exiting
                self.trouble = f"{self._file.path} cannot be used now ({error})"
            else:
                self._thread = thread
        return self._view

    def _note(self, key: EntryKey, change: Change, entry: ThrottleEntry | None) -> None:
        """Queue a change of the view for the file."""
        if self._phase is _Phase.CLOSED or self.pending >= _MAX_PENDING:
            self.lost += 1
            return
        self._noted.append((key, _with_result(change, entry)))
        self.pending += 1
        self._changed.notify_all()

    def _set_noted(self, noted: list[tuple[EntryKey, Change]]) -> None:
        self._noted, self.pending = noted, len(noted)

    def _set_trouble(self, trouble: str) -> None:
        if self._phase is not _Phase.CLOSED:
            self.trouble = trouble

    def _run(self) -> None:
        interval = _REFRESH_INTERVAL
        is_last = False
        while not is_last:
            with self._lock:
                self._changed.wait_for(self._has_work, interval)
                is_last = self._phase is not _Phase.OPEN
                noted, is_reset = self._noted, self._is_reset
                self._noted, self._is_reset = [], False
                self._is_in_file = True
            interval = self._exchange(noted, is_reset=is_reset)
            with self._lock:
                if is_last:
                    self._file.close()
                self._is_in_file = False
                self._rounds += 1
                self._changed.notify_all()
        with self._lock:
            self._leave("is not used any more, since this throttle was closed")

    def _has_work(self) -> bool:
        """Return whether the thread has to use the file before its interval ends."""
        is_noted = bool(self._noted or self._is_reset) and not self.trouble
        return is_noted or self._phase is not _Phase.OPEN or self._rounds < self._rounds_wanted

    def _exchange(self, noted: list[tuple[EntryKey, Change]], *, is_reset: bool) -> float:
        """Write the queued changes and read those of others; return the seconds until the next exchange."""
        try:
            news = self._file.exchange(noted, reset=is_reset)
        except Exception as error:  # whatever is wrong with the file, requests go on
            self._put_back(noted, error, is_reset=is_reset)
            if is_locked(error):
                return _REFRESH_INTERVAL
            self._file.close()
            return _RETRY_INTERVAL
        self._take(news)
        with self._lock:
            self._set_noted(self._noted)
            self._set_trouble("")
        return _REFRESH_INTERVAL

    def _put_back(self, noted: list[tuple[EntryKey, Change]], error: Exception, *, is_reset: bool) -> None:
        """Queue changes again that could not be written, in front of newer ones."""
        with self._lock:
            before = _opt_outs(noted) if self._is_reset else noted
            self._set_noted([*before, *self._noted])
            self._is_reset |= is_reset
            self._set_trouble(describe_error(self._file.path, error))

    def _take(self, news: News) -> None:
        """Copy rows from the file into the view; into a new view if they are the whole content of the file."""
        if not news.is_whole:
            for start in range(0, len(news.rows), _ROWS_AT_ONCE):
                with self._lock:
                    self._put(self._view, news.rows[start : start + _ROWS_AT_ONCE])
            return
        view = self._new_view()
        for key, entry in news.rows:
            view.put(key, entry)
        with self._lock:
            self._move_noted(view)
            self._put(view, [(key, view.get(key)) for key, _ in self._noted])
            self._view = self._view if self._is_reset else view

    def _put(self, view: MemoryStore, rows: list[tuple[EntryKey, ThrottleEntry | None]]) -> None:
        """Copy rows into a view, and apply the queued changes for their keys again."""
        if self._is_reset:
            return  # the rows are about to be deleted
        for key, entry in rows:
            view.put(key, entry)
        if any(key.kind == BUCKET for key, _ in rows):
            self._move_noted(view)
        keys = {key for key, _ in rows}
        for key, change in self._noted:
            if key in keys:
                view.apply(key, change)

    def _move_noted(self, view: MemoryStore) -> None:
        """Move queued changes of targets to the buckets that other processes declared for them meanwhile."""
        for place, (key, change) in enumerate(self._noted):
            bucket = view.bucket(Target(key.origin, key.path), now=change.now) if key.kind == TARGET else None
            if bucket is not None:
                self._noted[place] = bucket.key, change
                view.put(key, None)

    def _leave(self, why: str) -> None:
        """Stop using the file for good; the view stays."""
        if self._phase is not _Phase.CLOSED:
            self.trouble = f"{self._file.path} {why}"
            self.lost += self.pending
            self._set_noted([])
            self._phase = _Phase.CLOSED
            self._changed.notify_all()
            atexit.unregister(self.close)

    def _before_fork(self) -> None:
        """Close the file, and keep the thread from using it, while the process is forked."""
        self._is_locked_for_fork = self._lock.acquire(timeout=_FORK_TIMEOUT)
        self._is_ready_for_fork = self._is_locked_for_fork and self._changed.wait_for(
            lambda: not self._is_in_file, _FORK_TIMEOUT
        )
        if self._is_ready_for_fork:
            self._file.close()

    def _after_fork(self, is_child: bool) -> None:  # noqa: FBT001 - called by FORK_HOOKS alone
        """Go on in the parent; in the child, with a new thread and without the changes that the parent will write."""
        if is_child:
            self._lock = threading.Lock()
            self._changed = threading.Condition(self._lock)
            was_in_use, self._thread = self._thread is not None, None
            self._is_in_file = self._is_reset = False
            with self._lock:
                self._set_noted([])
                if was_in_use and not self._is_ready_for_fork:
                    self._leave("was in use when this process was forked; use it after the fork only")
        elif self._is_locked_for_fork:
            self._lock.release()
        self._is_locked_for_fork = self._is_ready_for_fork = False


def _opt_outs(noted: list[tuple[EntryKey, Change]]) -> list[tuple[EntryKey, Change]]:
    """Return the changes that a reset keeps."""
    return [(key, change) for key, change in noted if key.kind == OPT_OUT]


def _with_result(change: Change, entry: ThrottleEntry | None) -> Change:
    """Return the change with the backoff it had in the view, so that the hold is nowhere shorter."""
    if isinstance(change, ResponseReceived) and change.makes_entry and entry is not None:
        return msgspec.structs.replace(change, backoff=entry.backoff)
    return change
