"""Whatever must not be open across a fork lets go of it before, and may have it again after, on both sides.

SQLite's locks belong to a process, and it takes a forked one for the same: a connection that both sides had would
damage the file sooner or later, and so would a second one in the child. This file knows nothing of either.
"""

import os
import threading
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

__all__ = ["FORKS"]


class _Forks:
    """Those to be told of a fork that Python makes, for as long as they live; for any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watchers: WeakKeyDictionary[Any, tuple[Callable[[Any], None], Callable[[Any, bool], None]]]
        self._watchers = WeakKeyDictionary()

    def tell(self, watcher: Any, before: Callable[[Any], None], after: Callable[[Any, bool], None]) -> None:
        """Call `before` with the watcher before each fork, and `after` also with whether this is the child."""
        with self._lock:
            self._watchers[watcher] = before, after

    def before(self) -> None:
        """Tell all, the last one first, as it may have one before it in use; none can be added until it is over."""
        self._lock.acquire()
        for watcher, (before, _) in reversed(list(self._watchers.items())):
            before(watcher)

    def after(self, *, is_child: bool) -> None:
        """Tell all that it is over."""
        if is_child:
            self._lock = threading.Lock()  # a fork that Python did not make has not taken it
        else:
            self._lock.release()
        for watcher, (_, after) in list(self._watchers.items()):
            after(watcher, is_child)


# The one list there can be, as there is one process: it holds nothing that anybody would have to know of.
FORKS: Final = _Forks()
os.register_at_fork(
    before=FORKS.before,
    after_in_parent=lambda: FORKS.after(is_child=False),
    after_in_child=lambda: FORKS.after(is_child=True),
)
