"""A bundle's file at one time: opened, with its metadata; responses are read when they are requested.

The file is read and never mapped (see `headgate.origin.file_slice`), and of a response only the head: payloads go from
the file to the agent.
"""

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from email.utils import formatdate
from functools import cached_property
from typing import TypeVar

from headgate.bundle.api import open_bundle
from headgate.bundle.format.incremental import Parser
from headgate.bundle.format.response import response_parser
from headgate.bundle.model import Location, Profile, ResponseHead, VariantSet
from headgate.bundle.reading.mi_decoding import DecodedContent, mi_decoding_parser
from headgate.errors import BundleError, ResponseError
from headgate.http.conditional import Validators
from headgate.origin.bundle.mi_content import MiContent
from headgate.origin.bundle.representation import NOSNIFF, Representation
from headgate.origin.file_slice import BodySource, FileSlice, FileState, OpenFile

_Result = TypeVar("_Result")

_VERSIONS = {"draft-01": b"1", "b1": b"b1", "b2": b"b2"}
"""The media type's parameter v: what the bundle itself says (bundled-exchanges-01, 3.3 step 7 and 6.1)."""

_PIECE = 1 << 20

_LONG = 1 << 20
"""Bytes of a response from which on it is verified in advance."""


class BundleSnapshot:
    """A bundle's file at one time; raises `BundleError`, and `OSError` for a file that cannot be read."""

    def __init__(self, path: str | os.PathLike[str], *, profile: Profile = "strict") -> None:
        self.profile = profile
        self.file = OpenFile(path)
        with open_bundle(self.file.raw, profile=profile) as bundle:
            self._start, self.metadata = bundle.start, bundle.metadata
        self._checked: dict[Location, DecodedContent | ResponseError] = {}

    @property
    def state(self) -> FileState:
        """The file as it was when it was opened."""
        return self.file.state

    @property
    def is_whole(self) -> bool:
        """Whether the file has all bytes of the bundle."""
        return self._start + self.metadata.length <= self.file.size

    @cached_property
    def digest(self) -> bytes:
        """A digest of the file, which is read as a whole on first use.

        Not the modification time: files of reproducible builds all have the same.
        """
        digest = hashlib.sha256()
        for offset in range(0, self.file.size, _PIECE):
            digest.update(self.file.read(offset, min(_PIECE, self.file.size - offset)))
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

    def head(self, location: Location) -> ResponseHead:
        """Load a response up to its payload (3.4); raises `ResponseError`, and `OSError` as `OpenFile.read` does."""
        return self._run(response_parser(location, profile=self.profile, fallback_url=self.metadata.primary_url))

    def content(self, location: Location, head: ResponseHead) -> tuple[dict[str, str], BodySource] | None:
        """Return the headers and content of the response at a location, decoded if it was signed.

        None if the payload is cut. Raises `ResponseError` for one that does not match its digest, and `OSError` as
        `OpenFile.read` does.
        """
        part = FileSlice(self.file, self._start + head.payload.offset, head.payload.length)
        if part.offset + part.length > self.file.size:
            return None
        found = self._checked.get(location)
        if found is None:
            found = self._check(head)
            if location.length >= _LONG:
                self._checked[location] = found
        if isinstance(found, ResponseError):
            raise found.with_traceback(None)
        if not found.layout.record_size:
            return found.headers, part
        return found.headers, MiContent(part, found.layout, 0, found.layout.length)

    def prepare(self) -> None:
        """Compute the digest and verify long responses in advance; reads the file twice at most."""
        _ = self.digest
        left = self.file.size
        for location in dict.fromkeys(found for found in self._locations() if found.length >= _LONG):
            left -= location.length
            if left < 0:
                return  # The responses overlap: verifying all of them could take any time.
            with suppress(ResponseError):
                self.content(location, self.head(location))

    def etag(self, location: Location) -> bytes:
        """Return an entity tag for a response without one: the file's digest and the location."""
        return b'"%b-%x"' % (self.digest, location.offset)

    def _check(self, head: ResponseHead) -> DecodedContent | ResponseError:
        try:
            return self._run(
                mi_decoding_parser(head.stored_headers, head.payload, fallback_url=self.metadata.primary_url)
            )
        except ResponseError as error:
            return error

    def _locations(self) -> Iterator[Location]:
        for found in self.metadata.requests.values():
            yield from found.locations.in_order() if isinstance(found, VariantSet) else (found,)

    def _run(self, parser: Parser[_Result]) -> _Result:
        """Drive a parser; offsets in its refusals are then those of the file."""
        try:
            need = next(parser)
            while True:
                offset = self._start + need.offset
                length = max(0, min(need.length, self.file.size - offset))
                need = parser.send(self.file.read(offset, length))
        except StopIteration as done:
            result: _Result = done.value
            return result
        except BundleError as error:
            error.offset += self._start
            raise
