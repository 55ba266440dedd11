"""A throttle that several processes share by one SQLite file, so that what one of them learns all of them know."""

import os
import random
from collections.abc import Callable
from typing import Self

from headgate.agent.shared_store import SqliteStore
from headgate.throttle import Policy, Throttle


class SharedThrottle(Throttle):
    """A `Throttle` whose targets, buckets, opt-outs and retry budgets all processes with the same `path` share.

    ::

        with SharedThrottle("/var/lib/crawler/throttle.sqlite3") as throttle:
            courtesy = Courtesy(throttle=throttle)

    Eight processes that share one need three failures between them to leave a server alone, not three each. Each
    process answers at once from its own memory, and a thread of its own writes what it learns to the file and reads
    what the others wrote. So a hold is known to the process that caused it at once, and to the others within 0.1 s, as
    long as the processes get to run and the file can be used. The release time of a target is then the same for all,
    and never earlier than any of them had learned.

    The policy, the bounds and `draw` are each process's own, and so are `evicted`, `opt_outs_evicted` and user
    gestures: the requests that follow from a gesture are sent by the process that saw it. Instants are seconds since
    1970, by the clock that the processes have in common.

    **Event loops** are never blocked: no call waits for the file, except for making a `SharedThrottle`, `close` (also
    at the end of a `with` block) and `synchronize`. Call these before and after the event loop runs, or in a thread.

    **The file** is a SQLite database with a write-ahead log, on a local disk. It is created where there is none, for
    its owner alone, and stays when all processes have ended. It holds at most `max_targets` targets and buckets, as
    many origins' budgets, and `max_opt_outs` hosts; of processes with different bounds, each one that writes cuts it to
    its own. A process may be killed at any instant: the changes of its last moments are lost, those that it had not
    written, and nothing else. A power cut may lose the last few commits.

    **No request fails because of the file.** While it cannot be used (locked, damaged, a full disk), a process goes on
    with its memory and says why in `trouble`; it tries again every second, and then writes what it has learned
    meanwhile. A file that was deleted or replaced is noticed within 0.1 s: what was in it is forgotten, and a new one
    is created, or the one in its place is used. Delete a file with its -wal and -shm; to drop what fails, there is
    `reset`.

    Any number of threads may share one. Close it when it is not needed any more, unless the program ends. `os.fork` and
    `multiprocessing` are safe at any time. A program that is forked by other means (uWSGI) may make it before and use
    it after the fork; the child of a process that has used it already goes on alone, and so does a process after
    `close`.

    Raises `ConfigurationError`, which says what is wrong with the path, where the file cannot be used at the start,
    also for a file of another version of headgate.
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
        """Why the file cannot be used now, and what to do; empty while it can."""
        return self._shared.trouble

    @property
    def postponed(self) -> int:
        """Changes that are not in the file yet."""
        return self._shared.pending

    @property
    def lost(self) -> int:
        """Changes that the others will never see: more than 10,000 while the file could not be used."""
        return self._shared.lost

    def synchronize(self, timeout: float = 1.0) -> bool:
        """Wait until the others can see what was learned here, and this process what they wrote before the call.

        Returns False where the file cannot be used, or it took longer than `timeout` seconds. Not for event loops.
        """
        return self._shared.synchronize(timeout)

    def close(self) -> None:
        """Write what was learned, and close the file for good; waits for two seconds at most. Not for event loops."""
        self._shared.close()
