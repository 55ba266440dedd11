"""A throttle that several processes share by one SQLite file, so that what one of them learns all of them know.

The rules are the throttle's own, in memory. This file knows when that memory has to catch up with the file, what has to
be written down before anybody else decides on it, and what to do while the file cannot be used: go on, and catch up
later.
"""

import math
import os
import random
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, Self, TypeVar

from headgate.agent.sharing.file import PATIENCE, Forked, ThrottleFile
from headgate.agent.sharing.forking import FORKS
from headgate.agent.sharing.mirror import Mirror
from headgate.agent.sharing.opening import is_busy, sentence
from headgate.agent.sharing.rows import Position
from headgate.errors import ConfigurationError
from headgate.release import ASAP, NEVER
from headgate.throttle import Explanation, Policy
from headgate.throttle.fields import Headers

__all__ = ["SharedThrottle"]

T = TypeVar("T")

_TROUBLES: Final = (sqlite3.Error, ConfigurationError, Forked)

_REST: Final = 5.0
"""Seconds for which a file that could not be used is left alone; nobody waits more than a tenth of that for it."""
_LOOK: Final = 1.0
"""Seconds after which it is time to look again whether the file is still where it was."""
_MOST_POSTPONED: Final = 1_000


class SharedThrottle(Mirror):
    """A `Throttle` whose targets, buckets, opt-outs and retry budgets all processes with the same `path` share.

    ::

        with SharedThrottle("/var/tmp/crawler.throttle") as throttle:
            courtesy = Courtesy(throttle=throttle)

    What one process is told all of them know: eight need three failures between them, not three each. The answers are
    those of one throttle that was told everything in the order in which it was written down. Instants are seconds since
    1970, by the clock that the processes have in common. The policy, the bounds and `draw` are each process's own, and
    so are `evicted`, `opt_outs_evicted` and the user's gestures: a gesture is for the requests that follow from it, and
    they are sent where it was made.

    **The file** is a SQLite database with a WAL, on a local disk. It is made where there is none, for its owner alone,
    and stays when all processes have ended. It holds at most `max_targets` targets and buckets, as many origins'
    budgets, and `max_opt_outs` hosts, under names of at most 1,324 characters: a longer path goes on with a hash of
    itself, a longer host or bucket is not kept. Of processes with different bounds the narrowest wins. A process may be
    killed at any instant: what it was writing just then is lost, and nothing else. A power cut may cost the last few
    changes.

    **What it costs**: each call looks whether anything has changed (some microseconds); only what changes something is
    written, and the file is locked while it is. Another program's lock is waited for half a second at most.

    **Nothing here fails a request.** While the file cannot be used (locked, damaged, a full disk), this one goes on
    by itself and says why in `trouble`; it tries again every five seconds, and then tells the others what it was told
    meanwhile. A file that was deleted or replaced is noticed before anything is written, and within a second in any
    case: what was in it is forgotten, and what is in its place is used. Delete it with its -wal and -shm; to forget
    what fails there is `reset`.

    Any number of threads may share one. `os.fork` and `multiprocessing` are safe at any time. A program that is forked
    by other means (uWSGI) may make it before and use it after; the child of one that has used it already goes on by
    itself. So does whoever goes on after `close`, or outside of the `with`.

    Raises `ConfigurationError`, which says what is wrong with the path, where the file cannot be used at the start.
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
        retry_budget: int | None = None,
        coalesce: bool = False,
    ) -> None:
        super().__init__(
            policy,
            draw=draw,
            max_targets=max_targets,
            max_opt_outs=max_opt_outs,
            hold_localhost=hold_localhost,
            retry_budget=retry_budget,
            coalesce=coalesce,
        )
        self.trouble = ""
        """Why the file cannot be used now, and what next; empty while it can."""
        self.lost = 0
        """What the others will never be told: more than there was room for while the file could not be used."""
        self._file = ThrottleFile(path, self._limits)
        try:
            self._file.check()
        except (sqlite3.Error, ValueError) as error:
            raise ConfigurationError(sentence(self._file.path, error)) from error
        self._lock = threading.Lock()
        self._is_paused = False
        self._postponed: deque[Callable[[], object]] = deque()
        self._position: Position | None = None
        self._version = -1
        self._is_settled = False
        self._is_cut = False
        self._rest_until = ASAP
        self._look_at = ASAP
        FORKS.tell(self, SharedThrottle._pause, SharedThrottle._resume)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Tell the others what they have not been told, if that can be done now, and let go of the file for good."""
        with self._lock:
            if self._rest_until == NEVER:
                return
            if self._postponed:
                self._rest_until = ASAP
                self._catch_up()
            self._give_up(f"{self._file.path} is not used any more: this throttle was closed")
            with suppress(Forked):
                self._file.close()

    @property
    def postponed(self) -> int:
        """How much was noted here that the others have not been told yet, since the file could not be used."""
        return len(self._postponed)

    def __len__(self) -> int:
        with self._lock:
            self._catch_up()
            return super().__len__()

    def release_time(self, url: str, *, now: float, interactive: bool = False) -> float:
        """Give the instant before which `url` must not be asked for: see `Throttle.release_time`."""
        with self._lock:
            self._catch_up()
            return super().release_time(url, now=now, interactive=interactive)

    def response_received(
        self, url: str, status: int, headers: Headers, *, now: float, sent: float | None = None
    ) -> None:
        """Take note of a response to a request for `url`: see `Throttle.response_received`."""
        with self._lock:
            words = self._words(headers)
            self._catch_up()
            target = self._concerned(url, status, words, now=now)
            if target is not None:
                self._change(partial(super()._count, target, status, words, now=now, sent=sent))

    def malformed_body(self, url: str, status: int, *, now: float) -> None:
        """Take note that the body of a response already received proves broken: see `Throttle.malformed_body`."""
        with self._lock:
            target = self._target(url)
            if target is not None:
                self._change(partial(super()._recount, target, status, now=now))

    def user_gesture(self, *, now: float) -> None:
        """Take note that the user has just clicked or typed: nothing is held here for the next 3.5 seconds."""
        with self._lock:
            super().user_gesture(now=now)

    def clear_backoff(self, origin: str, *, now: float) -> None:
        """Let requests to an origin come back within ten seconds: see `Throttle.clear_backoff`."""
        with self._lock:
            self._catch_up()
            if self._is_backing_off(origin, now=now):
                self._change(partial(super().clear_backoff, origin, now=now))

    def reset(self) -> None:
        """Forget targets, buckets and spent retries in all processes, and keep the opt-outs."""
        with self._lock:
            self._change(super().reset)

    def forget(self, *, now: float) -> int:
        """Drop what can bear on no request any more; give how much."""
        with self._lock:
            self._catch_up()
            return self._change(partial(super().forget, now=now)) if self._store.size else 0

    def retries_left(self, url: str) -> float:
        """Say how many retries the origin of `url` may be sent now, by all processes together."""
        with self._lock:
            self._catch_up()
            return super().retries_left(url)

    def spend_retry(self, url: str) -> bool:
        """Charge the origin's budget for a retry of `url` that is being sent; False when it must not be."""
        with self._lock:
            self._catch_up()
            left = super().retries_left(url)
            if left == math.inf or left < 1:
                return left == math.inf
            return self._change(partial(super().spend_retry, url))

    def explain(self, url: str, *, now: float) -> Explanation:
        """Say what is known of `url` and why it is held or free."""
        with self._lock:
            self._catch_up()
            return super().explain(url, now=now)

    def _catch_up(self) -> None:
        """Know what the others do, as far as the file can be used."""
        instant = time.monotonic()
        if instant < self._rest_until:
            return
        try:
            if instant >= self._look_at:
                self._look_at = instant + _LOOK
                if self._file.is_moved():
                    self._file.close()
            version = self._file.version()
            if version == self._version and self._is_settled:
                return
            if self._postponed:
                self._write(lambda: None)
            else:
                with self._file.reading():
                    self._read()
            self._version = version
            self._settle()
        except _TROUBLES as error:
            self._rest(error)

    def _change(self, operation: Callable[[], T]) -> T:
        """Do what changes something, and write that down; or only do it, where the file cannot be used."""
        results: list[T] = []
        if time.monotonic() >= self._rest_until:
            try:
                self._write(lambda: results.append(operation()))
            except _TROUBLES as error:
                self._rest(error)
            else:
                self._settle()
                return results[0]
        result = results[0] if results else operation()
        self._position, self._is_settled = None, False
        if self._rest_until == NEVER or len(self._postponed) >= _MOST_POSTPONED:
            self.lost += 1
        else:
            self._postponed.append(operation)
        return result

    def _write(self, operation: Callable[[], object]) -> None:
        """Do something, after all that was postponed, to what is in the file at this instant."""
        with self._file.writing():
            self._read()
            if self._is_cut:
                self._file.trim()
                self._read()
            position = self._position
            assert position is not None
            self._position, self._is_settled = None, False  # until it is written
            with self.recording():
                for postponed in self._postponed:
                    postponed()
                operation()
            position = self._file.write(self.changes(), position)
        self._position = position
        self._postponed.clear()

    def _read(self) -> None:
        """Take in what has changed in the file since its position."""
        news = self._file.everything() if self._position is None else self._file.news(self._position)
        if news is None:
            return
        self._position = None  # until it is taken in
        if not self.take_in(news) and not news.is_whole:
            news = self._file.everything()
            self.take_in(news)
        self._position = news.position
        self._is_cut = news.is_cut or (self._is_cut and not news.is_whole)

    def _settle(self) -> None:
        """Take note that what is known here is what is in the file."""
        self._is_settled = True
        self.trouble = ""

    def _rest(self, error: Exception) -> None:
        """Leave the file alone for a while, or for good where nothing helps."""
        self._is_settled = False
        if isinstance(error, Forked):
            self._give_up(f"{self._file.path} was in use when this process was forked; use it after the fork only")
            return
        self.trouble = sentence(self._file.path, error)
        self._rest_until = time.monotonic() + _REST
        if not is_busy(error):
            self._file.close()

    def _give_up(self, trouble: str) -> None:
        self.trouble = trouble
        self._rest_until = NEVER
        self.lost += len(self._postponed)
        self._postponed.clear()

    def _pause(self) -> None:
        """Let go of the file before a fork."""
        self._is_paused = self._lock.acquire(timeout=4 * PATIENCE)
        if self._is_paused:
            with suppress(Forked):
                self._file.close()

    def _resume(self, is_child: bool) -> None:  # noqa: FBT001 - for nobody else
        """Go on after a fork."""
        if not is_child:
            if self._is_paused:
                self._lock.release()
            return
        self._lock = threading.Lock()
        self._postponed.clear()  # the parent will tell
        if not self._is_paused:  # another thread may have been at it
            self._position, self._is_settled = None, False
