"""The file `headgate.toml`: read into a configuration tree, written from one, and described by a JSON Schema.

Every error of the reader is one `ConfigurationError` that names the file, the dotted path of the key, and what is
expected.
"""

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec
from msgspec.structs import asdict, replace

from headgate.config.key_types import is_list_of_tables
from headgate.config.toml_reader import convert_document, parse_toml, read_text
from headgate.config.tree import Configuration
from headgate.config.validation import check
from headgate.errors import ConfigurationError
from headgate.http.conditions import Conditions

_CREDENTIALS = re.compile(r"((?:rediss?(?:\+cluster)?|unix)://[^:@]*:).*@", re.IGNORECASE)
_CREDENTIAL_FIELDS = re.compile(r"auth|cookie|key|secret|token", re.IGNORECASE)
_PASSWORD_OPTION = re.compile(r"([?&]password=)[^&]*")

C = TypeVar("C", bound=Conditions)


def read(path: str | Path) -> Configuration:
    """Read the file at `path`; raises `ConfigurationError`, which names the file."""
    return parse(read_text(path, advice="name a readable file with --config"), name=str(path))


def parse(text: str, *, name: str = "headgate.toml") -> Configuration:
    """Parse the text of a file; errors call the file `name`."""
    document, is_list = parse_toml(text, name)
    try:
        tree = convert_document(document)
        check(tree)
    except ConfigurationError as error:
        # Errors name keys as they are written in the file.
        message = str(error).replace("advice.entry[", "advice[") if is_list else str(error)
        raise ConfigurationError(f"{name}: {message}") from None
    return tree


def show(tree: Configuration, origin_of: Callable[[str], str] = lambda _path: "") -> str:
    """Write `tree` as a whole file: every key with its value, below its documentation; credentials as ***.

    Of a list of tables that is empty, one table is written with its defaults, commented out with `#` and no space.
    A value is followed by what `origin_of` returns for its path, such as domain[0].name, if that is not empty.
    """
    lines = _table("", tree, origin_of)
    kept = [line for line, before in zip(lines, ["", *lines], strict=False) if line or before]
    return "\n".join(kept).strip() + "\n"


def _table(path: str, table: msgspec.Struct, origin_of: Callable[[str], str]) -> list[str]:
    """Write a table: its plain keys first, then the tables inside it, as TOML requires."""
    docs = field_docs(type(table))
    table = _hide_credential(table) if isinstance(table, Conditions) else table
    plain: list[str] = []
    inner: list[str] = []
    for field in msgspec.structs.fields(table):
        name, value = field.encode_name, getattr(table, field.name)
        where = f"{path}.{name}" if path else name
        if isinstance(value, msgspec.Struct) and not isinstance(value, Conditions):
            inner += ["", *_comment(docs[name]), f"[{where}]", *_table(where, value, origin_of)]
        elif is_list_of_tables(field.type):
            inner += ["", *_comment(docs[name])]
            for index, member in enumerate(value):
                inner += [f"[[{where}]]", *_table(f"{where}[{index}]", member, origin_of), ""]
            if not value:
                inner += [f"#[[{where}]]", *_defaults(get_args(field.type)[0])]
        else:
            note = f"  # {origin}" if (origin := origin_of(where)) else ""
            plain += [*_comment(docs[name]), f"{name} = {_literal(_hide_password(value))}{note}"]
    return plain + inner


def _defaults(kind: type[msgspec.Struct]) -> list[str]:
    """Write the keys of a table commented out, with their defaults; a key without one has three dots."""
    docs = field_docs(kind)
    lines: list[str] = []
    for field in msgspec.structs.fields(kind):
        default = "…" if field.default is msgspec.NODEFAULT else field.default
        lines += [*_comment(docs[field.encode_name]), f"#{field.encode_name} = {_literal(default)}"]
    return lines


def _comment(words: str) -> list[str]:
    return [f"# {line}" for line in words.splitlines()]


def _hide_password(value: Any) -> Any:
    """Return a value with *** in place of the password, if it is the URL of a Redis server."""
    if not isinstance(value, str):
        return value
    return _PASSWORD_OPTION.sub(r"\1***", _CREDENTIALS.sub(r"\1***@", value))


def _hide_credential(conditions: C) -> C:
    """Return conditions with *** in place of the value of a header that may be a credential."""
    if not _CREDENTIAL_FIELDS.search(conditions.header):
        return conditions
    hidden = {name: "***" for name in ("value", "prefix", "regex") if getattr(conditions, name)}
    return replace(conditions, **hidden)


def _literal(value: Any) -> str:
    if isinstance(value, str):
        # TOML has JSON's escapes; it requires one more character to be escaped, DEL.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, Conditions):
        given = [f"{name} = {_literal(item)}" for name, item in asdict(_hide_credential(value)).items() if item]
        return f"{{ {', '.join(given)} }}" if given else "{}"
    return repr(value)


def schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of `headgate.toml`."""
    written: dict[str, Any] = msgspec.json.schema(Configuration)
    for kind in _structs(Configuration):
        properties = written["$defs"][kind.__name__]["properties"]
        for name, words in field_docs(kind).items():
            properties[name] = {"description": words} | properties[name]
    advice = written["$defs"]["Configuration"]["properties"]["advice"]
    listed = {"type": "array", "items": {"$ref": "#/$defs/AdviceEntrySection"}}
    advice["anyOf"] = [{"$ref": advice.pop("$ref")} if "$ref" in advice else advice.pop("allOf")[0], listed]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "headgate.toml"} | written


@cache
def field_docs(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return the docstring of each field of `kind`, in order. They are read from the source: Python drops them."""
    docs = {}
    for base in reversed(
        [one for one in kind.__mro__ if one is not msgspec.Struct and issubclass(one, msgspec.Struct)]
    ):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(tree, ast.ClassDef)
        for field, after in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
                docs[field.target.id] = inspect.cleandoc(str(ast.literal_eval(after.value)))
    return {field.encode_name: docs[field.name] for field in msgspec.structs.fields(kind) if field.name in docs}


def _structs(kind: Any) -> list[type[msgspec.Struct]]:
    """Return the tables that `kind` consists of, itself included."""
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return [found for argument in get_args(kind) for found in _structs(argument)]
    return [kind, *(found for field in msgspec.structs.fields(kind) for found in _structs(field.type))]
