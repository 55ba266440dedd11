"""Calls objects before and after each fork, for as long as they live.

SQLite does not notice that its process was forked: a connection that both parent and child have can damage the file,
and so can a second connection in the child. A lock that another thread holds during the fork stays locked in the child.
"""

import os
import threading
from typing import Any, Final
from weakref import WeakKeyDictionary


class _ForkHooks:
    """The objects to call, in any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: WeakKeyDictionary[Any, None] = WeakKeyDictionary()

    def register(self, owner: Any) -> None:
        """Call `owner.before_fork()` before each fork, and `owner.after_fork(is_child=…)` after it."""
        with self._lock:
            self._owners[owner] = None

    def before(self) -> None:
        """Call all, the newest first, since it may use an older one; none can be added until `after`."""
        self._lock.acquire()
        for owner in reversed(list(self._owners)):
            owner.before_fork()

    def after(self, *, is_child: bool) -> None:
        """Call all after the fork."""
        if is_child:
            self._lock = threading.Lock()  # a fork that Python did not make has not taken it
        else:
            self._lock.release()
        for owner in list(self._owners):
            owner.after_fork(is_child=is_child)


# One for the process, because functions cannot be removed from `os.register_at_fork`.
FORK_HOOKS: Final = _ForkHooks()
os.register_at_fork(
    before=FORK_HOOKS.before,
    after_in_parent=lambda: FORK_HOOKS.after(is_child=False),
    after_in_child=lambda: FORK_HOOKS.after(is_child=True),
)
