"""A bundle's file at one time, and the newest readable file at a path.

A snapshot has the metadata; responses are read when they are requested. The file is read and never mapped (see
`headgate.bundle.files.open_file`), and of a response only the head: payloads go from the file to the agent.
"""

import asyncio
import hashlib
import os
import time
from collections.abc import Callable
from contextlib import suppress
from email.utils import formatdate
from functools import cached_property, partial

from msgspec import Struct

from headgate.bundle.files.open_file import FileState, OpenFile, file_state
from headgate.bundle.model import Location, Profile
from headgate.bundle.reader import Bundle, DecodedResponse
from headgate.errors import BundleError, ResponseError, reason_of
from headgate.fetch.pace import in_daemon_thread
from headgate.http.conditional import Validators
from headgate.origin.bundle.representation import NOSNIFF, Representation
from headgate.origin.response import BodySource, FileSlice

_VERSIONS = {"draft-01": b"1", "b1": b"b1", "b2": b"b2"}
"""The media type's parameter v: what the bundle itself says (bundled-exchanges-01, 3.3 step 7 and 6.1)."""
_READ_SIZE = 1 << 20
_MIN_PREPARED = 1 << 20
"""Bytes of a response from which on it is verified in advance."""
_CHECK_INTERVAL = 1.0
"""Seconds between two checks of the file."""


class MiContent(Struct, frozen=True):
    """The bytes from `start` to before `stop` of the content of a signed response; a `BodySource`."""

    response: DecodedResponse
    start: int
    stop: int

    @property
    def length(self) -> int:
        """Bytes."""
        return self.stop - self.start

    def read(self, start: int = 0, stop: int | None = None) -> bytes:
        """Read a part of it, or all; raises `OSError` as `OpenFile` does."""
        end = self.stop if stop is None else self.start + stop
        return b"".join(self.response.pieces(self.start + start, end))

    def cut(self, start: int, stop: int) -> "MiContent":
        """Return the part from `start` to before `stop`."""
        return MiContent(self.response, self.start + start, self.start + stop)


class BundleSnapshot:
    """A bundle's file at one time; raises `BundleError`, and `OSError` for a file that cannot be read."""

    def __init__(self, path: str | os.PathLike[str], *, profile: Profile = "strict") -> None:
        self.profile = profile
        self.file = OpenFile(path)
        self.state = self.file.state
        """The file as it was when it was opened."""
        self._bundle = Bundle(self.file, profile=profile, from_end=False, base_url=None)
        self.metadata = self._bundle.metadata
        self._checked: dict[Location, DecodedResponse | ResponseError] = {}

    @property
    def is_whole(self) -> bool:
        """Whether the file has all bytes of the bundle."""
        return self._bundle.start + self.metadata.length <= self.file.size

    @cached_property
    def digest(self) -> bytes:
        """A digest of the file, which is read as a whole on first use.

        Not the modification time: files of reproducible builds all have the same.
        """
        digest = hashlib.sha256()
        for offset in range(0, self.file.size, _READ_SIZE):
            digest.update(self.file.read(offset, min(_READ_SIZE, self.file.size - offset)))
        return digest.hexdigest()[:32].encode()

    @cached_property
    def representation(self) -> Representation:
        """The bundle itself, as it is served (3.2)."""
        # 9110 8.8.2.1: nothing is modified in the future.
        modified = min(self.state.modified // 10**9, int(time.time()))
        etag = b'"%b"' % self.digest
        fields = (
            (b"content-type", b"application/webbundle;v=" + _VERSIONS[self.metadata.version]),
            NOSNIFF,
            (b"etag", etag),
            (b"last-modified", formatdate(modified, usegmt=True).encode()),
        )
        return Representation(200, fields, Validators(etag, modified), FileSlice(self.file, 0, self.file.size))

    def response(self, location: Location) -> tuple[int, dict[str, str], BodySource]:
        """Return status, headers and content of the response at a location, decoded if it was signed.

        Raises `ResponseError` for one that is malformed, cut or does not match its digest, and `OSError` as `OpenFile`.
        """
        found = self._checked.get(location) or self._check(location)
        if isinstance(found, ResponseError):
            raise found.with_traceback(None)
        is_coded = found.decoded.layout.record_size > 0
        part = FileSlice(self.file, self._bundle.start + found.payload.offset, found.payload.length)
        return found.status, found.decoded.headers, MiContent(found, 0, found.length) if is_coded else part

    def prepare(self) -> None:
        """Compute the digest and verify long responses in advance; reads the file twice at most."""
        _ = self.digest
        left = self.file.size
        for location in (found for found, _ in self.metadata.in_file_order() if found.length >= _MIN_PREPARED):
            left -= location.length
            if left < 0:
                return  # The responses overlap: verifying all of them could take any time.
            with suppress(ResponseError):
                self.response(location)

    def etag(self, location: Location) -> bytes:
        """Return an entity tag for a response without one: the file's digest and the location."""
        return b'"%b-%x"' % (self.digest, location.offset)

    def _check(self, location: Location) -> "DecodedResponse | ResponseError":
        try:
            found: DecodedResponse | ResponseError = self._bundle.decode(location)
        except ResponseError as error:
            found = error
        if location.length >= _MIN_PREPARED:
            self._checked[location] = found
        return found


class ReloadingBundle:
    """The newest snapshot of the bundle at `path` that could be read.

    `check` notices a replaced file within a second, and loads it in the background: no request waits for it. If it
    cannot be read, the snapshot stays and `log` is called once. Raises `BundleError` and `OSError` where the first
    one cannot be read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        profile: Profile = "strict",
        log: Callable[[str], None] = lambda _message: None,
    ) -> None:
        self.path = os.fspath(path)
        """As given, for messages."""
        self.absolute = os.path.abspath(path)  # noqa: PTH100 - without access to the file system
        self.profile: Profile = profile
        self.snapshot = _open(self.absolute, profile)
        """The current snapshot."""
        self._log = log
        self._seen: FileState | None = self.snapshot.state
        self._logged = ""
        self._check_at = 0.0
        self._loading: asyncio.Task[None] | None = None

    @property
    def is_current(self) -> bool:
        """Whether the file at the path is the one that is served."""
        return file_state(self.absolute) == self.snapshot.state

    def check(self, *, at_once: bool = False) -> None:
        """Check the file, at most once a second unless `at_once`, and begin to load it if it was replaced.

        Needs a running event loop. One load runs at a time.
        """
        now = time.monotonic()
        if self._load_under_way() is not None or (now < self._check_at and not at_once):
            return
        self._check_at = now + _CHECK_INTERVAL
        state = file_state(self.absolute)
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
            opened = in_daemon_thread(partial(_open, self.absolute, self.profile), "headgate-bundle-load")
            snapshot = await asyncio.wrap_future(opened)
        except BundleError as error:
            self._seen = state
            self._refuse(str(error))
        except (OSError, MemoryError, RuntimeError) as error:
            # To be tried again: memory, threads or descriptors may be available later.
            self._refuse(reason_of(error) or type(error).__name__)
        else:
            self._seen = snapshot.state
            if self.snapshot.is_whole and not snapshot.is_whole:
                # It is being written, or writing it failed.
                self._refuse("the file ends before the bundle does")
            else:
                self.snapshot, self._logged = snapshot, ""

    def _refuse(self, reason: str) -> None:
        if reason != self._logged:
            self._logged = reason
            self._log(f"{self.path}: {reason}; the bundle loaded before is still served")


def _open(path: str, profile: Profile) -> BundleSnapshot:
    snapshot = BundleSnapshot(path, profile=profile)
    snapshot.prepare()
    return snapshot
