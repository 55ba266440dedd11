"""One state of a bundle's file: opened, its metadata loaded, its responses read when they are asked for.

The file is read and never mapped (see `headgate.origin.part`), and of a response only the head: payloads go from the
file to the agent.
"""

import hashlib
import os
import time
from email.utils import formatdate
from functools import cached_property
from typing import cast

from headgate.bundle.metadata import Location, Metadata, Profile
from headgate.bundle.parser import ResponseHead, response_parser
from headgate.bundle.reader import open_bundle
from headgate.errors import FormatError
from headgate.http.conditional import Validators
from headgate.origin.bundle.representation import NOSNIFF, Representation
from headgate.origin.part import FileState, OpenFile, Part

__all__ = ["Edition"]

_VERSIONS = {"draft-01": b"1", "b1": b"b1", "b2": b"b2"}
"""The media type's parameter v: what the bundle itself says (bundled-exchanges-01, 3.3 step 7 and 6.1)."""

_NOWHERE = "https://bundle.invalid/"
"""What the URLs of a b2 bundle are relative to when it gives no base itself: nobody's origin (RFC 6761, 6.4)."""

_PIECE = 1 << 20


class Edition:
    """See the module. Raises `BundleError` for what is no bundle, `OSError` for what cannot be read."""

    def __init__(self, path: str | os.PathLike[str], *, profile: Profile = "strict") -> None:
        self.profile = profile
        self.file = OpenFile(path)
        self._start, self.metadata = self._load_metadata()

    @property
    def state(self) -> FileState:
        """The file as it was when it was opened."""
        return self.file.state

    @property
    def is_whole(self) -> bool:
        """Whether the file has every byte that the bundle speaks of."""
        return self._start + self.metadata.length <= self.file.size

    @cached_property
    def digest(self) -> bytes:
        """What changes whenever a byte of the file does; the first to ask waits until all of it has been read.

        Not the time it was modified at: files unpacked by tools that make builds reproducible all have the same.
        """
        digest = hashlib.sha256()
        for offset in range(0, self.file.size, _PIECE):
            digest.update(self.file.read(offset, min(_PIECE, self.file.size - offset)))
        return digest.hexdigest()[:32].encode()

    @cached_property
    def representation(self) -> Representation:
        """Give the bundle itself, as it is served (3.2)."""
        # 9110 8.8.2.1: nothing is modified in the future.
        modified = min(self.state.modified // 10**9, int(time.time()))
        etag = b'"%b"' % self.digest
        fields = (
            (b"content-type", b"application/webbundle;v=" + _VERSIONS[self.metadata.version]),
            NOSNIFF,
            (b"etag", etag),
            (b"last-modified", formatdate(modified, usegmt=True).encode()),
        )
        return Representation(200, fields, Validators(etag, modified), Part(self.file, 0, self.file.size))

    def head(self, location: Location) -> ResponseHead:
        """Load a response up to its payload (3.4); raises `ResponseError`, and `OSError` as `OpenFile.read` does."""
        parser = response_parser(location, profile=self.profile, fallback_url=self.metadata.primary_url)
        need = next(parser)
        while True:
            offset = self._start + need.offset
            length = max(0, min(need.length, self.file.size - offset))
            try:
                need = parser.send(self.file.read(offset, length))
            except StopIteration as done:
                return cast("ResponseHead", done.value)

    def payload(self, head: ResponseHead) -> Part | None:
        """Give the payload of a response; None when it is cut."""
        part = Part(self.file, self._start + head.payload.offset, head.payload.length)
        return part if part.offset + part.length <= self.file.size else None

    def etag(self, location: Location) -> bytes:
        """Give the entity tag of a response that has none: that of the file, and where in it the response is."""
        return b'"%b-%x"' % (self.digest, location.offset)

    def _load_metadata(self) -> tuple[int, Metadata]:
        try:
            return self._open(None)
        except FormatError:
            try:
                return self._open(_NOWHERE)
            except FormatError:
                pass
            raise

    def _open(self, base_url: str | None) -> tuple[int, Metadata]:
        with open_bundle(self.file.raw, profile=self.profile, base_url=base_url) as bundle:
            return bundle.start, bundle.metadata
