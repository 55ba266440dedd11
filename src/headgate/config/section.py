"""What every table of the file is made of: the table itself, and the kinds of values that several tables have."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

__all__ = ["Count", "Listen", "Loop", "Seconds", "SecondsOrNone", "Section"]

Loop = Literal["auto", "uvloop", "asyncio"]
"""Event loops by name."""

Seconds = Annotated[float, Meta(ge=0.001, le=86_400)]
"""A time that passes, up to a day."""

SecondsOrNone = Annotated[float, Meta(ge=0, le=86_400)]
"""The same, or no time at all."""

Count = Annotated[int, Meta(ge=0, le=2**53)]
"""How many, as far as every reader of JSON can count."""

Listen = Annotated[str, Meta(examples=["127.0.0.1:8080", "[::1]:8080", "0.0.0.0:0"])]
"""HOST:PORT."""


class Section(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of the file; an unknown key in it is an error."""
