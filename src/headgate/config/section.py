"""The base of every table of the file, and the value types that several tables use.

A value type carries three things beside its Python type: the limits that msgspec checks (`Meta`), the word for it in
the help of a command (`Format.metavar`), and the function that checks its text (`Format.parse`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta, Struct

from headgate.config.section import Address
from headgate.limit import Rule

_RULE = r"^\s*[0-9]+\s*(/|[pP][eE][rR])\s*[0-9]*\s*[A-Za-z]+(\s*[bB][uU][rR][sS][tT]\s*[0-9]+)?\s*$"


@dataclass(frozen=True)
class Format:
    """How the text of a value is written, and how it is checked."""

    metavar: str
    """The placeholder in the help of a command, such as FILE."""
    parse: Callable[[str], object] | None = None
    """Raises `ConfigurationError` for invalid text."""


def _parse_optional_address(text: str) -> Address | None:
    return Address.parse(text) if text else None


Loop = Literal["auto", "uvloop", "asyncio"]
"""Names of event loops."""

Seconds = Annotated[float, Meta(ge=0.001, le=86_400), Format("SECONDS")]
"""A duration of at most a day, and more than zero."""

SecondsOrZero = Annotated[float, Meta(ge=0, le=86_400), Format("SECONDS")]
"""A duration of at most a day; zero has a meaning of its own."""

Count = Annotated[int, Meta(ge=0, le=2**53)]
"""A number of things; the maximum is the largest integer that every JSON reader represents exactly."""

File = Annotated[str, Format("FILE")]
"""The path of a file."""

Listen = Annotated[
    str, Meta(examples=["127.0.0.1:8080", "[::1]:8080", "0.0.0.0:0"]), Format("HOST:PORT", Address.parse)
]
"""An address to listen at."""

ListenOrNone = Annotated[str, Meta(examples=["127.0.0.1:8090"]), Format("HOST:PORT", _parse_optional_address)]
"""An address to listen at, or empty for none."""

RuleText = Annotated[
    str,
    Meta(extra_json_schema={"pattern": _RULE}, examples=["10/s burst 20", "600 per 10min", "1000/h burst 50"]),
    Format("RULE", Rule.parse),
]
"""A rule."""


class Section(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of the file; an unknown key in it is an error."""
