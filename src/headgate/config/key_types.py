"""The types of the keys of the configuration, without what `Annotated` adds."""

from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from headgate.config.section import ConfigSection
from headgate.config.tree import Configuration


def find_key(path: str) -> tuple[type[ConfigSection], msgspec.structs.FieldInfo]:
    """Return the table of the key at `path`, such as gate.listen, and its field."""
    table: Any
    kind: Any = Configuration
    for name in path.split("."):
        table = get_args(kind)[0] if get_origin(kind) is tuple else kind
        key = next(key for key in msgspec.structs.fields(table) if key.name == name)
        kind = key.type
    return table, key


def unwrap(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return a type, and what `Annotated` adds to it."""
    if get_origin(kind) is Annotated:
        kind, *extras = get_args(kind)
        return kind, tuple(extras)
    return kind, ()


def union_members(kind: Any) -> tuple[Any, ...]:
    """Return the types of a union; of another type nothing."""
    return get_args(kind) if get_origin(kind) in {Union, UnionType} else ()


def takes_list(kind: Any) -> bool:
    """Return whether the values of a key are lists; some keys also take a single text."""
    return any(get_origin(one) is tuple for one in (kind, *union_members(kind)))


def is_list_of_tables(kind: Any) -> bool:
    """Return whether the values of a key are lists of tables, such as [[domain]]."""
    member = get_args(kind)[0] if get_origin(kind) is tuple else None
    return isinstance(member, type) and issubclass(member, msgspec.Struct)
