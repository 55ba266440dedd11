"""A bundle in bytes that are elsewhere, and come in parts: which to ask for, which to keep, and what they say.

Nothing here sends anything: what a parser needs is turned into parts to ask for (`Ask`), by generators that both kinds
of client drive. No part is asked for that the server has not said it has, whatever lengths the bundle claims.
"""

from collections.abc import Generator
from typing import Final, TypeAlias, TypeVar

from headgate.agent.bundle.parts import Ask, Resource
from headgate.bundle.format.constants import TRAILER_SIZE
from headgate.bundle.format.incremental import Parser, ReadRequest
from headgate.bundle.format.integrity_block import integrity_block_parser
from headgate.bundle.format.metadata import metadata_parser
from headgate.bundle.format.preamble import trailer_parser
from headgate.bundle.model import Location, Metadata, Profile
from headgate.errors import BundleError, FetchError

__all__ = ["GUESS", "Fetching", "RemoteBytes", "opening"]

_Result = TypeVar("_Result")

Fetching: TypeAlias = Generator[Ask, bytes, _Result]
"""Yields the parts it wants, is sent their bytes, and returns a `_Result`."""

GUESS: Final = 1 << 16
"""Bytes to ask for where it is not known how many there are to read; the metadata of a small bundle is within them."""


class RemoteBytes:
    """The bytes of a resource, of which the parts asked for so far are kept."""

    def __init__(self, resource: Resource, *, max_metadata: int) -> None:
        self.resource = resource
        self.base = 0
        """Where in the resource the bundle begins."""
        self._most = max_metadata
        self._fetched = 0
        self._parts: list[tuple[int, bytes]] = []

    def parse(self, parser: Parser[_Result]) -> Fetching[_Result]:
        """Run a parser over these bytes; offsets in its refusals are then those of the resource."""
        try:
            need = next(parser)
            while True:
                need = parser.send((yield from self.take(need)))
        except StopIteration as done:
            result: _Result = done.value
            return result
        except BundleError as error:
            error.offset += self.base
            raise

    def take(self, need: ReadRequest) -> Fetching[bytes]:
        """Give the bytes needed: fewer where the resource ends sooner.

        Raises `FetchError` where more would have to be fetched than was allowed.
        """
        position = self.base + need.offset
        stop = position + need.length
        taken: list[bytes | memoryview] = []
        while position < self._within(stop):
            part = self._kept(position) or (yield from self._fetch(position, stop))
            taken.append(part[: stop - position])
            position += len(taken[-1])
        return b"".join(taken)

    def place(self, location: Location) -> bytes | Ask:
        """Give the bytes there if they are here already; else say how to ask for all of them that there are."""
        start = self.base + location.offset
        length = max(0, self._within(start + location.length) - start)
        part = self._kept(start) if length else b""
        return bytes(part[:length]) if part is not None and len(part) >= length else Ask(start, length)

    def forget(self, before: int) -> None:
        """Keep only what lies at or behind an offset in the bundle."""
        start = self.base + before
        self._parts = [
            (max(offset, start), part[max(0, start - offset) :])
            for offset, part in self._parts
            if offset + len(part) > start
        ]

    def _fetch(self, start: int, stop: int) -> Fetching[bytes]:
        # Until the server has said how much there is, nothing the bundle claims is asked for.
        wanted = GUESS if self.resource.length is None else max(stop - start, GUESS)
        ask = Ask(start, min(self._within(start + wanted), self._next(start)) - start)
        if self._fetched + ask.length > self._most:
            raise FetchError(
                f"{self.resource.url}: metadata of more than {self._most} bytes; allow more if it is right"
            )
        part = yield ask
        self._fetched += len(part)
        self._parts.append((start, part))
        return part

    def _within(self, stop: int) -> int:
        return stop if self.resource.length is None else min(stop, self.resource.length)

    def _kept(self, position: int) -> memoryview | None:
        for offset, part in self._parts:
            if offset <= position < offset + len(part):
                return memoryview(part)[position - offset :]
        return None

    def _next(self, position: int) -> int:
        """Where the next kept part begins: what is here is not asked for again."""
        return min((offset for offset, _ in self._parts if offset > position), default=1 << 64)


def opening(remote: RemoteBytes, *, profile: Profile, from_end: bool, base_url: str | None) -> Fetching[Metadata]:
    """Load the metadata of the bundle that the bytes are, or end with; what is kept then begins with the responses."""
    if from_end:
        tail = yield Ask(None, TRAILER_SIZE)
        remote.base = _found(trailer_parser(remote.resource.length or 0), tail)
    else:
        block = yield from remote.parse(integrity_block_parser())
        remote.base = block.length if block else 0
    base_url = base_url or remote.resource.url
    metadata = yield from remote.parse(metadata_parser(profile=profile, base_url=base_url))
    remote.forget(metadata.sections[-1].offset)
    return metadata


def _found(parser: Parser[_Result], source: bytes) -> _Result:
    """Run a parser that needs one thing, and here it is."""
    next(parser)
    try:
        parser.send(source)
    except StopIteration as done:
        result: _Result = done.value
        return result
    raise AssertionError("the parser needs more than one thing")
