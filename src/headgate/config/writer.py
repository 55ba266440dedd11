"""Write a tree as TOML: the output of `headgate config show`, which parses to the same tree."""

import json
from typing import Any

import msgspec

from headgate.config.file import field_docs
from headgate.config.tree import Configuration


def show(tree: Configuration) -> str:
    """Write `tree` as a whole file: every key with its value, below its documentation."""
    lines = _table("", tree)
    kept = [line for line, before in zip(lines, ["", *lines], strict=False) if line or before]
    return "\n".join(kept).strip() + "\n"


def _table(path: str, table: msgspec.Struct) -> list[str]:
    """Write a table: its plain keys first, then the tables inside it, as TOML requires."""
    docs = field_docs(type(table))
    plain: list[str] = []
    inner: list[str] = []
    for name in table.__struct_fields__:
        value = getattr(table, name)
        where = f"{path}.{name}" if path else name
        if isinstance(value, msgspec.Struct):
            inner += ["", *_comment(docs[name]), f"[{where}]", *_table(where, value)]
        elif _is_tables(table, name):
            inner += ["", *_comment(docs[name])] if value else []
            for member in value:
                inner += [f"[[{where}]]", *_table(where, member), ""]
        else:
            plain += [*_comment(docs[name]), f"{name} = {_literal(value)}"]
    return plain + inner


def _is_tables(table: msgspec.Struct, name: str) -> bool:
    return isinstance(table, Configuration) and name in {"domain", "advice", "bundle"}


def _comment(words: str) -> list[str]:
    return [f"# {line}" for line in words.splitlines()]


def _literal(value: Any) -> str:
    if isinstance(value, str):
        # TOML has JSON's escapes; it requires one more character to be escaped, DEL.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_literal, value))}]"
    return repr(value)
