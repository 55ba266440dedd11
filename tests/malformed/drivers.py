"""Every way to read a bundle, with results that can be compared.

A driver returns an `Answer`: the metadata and every response, or the error. Exceptions other than `BundleError` pass
through.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from headgate.bundle import Bundle, open_bundle, parse_metadata
from headgate.bundle.model import Metadata, Profile
from headgate.bundle.stream import EndEvent, ErrorEvent, HeadEvent, MetadataEvent, PayloadEvent, read_stream
from headgate.errors import BundleError, ResponseError

Keys = tuple[str, str | None]


@dataclass(frozen=True)
class Refusal:
    """A `BundleError` without its reason."""

    kind: str
    step: str
    offset: int
    fallback_url: str | None


@dataclass(frozen=True)
class Read:
    """A bundle that was read; a response is its status, headers and payload, or its error."""

    metadata: Metadata
    responses: dict[Keys, "tuple[int, dict[str, str], bytes] | Refusal"]

    def refused(self) -> dict[Keys, Refusal]:
        """Return the responses that were refused."""
        return {key: found for key, found in self.responses.items() if isinstance(found, Refusal)}


Answer = Read | Refusal


def from_bytes(content: bytes, profile: Profile) -> Answer:
    """Read it from memory."""
    return _opened(lambda: open_bundle(content, profile=profile))


def from_file(content: bytes, profile: Profile) -> Answer:
    """Read it from an open file."""
    return _opened(lambda: open_bundle(io.BytesIO(content), profile=profile))


def from_path(path: Path, profile: Profile) -> Answer:
    """Read it from a path."""
    return _opened(lambda: open_bundle(path, profile=profile))


def from_end(content: bytes, profile: Profile) -> Answer:
    """Find it by the length at its end."""
    return _opened(lambda: open_bundle(content, profile=profile, from_end=True))


def after_other(lead: bytes, content: bytes, profile: Profile) -> Answer:
    """Find it by the length at its end, after other content; offsets count from the bundle."""
    answer = from_end(lead + content, profile)
    return _shifted(answer, len(lead))


def metadata_alone(content: bytes, profile: Profile) -> Metadata | Refusal:
    """Parse its metadata."""
    try:
        return parse_metadata(content, profile=profile)
    except BundleError as error:
        return _refusal(error)


def from_stream(parts: Sequence[bytes], profile: Profile) -> Answer:
    """Read it as it arrives, in these parts."""
    metadata: Metadata | None = None
    responses: dict[Keys, tuple[int, dict[str, str], bytes] | Refusal] = {}
    begun: HeadEvent | None = None
    payload = b""
    try:
        for event in read_stream(parts, profile=profile):
            match event:
                case MetadataEvent():
                    assert metadata is None
                    metadata = event.metadata
                case HeadEvent():
                    assert begun is None
                    begun, payload = event, b""
                case PayloadEvent():
                    assert begun is not None
                    payload += event.chunk
                case EndEvent():
                    assert begun is not None
                    read = (begun.head.status, begun.head.stored_headers, payload)
                    responses |= dict.fromkeys(begun.keys, read)
                    begun = None
                case ErrorEvent():
                    assert begun is None or begun.keys == event.keys
                    responses |= dict.fromkeys(event.keys, _refusal(event.error))
                    begun = None
    except BundleError as error:
        assert metadata is None
        return _refusal(error)
    assert metadata is not None
    assert begun is None
    return Read(metadata, responses)


def pieces(content: bytes, cuts: Sequence[int]) -> Iterator[bytes]:
    """Cut the bytes at these places."""
    places = [0, *sorted(cut % (len(content) + 1) for cut in cuts), len(content)]
    return (content[start:end] for start, end in pairwise(places))


def _opened(opening: Callable[[], Bundle]) -> Answer:
    try:
        with opening() as bundle:
            return Read(bundle.metadata, dict(_responses(bundle)))
    except BundleError as error:
        return _refusal(error)


def _responses(bundle: Bundle) -> Iterator[tuple[Keys, tuple[int, dict[str, str], bytes] | Refusal]]:
    for exchange in bundle.exchanges():
        key = exchange.url, exchange.variant_key
        if isinstance(exchange.response, ResponseError):
            yield key, _refusal(exchange.response)
        else:
            response = exchange.response
            yield key, (response.status, response.stored_headers, bytes(response.payload))


def _refusal(error: BundleError) -> Refusal:
    assert str(error)
    return Refusal(error.kind, error.step, error.offset, error.fallback_url)


def _shifted(answer: Answer, start: int) -> Answer:
    if isinstance(answer, Refusal):
        return Refusal(answer.kind, answer.step, answer.offset - start, answer.fallback_url)
    responses = {
        key: Refusal(found.kind, found.step, found.offset - start, found.fallback_url)
        if isinstance(found, Refusal)
        else found
        for key, found in answer.responses.items()
    }
    return Read(answer.metadata, responses)
