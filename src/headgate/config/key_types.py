"""The keys of the configuration and their types: found by path, taken apart, and described for errors."""

import re
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec

from headgate.config.section import ConfigSection
from headgate.config.tree import Configuration

_NAMES: Final[dict[Any, str]] = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
UNLIMITED: Final = 2**53
"""A maximum that stands for none."""


_steps = re.compile(r"[^.\[\]]+|\[[^\]]*\]").findall
"""Splits a path into names and indexes: domain[0].name into domain, [0] and name."""


def kind_at(path: str) -> Any:
    """Return the type of the value at a path such as domain[0].name, with what `Annotated` adds."""
    kind: Any = Configuration
    for step in _steps(path):
        kind, _ = unwrap(kind)
        if step.startswith("["):
            kind = next(get_args(one)[0] for one in (kind, *union_members(kind)) if get_origin(one) is tuple)
        else:
            kind = next(field.type for field in msgspec.structs.fields(kind) if field.encode_name == step)
    return kind


def value_at(document: Any, path: str) -> Any:
    """Return the value of a document at a path such as domain[0].name; raises `LookupError` where it has none."""
    for step in _steps(path):
        document = document[int(step.strip("[]"))] if step.startswith("[") else document[step]
    return document


def find_key(path: str) -> tuple[type[ConfigSection], msgspec.structs.FieldInfo]:
    """Return the table of the key at `path`, such as gate.listen, and its field; of a list of tables, any of them."""
    parent, _, name = path.rpartition(".")
    table = kind_at(parent)
    table = get_args(table)[0] if is_list_of_tables(table) else table
    return table, next(key for key in msgspec.structs.fields(table) if key.name == name)


def tables(kind: Any = Configuration, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the headings of the tables, such as [gate.tls] and [[domain]], and their types; none inside a list."""
    for field in msgspec.structs.fields(kind):
        path = prefix + field.encode_name
        if is_list_of_tables(field.type):
            yield f"[[{path}]]", get_args(field.type)[0]
        elif isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield f"[{path}]", field.type
            yield from tables(field.type, f"{path}.")


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


def describe(kind: Any) -> str:
    """Return what a value of a type is, as words: a whole number from 1 to 256."""
    kind, extras = unwrap(kind)
    if get_origin(kind) is Literal:
        words = get_args(kind)
        return f"one of {', '.join(map(str, words))}" if len(words) > 1 else repr(words[0])
    if members := union_members(kind):
        return " or ".join(map(describe, members))
    name = _NAMES.get(kind) or ("a list" if takes_list(kind) else "a table")
    limits = next((one for one in extras if isinstance(one, msgspec.Meta) and one.ge is not None), None)
    if limits is None:
        return name
    is_limited = limits.le is not None and limits.le < UNLIMITED
    return f"{name} from {limits.ge:g} to {limits.le:,}" if is_limited else f"{name} of at least {limits.ge:g}"
