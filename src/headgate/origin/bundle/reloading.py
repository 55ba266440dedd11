"""A bundle at a path, reloaded when its file is replaced."""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from headgate.bundle.model import Profile
from headgate.errors import BundleError
from headgate.origin.bundle.snapshot import BundleSnapshot
from headgate.origin.file_slice import FileState, file_state

_EVERY = 1.0
"""Seconds between two checks of the file."""


class ReloadingBundle:
    """The newest snapshot of the bundle at `path` that could be read.

    `check` notices a replaced file within a second, and loads it in the background: no request waits for it. If it
    cannot be read, the snapshot stays and `complain` is called once. Raises `BundleError` and `OSError` where the first
    one cannot be read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        profile: Profile = "strict",
        complain: Callable[[str], None] = lambda _sentence: None,
    ) -> None:
        self.path = os.fspath(path)
        """As given, for messages."""
        self.absolute = os.path.abspath(path)  # noqa: PTH100 - no look at the file system
        self.profile: Profile = profile
        self.snapshot = _open(self.absolute, profile)
        """The current snapshot."""
        self._complain = complain
        self._seen: FileState | None = self.snapshot.state
        self._complaint = ""
        self._check_at = 0.0
        self._loading: asyncio.Task[None] | None = None

    @property
    def is_current(self) -> bool:
        """Whether the file at the path is the one that is served."""
        return _state(self.absolute) == self.snapshot.state

    def check(self, *, at_once: bool = False) -> None:
        """Check the file, at most once a second unless `at_once`, and begin to load it if it was replaced.

        Needs a running event loop. One load runs at a time.
        """
        now = time.monotonic()
        if self._load_under_way() is not None or (now < self._check_at and not at_once):
            return
        self._check_at = now + _EVERY
        state = _state(self.absolute)
        if state != self._seen:
            self._loading = asyncio.get_running_loop().create_task(self._load(state))

    async def renew(self, *, at_once: bool = False) -> None:
        """Check the file, and wait for the running load, if any; cancelling the wait does not cancel the load."""
        self.check(at_once=at_once)
        loading = self._load_under_way()
        if loading is not None:
            await asyncio.shield(loading)

    def _load_under_way(self) -> "asyncio.Task[None] | None":
        loading = self._loading
        # A task whose loop was closed never ends.
        if loading is None or loading.done() or loading.get_loop().is_closed():
            return None
        return loading

    async def _load(self, state: FileState | None) -> None:
        """Load the file in a thread; `state` is that of the file when it was checked."""
        try:
            snapshot = await _open_in_background(self.absolute, self.profile)
        except BundleError as error:
            self._seen = state
            self._refuse(str(error))
        except (OSError, MemoryError, RuntimeError) as error:
            # To be tried again: memory, threads or descriptors may be available later.
            self._refuse(getattr(error, "strerror", None) or str(error) or type(error).__name__)
        else:
            self._seen = snapshot.state
            self._take(snapshot)

    def _take(self, snapshot: BundleSnapshot) -> None:
        if self.snapshot.is_whole and not snapshot.is_whole:
            # It is being written, or writing it failed.
            self._refuse("the file ends before the bundle does")
            return
        self.snapshot, self._complaint = snapshot, ""

    def _refuse(self, reason: str) -> None:
        if reason != self._complaint:
            self._complaint = reason
            self._complain(f"{self.path}: {reason}; the bundle loaded before is still served")


def _open(path: str, profile: Profile) -> BundleSnapshot:
    snapshot = BundleSnapshot(path, profile=profile)
    snapshot.prepare()
    return snapshot


async def _open_in_background(path: str, profile: Profile) -> BundleSnapshot:
    """Open a snapshot in a daemon thread, which unlike an executor's does not delay the end of the process."""
    opened: Future[BundleSnapshot] = Future()

    def load() -> None:
        opened.set_running_or_notify_cancel()  # now it cannot be cancelled, and its result can be set
        try:
            opened.set_result(_open(path, profile))
        except BaseException as error:
            opened.set_exception(error)

    threading.Thread(target=load, name="headgate-bundle-load", daemon=True).start()
    return await asyncio.wrap_future(opened)


def _state(path: str) -> FileState | None:
    try:
        return file_state(path)
    except OSError:
        return None
