"""A throttle that several processes share through a SQLite file."""

import os
import random
from collections.abc import Callable
from typing import Self

from headgate.agent.shared_store import SqliteStore
from headgate.errors import ConfigurationError
from headgate.throttle import Policy, Throttle


class SharedThrottle(Throttle):
    """A `Throttle` whose targets, buckets, opt-outs and retry budgets all processes with the same `path` share.

    ::

        with SharedThrottle("/var/lib/crawler/throttle.sqlite3") as throttle:
            courtesy = Courtesy(throttle=throttle)

    Three failures are enough for eight processes that share one, not three for each process. A process answers from its
    own memory; a thread writes what it learns to the file and reads what the others wrote. So a hold is known at once
    to the process that caused it, and to the others within 0.1 s, while the processes run and the file can be used.
    The release time of a target is then the same for all, and never earlier than any of them had learned.

    The policy, the bounds, `draw`, the counters `evicted` and `opt_outs_evicted`, and user gestures are separate for
    each process. Instants are seconds since 1970, by the clock that the processes have in common.

    **Event loops** are not blocked: only creating a `SharedThrottle`, `close` (also at the end of a `with` block) and
    `synchronize` wait for the file. Call these before or after the event loop runs, or in a thread.

    **The file** is a SQLite database with a write-ahead log, on a local disk. It is created if missing, for its owner
    only, and is not deleted. It contains at most `max_targets` targets and buckets, as many origins' budgets, and
    `max_opt_outs` hosts; if processes have different bounds, each one that writes applies its own. A process that is
    killed loses only the changes of its last moments; a power cut may lose the last few commits.

    **No request fails because of the file.** While the file cannot be used (locked, damaged, disk full), a process uses
    its memory and explains why in `trouble`. It tries again every second, and then writes what it has learned
    meanwhile. A deleted or replaced file is noticed within 0.1 s: the old content is dropped, and a new file is created
    or the new one is used. Delete a file together with its -wal and -shm; to drop all failures, call `reset`.

    Any number of threads can share one. Close it when it is no longer needed, unless the program ends. `os.fork` and
    `multiprocessing` are safe at any time. A program that is forked in another way (uWSGI) may create it before the
    fork and use it afterwards; the child of a process that had already used it continues without the file, and so does
    a process after `close`.

    Raises `ConfigurationError`, which describes the problem with the path, if the file cannot be used at the start, and
    for a file of another version of headgate.
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
        if not isinstance(path, (str, os.PathLike)):
            raise ConfigurationError(f"path must be the path of a file that the processes share, got {path!r:.80}")
        Policy.check(policy)  # the store is created before the throttle
        self._shared = SqliteStore(path, policy, max_targets=max_targets, max_opt_outs=max_opt_outs)
        super().__init__(
            policy,
            draw=draw,
            hold_localhost=hold_localhost,
            retry_budget=retry_budget,
            coalesce=coalesce,
            store=self._shared,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def trouble(self) -> str:
        """Why the file cannot be used now, and what to do; empty if it can."""
        return self._shared.trouble

    @property
    def postponed(self) -> int:
        """Changes that are not in the file yet."""
        return self._shared.pending

    @property
    def lost(self) -> int:
        """Changes that were dropped, because more than 10,000 were waiting while the file could not be used."""
        return self._shared.lost

    def synchronize(self, timeout: float = 1.0) -> bool:
        """Wait until the file has this process's changes, and this process the changes of others before the call.

        Returns False if the file cannot be used, or it takes longer than `timeout` seconds. Not for event loops.
        """
        return self._shared.synchronize(timeout)

    def close(self) -> None:
        """Write the last changes, and close the file for good; waits two seconds at most. Not for event loops."""
        self._shared.close()
