"""An exchange on its way into a bundle: what every source yields and the writer takes."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from headgate.bundle.spool import Piece

__all__ = ["Exchange", "Payload"]

Payload: TypeAlias = bytes | Path | Piece | Iterable[bytes]
"""The bytes of a response, or where they are: a file, a piece of a spool, or chunks that can be had once.

Chunks belong to the moment: they are to be taken before the source is asked for its next exchange.
"""


class Exchange(Struct, frozen=True):
    """A URL and one response for it."""

    url: str
    """Absolute, in the WHATWG parser's form, without fragment and credentials."""
    status: int
    headers: Mapping[str, str]
    """Lower-case names, latin-1 values, no pseudo-headers."""
    payload: Payload
    variants: str | None = None
    """The Variants value of the URL, the same in each of its exchanges; None for a URL with one response."""
    variant_key: str | None = None
    """Which of the variants this is, such as `gzip;en`; None where `variants` is."""
