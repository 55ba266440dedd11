"""What the commands that read or write a bundle share: errors, output files, progress, and all responses in order."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headgate.cli.output import exit_with_failure, print_json, printable, progress
from headgate.errors import BundleError, HeadgateError, ResponseError

if TYPE_CHECKING:
    from headgate.bundle import Bundle, Location, ResponseHead
    from headgate.bundle.files.atomic_file import Progress, Target

    Found = tuple[str, str | None, Location, ResponseHead | ResponseError]
    """The URL, variant key, location and head of a response, or its error."""

_STEPS = 1_000
_Output = TypeVar("_Output", str, bytes)
_OUTPUT_PER_BYTE = 16
_MIN_OUTPUT = 64 * 1024 * 1024
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
def progress_bar(what: str) -> "Iterator[Progress]":
    """Show a progress bar on stderr if that is a terminal; return what is called with bytes written and total."""
    shown = 0
    with progress(what, _STEPS) as advance:

        def update(written: int, total: int) -> None:
            nonlocal shown
            part = _STEPS * written // max(total, 1)
            advance(part - shown)
            shown = part

        yield update


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


def iterate_responses(bundle: "Bundle") -> "Iterator[Found]":
    """Yield URL, variant key, location and head of every response, or the error of one that is malformed.

    A response that several keys share is loaded once. Raises `HeadgateError` where responses overlap so much that
    reading all their headers would take time out of proportion to the bundle.
    """
    from headgate.bundle.format.headers import MAX_HEADERS_SIZE

    left = bundle.size + _EXTRA_HEADERS_SIZE
    last: Location | None = None
    for url, key, location, found in bundle.heads():
        if location != last:
            last = location
            if isinstance(found, ResponseError):
                left -= min(location.length, MAX_HEADERS_SIZE)
            else:
                left -= location.length - found.payload.length
            if left < 0:
                raise HeadgateError(
                    "the responses overlap: reading the headers of all of them would take too long, so the others are "
                    "left out; use get for single ones"
                )
        yield url, key, location, found
