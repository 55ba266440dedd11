"""What the commands that read or write a bundle share: errors, output files, progress, and all responses in order."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headgate.cli.output import exit_with_failure, print_json, printable, progress
from headgate.errors import BundleError, HeadgateError, ResponseError

if TYPE_CHECKING:
    from headgate.bundle import Bundle, Location, Response, StoredExchange
    from headgate.bundle.files.atomic_file import Progress, Target
    from headgate.bundle.format.merkle_integrity import DecodedResponse

_PIECE_SIZE = 1 << 20
_STEPS = 1_000
_Output = TypeVar("_Output", str, bytes)
_OUTPUT_PER_BYTE = 16
_MIN_OUTPUT = 64 * 1024 * 1024
_RESPONSES_IN_MEMORY = 128
"""Responses after which the memory of a mapped file is released."""
_EXTRA_HEADERS_SIZE = 64 * 1024 * 1024
"""Bytes of headers that may be read beyond the size of the bundle: only overlapping responses have so many."""


def _output(help_text: str) -> Callable[..., Any]:
    return click.option("-o", "--output", "out", metavar="FILE", required=True, help=help_text)


NEW_OUT = _output("Output file; - writes standard output.")
OUT = _output("Output file, may be the input file; - writes standard output.")


def output_target(out: str) -> "Target":
    """Return standard output, or the path; raises `ConfigurationError` for one that cannot be written."""
    if out == "-":
        return sys.stdout.buffer
    from headgate.bundle.files.atomic_file import check_target

    check_target(out)
    return out


@contextmanager
def progress_bar(what: str, read: memoryview | None = None) -> "Iterator[Progress]":
    """Show a progress bar on stderr if that is a terminal; return what is called with bytes written and total.

    The memory of `read`, a mapped file, is released each time.
    """
    from headgate.bundle.files.byte_source import release_pages

    shown = 0
    with progress(what, _STEPS) as advance:

        def update(written: int, total: int) -> None:
            nonlocal shown
            part = _STEPS * written // max(total, 1)
            advance(part - shown)
            shown = part
            if read is not None:
                release_pages(read)

        yield update


def payload_pieces(payload: memoryview) -> Iterator[memoryview]:
    """Yield a payload in pieces, and release the memory of each after use."""
    from headgate.bundle.files.byte_source import release_pages

    for start in range(0, len(payload), _PIECE_SIZE):
        yield payload[start : start + _PIECE_SIZE]
        release_pages(payload)


def content_pieces(response: "DecodedResponse") -> Iterator[memoryview]:
    """Yield the content of a response in pieces, and release the memory of each after use."""
    from headgate.bundle.files.byte_source import release_pages

    for start in range(0, response.length, _PIECE_SIZE):
        yield from response.pieces(start, start + _PIECE_SIZE)
        release_pages(response.payload)


class OutputLimit:
    """Limits the output about the responses of one bundle.

    Any number of URLs may share a response, whose headers may have half a megabyte and are printed for each: a small
    file could fill any disk.
    """

    def __init__(self, size: int) -> None:
        """Set the limit for a bundle of `size` bytes."""
        self._limit = _OUTPUT_PER_BYTE * size + _MIN_OUTPUT
        self._left = self._limit

    def take(self, output: _Output) -> _Output:
        """Return the output that is about to be written; raises `HeadgateError` where it exceeds the limit."""
        self._left -= len(output)
        if self._left < 0:
            raise HeadgateError(
                f"output limit of {self._limit} bytes reached: many URLs share long headers; "
                "the other responses are not listed, use get for single ones"
            )
        return output


def error_fields(error: BundleError) -> dict[str, Any]:
    """Return the fields of an error that `--json` prints."""
    return {
        "error": error.kind,
        "message": error.reason,
        "step": error.step,
        "offset": error.offset,
        "fallback_url": error.fallback_url,
    }


@contextmanager
def bundle_errors(file: str, *, as_json: bool = False) -> Iterator[None]:
    """Print a `BundleError` raised inside in one sentence, or as JSON on stdout; exit code 1."""
    try:
        yield
    except BundleError as error:
        if not as_json:
            raise HeadgateError(f"{printable(file)}: {printable(str(error))}") from None
        print_json(error_fields(error))
        exit_with_failure()


def count_responses(bundle: "Bundle") -> int:
    """Return how many responses `iterate_responses` yields: one for each URL and variant key."""
    from headgate.bundle import VariantSet

    requests = bundle.metadata.requests.values()
    return sum(len(found.locations) if isinstance(found, VariantSet) else 1 for found in requests)


def iterate_responses(bundle: "Bundle") -> "Iterator[StoredExchange]":
    """Yield every response, or the error of one that is malformed.

    A response that several keys share is loaded once. Raises `HeadgateError` where responses overlap so much that
    reading all their headers would take time out of proportion to the bundle.
    """
    from headgate.bundle.files.byte_source import release_pages

    left = bundle.size + _EXTRA_HEADERS_SIZE
    last: Location | None = None
    for number, found in enumerate(bundle.exchanges(), 1):
        if found.location != last:
            last = found.location
            left -= _headers_size(found.location, found.response)
            if left < 0:
                raise HeadgateError(
                    "the responses overlap: reading the headers of all of them would take too long, so the others are "
                    "left out; use get for single ones"
                )
        yield found
        if not number % _RESPONSES_IN_MEMORY:
            release_pages(bundle.raw)


def _headers_size(location: "Location", response: "Response | ResponseError") -> int:
    """Return how many bytes before the payload were read, at most."""
    from headgate.bundle.format.headers import MAX_HEADERS_SIZE

    if isinstance(response, ResponseError):
        return min(location.length, MAX_HEADERS_SIZE)
    return location.length - len(response.payload)
