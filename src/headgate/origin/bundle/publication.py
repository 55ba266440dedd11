"""A bundle at a path of the file system, and what becomes of it: editions that follow one another."""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from headgate.bundle.model import Profile
from headgate.errors import BundleError
from headgate.origin.bundle.edition import Edition
from headgate.origin.file_slice import FileState, file_state

__all__ = ["Publication"]

_EVERY = 1.0
"""Seconds between two looks at the file."""


class Publication:
    """The newest edition of the bundle at `path` that could be read.

    A replaced file is noticed within a second of being asked for (`look`), and loaded in the background: no request
    waits for it. One that cannot be read leaves the edition in force, and `complain` is called once. Raises
    `BundleError` and `OSError` where the first one cannot be read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        profile: Profile = "strict",
        complain: Callable[[str], None] = lambda _sentence: None,
    ) -> None:
        self.path = os.fspath(path)
        """As given: what it is called in sentences."""
        self.absolute = os.path.abspath(path)  # noqa: PTH100 - no look at the file system
        self.profile: Profile = profile
        self.edition = _opened(self.absolute, profile)
        """What is served now."""
        self._complain = complain
        self._seen: FileState | None = self.edition.state
        self._complaint = ""
        self._look_at = 0.0
        self._loading: asyncio.Task[None] | None = None

    @property
    def is_current(self) -> bool:
        """Whether the file at the path is the one that is served."""
        return _state(self.absolute) == self.edition.state

    def look(self, *, at_once: bool = False) -> None:
        """Look at the file, at most once a second unless `at_once`, and begin to load it if it is another.

        Needs a running event loop. One load is under way at a time.
        """
        now = time.monotonic()
        if self._load_under_way() is not None or (now < self._look_at and not at_once):
            return
        self._look_at = now + _EVERY
        state = _state(self.absolute)
        if state != self._seen:
            self._loading = asyncio.get_running_loop().create_task(self._load(state))

    async def renew(self, *, at_once: bool = False) -> None:
        """Look at the file, and wait for the load that is under way, if any; a cancelled wait does not end the load."""
        self.look(at_once=at_once)
        loading = self._load_under_way()
        if loading is not None:
            await asyncio.shield(loading)

    def _load_under_way(self) -> "asyncio.Task[None] | None":
        loading = self._loading
        # A task whose loop was closed under it never ends.
        if loading is None or loading.done() or loading.get_loop().is_closed():
            return None
        return loading

    async def _load(self, state: FileState | None) -> None:
        """Take the file as it is now; a thread reads it. `state` is what was seen of it before."""
        try:
            edition = await _opened_in_background(self.absolute, self.profile)
        except BundleError as error:
            self._seen = state
            self._refuse(str(error))
        except (OSError, MemoryError, RuntimeError) as error:
            # Not seen, so that it is tried again: memory, threads or descriptors may be available later.
            self._refuse(getattr(error, "strerror", None) or str(error) or type(error).__name__)
        else:
            self._seen = edition.state
            self._take(edition)

    def _take(self, edition: Edition) -> None:
        if self.edition.is_whole and not edition.is_whole:
            # It is being written, or writing it was given up.
            self._refuse("the file ends before the bundle does")
            return
        self.edition, self._complaint = edition, ""

    def _refuse(self, reason: str) -> None:
        if reason != self._complaint:
            self._complaint = reason
            self._complain(f"{self.path}: {reason}; what was served before is served on")


def _opened(path: str, profile: Profile) -> Edition:
    edition = Edition(path, profile=profile)
    edition.prepare()
    return edition


async def _opened_in_background(path: str, profile: Profile) -> Edition:
    """Do so in a daemon thread: unlike an executor's, it does not keep the process from ending while it hashes."""
    opened: Future[Edition] = Future()

    def load() -> None:
        opened.set_running_or_notify_cancel()  # from here on it cannot be cancelled, and its result can be set
        try:
            opened.set_result(_opened(path, profile))
        except BaseException as error:
            opened.set_exception(error)

    threading.Thread(target=load, name="headgate-bundle-load", daemon=True).start()
    return await asyncio.wrap_future(opened)


def _state(path: str) -> FileState | None:
    try:
        return file_state(path)
    except OSError:
        return None
