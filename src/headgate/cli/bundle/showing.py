"""How a refusal of a bundle is told, to programs and to people, and how much is said of one bundle at most."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from headgate.cli.printing import end_with_no, print_json
from headgate.cli.terminal import harmless
from headgate.errors import BundleError, HeadgateError

__all__ = ["Allowance", "refusals", "told"]

_Said = TypeVar("_Said", str, bytes)

_SAID_FOR_A_BYTE = 16
_SAID_ANYWAY = 64 * 1024 * 1024


class Allowance:
    """How much is said of the responses of one bundle.

    Any number of keys may share a response, and what is said of each repeats its headers, which may be half a megabyte:
    a small file could fill any disk.
    """

    def __init__(self, size: int) -> None:
        """Begin with what a bundle of so many bytes may well take."""
        self._left = _SAID_FOR_A_BYTE * size + _SAID_ANYWAY

    def take(self, said: _Said) -> _Said:
        """Give back what is about to be said; raises `HeadgateError` where it is too much."""
        self._left -= len(said)
        if self._left < 0:
            raise HeadgateError(
                "so many URLs share such long headers that what there is to say of them could fill any disk, "
                "so the rest is left unsaid; get gives single responses"
            )
        return said


def told(error: BundleError) -> dict[str, Any]:
    """Give a refusal as `--json` prints it."""
    return {
        "error": error.kind,
        "message": error.reason,
        "step": error.step,
        "offset": error.offset,
        "fallback_url": error.fallback_url,
    }


@contextmanager
def refusals(file: str, *, as_json: bool = False) -> Iterator[None]:
    """Tell a refusal of `file` met inside in one sentence, or as JSON on stdout; either way exit code 1."""
    try:
        yield
    except BundleError as error:
        if not as_json:
            raise HeadgateError(f"{harmless(file)}: {harmless(str(error))}") from None
        print_json(told(error))
        end_with_no()
