"""Print the errors of a bundle, as JSON or text, and limit how much is printed about one bundle."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from headgate.cli.output import exit_with_failure, print_json, printable
from headgate.errors import BundleError, HeadgateError

_Output = TypeVar("_Output", str, bytes)

_OUTPUT_PER_BYTE = 16
_MIN_OUTPUT = 64 * 1024 * 1024


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
