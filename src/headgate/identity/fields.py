"""Structured fields (RFC 9651) by http-sf: a malformed field is like an absent one."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast

from headgate.errors import MissingExtra

try:
    import http_sf
except ImportError:
    raise MissingExtra("sign", "Web Bot Auth") from None

Item: TypeAlias = tuple[Any, dict[str, Any]]
"""A value with its parameters; the value of an inner list is a list of items."""

MAX_FIELD_SIZE: Final = 8192
"""Characters of a field that is read; a longer one is malformed."""


def parse_dictionary(lines: Iterable[str]) -> dict[str, Item]:
    """Return the members of a Dictionary, whose lines are joined; empty for a malformed one."""
    return cast("dict[str, Item]", _parse(", ".join(lines), "dictionary") or {})


def parse_string(text: str) -> Item | None:
    """Return an Item; None for a malformed one."""
    return cast("Item | None", _parse(text, "item"))


def serialize(item: Item) -> str:
    """Return the canonical form of an item or an inner list, whose strings and keys are as a field allows them."""
    value, parameters = item
    text = f"({' '.join(map(serialize, value))})" if isinstance(value, list) else _bare(value)
    given = [f";{key}" if each is True else f";{key}={_bare(each)}" for key, each in parameters.items()]
    return text + "".join(given)


def _bare(value: Any) -> str:
    # Nearly all values are such strings, for which http-sf takes ten times as long.
    return f'"{value}"' if type(value) is str and '"' not in value and "\\" not in value else http_sf.ser(value)


# Several components of a signature may be members of one field.
@lru_cache(32)
def _parse(text: str, kind: str) -> object:
    try:
        return http_sf.parse(text.encode("latin-1"), tltype=kind) if len(text) <= MAX_FIELD_SIZE else None
    except (ValueError, OverflowError):
        return None
