"""The JSON Schema of the file; the description of each key is the docstring of its field."""

import ast
import inspect
import textwrap
from functools import cache
from typing import Any, get_args

import msgspec

from headgate.config.tree import Configuration


def schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of `headgate.toml`."""
    written: dict[str, Any] = msgspec.json.schema(Configuration)
    for kind in _structs(Configuration):
        properties = written["$defs"][kind.__name__]["properties"]
        for name, words in field_docs(kind).items():
            properties[name] = {"description": words} | properties[name]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "headgate.toml"} | written


@cache
def field_docs(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return the docstring of each field of `kind`, in order. They are read from the source: Python drops them."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    docs = {}
    for field, after in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
            docs[field.target.id] = inspect.cleandoc(str(ast.literal_eval(after.value)))
    return docs


def _structs(kind: Any) -> list[type[msgspec.Struct]]:
    """Return the tables that `kind` consists of, itself included."""
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return [found for argument in get_args(kind) for found in _structs(argument)]
    return [kind, *(found for field in msgspec.structs.fields(kind) for found in _structs(field.type))]
