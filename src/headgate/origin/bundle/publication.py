"""A bundle at a path of the file system, and what becomes of it: editions that follow one another."""

import asyncio
import os
import time
from collections.abc import Callable

from headgate.bundle.metadata import Profile
from headgate.errors import BundleError
from headgate.origin.bundle.edition import Edition
from headgate.origin.part import FileState, file_state

__all__ = ["Publication"]

_EVERY = 1.0
"""Seconds between two looks at the file."""


class Publication:
    """The newest edition of the bundle at `path` that could be read.

    A file that is replaced is noticed within a second of being asked for (`renew`); one that cannot be read leaves
    the edition in force and is told to `complain`, once. Raises `BundleError` and `OSError` when there is no first one.
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
        self._looking = False

    @property
    def is_current(self) -> bool:
        """Whether the file at the path is the one that is served."""
        return _state(self.absolute) == self.edition.state

    async def renew(self, *, at_once: bool = False) -> None:
        """Look whether there is another edition, at most once a second unless `at_once`; a thread reads it."""
        now = time.monotonic()
        if self._looking or (now < self._look_at and not at_once):
            return
        self._look_at = now + _EVERY
        state = _state(self.absolute)
        if state == self._seen:
            return
        self._looking = True
        try:
            edition = await asyncio.to_thread(_opened, self.absolute, self.profile)
        except (BundleError, OSError) as error:
            self._refuse(getattr(error, "strerror", None) or str(error))
        else:
            self._take(edition)
        finally:
            self._seen, self._looking = state, False

    def _take(self, edition: Edition) -> None:
        if self.edition.is_whole and not edition.is_whole:
            # Somebody writes it, or stopped writing it.
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


def _state(path: str) -> FileState | None:
    try:
        return file_state(path)
    except OSError:
        return None
