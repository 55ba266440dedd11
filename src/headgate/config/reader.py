"""Read TOML into a configuration tree.

Every error is one `ConfigurationError` that names the file, the dotted path of the key, and what is expected.
"""

import difflib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from headgate.config.tree import Configuration
from headgate.config.validation import check, convert
from headgate.errors import ConfigurationError


def read(path: str | Path) -> Configuration:
    """Read the file at `path`; raises `ConfigurationError`, which names the file."""
    try:
        text = Path(path).read_bytes().decode("utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror or error}; name a readable file with --config") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: byte {error.start} is not UTF-8; TOML files are UTF-8") from None
    return parse(text, name=str(path))


def parse(text: str, *, name: str = "headgate.toml") -> Configuration:
    """Parse the text of a file; errors call the file `name`."""
    try:
        # Editors on Windows put a byte order mark before the text; TOML 1.1 allows one.
        document = tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{name}: not TOML: {error}") from None
    except RecursionError:
        raise ConfigurationError(f"{name}: not TOML: nested too deeply") from None
    for path, key, valid in _unknown(document, Configuration, ""):
        raise ConfigurationError(f"{name}: {path}: unknown key; {_suggestion(key, valid)}")
    try:
        tree = convert(document)
        check(tree)
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}") from None
    return tree


def _unknown(value: object, kind: Any, path: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield each unknown key: its path, its name, and the keys that its table can have."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if isinstance(value, dict):
            fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
            for key, member in value.items():
                where = f"{path}.{key}" if path else key
                if key in fields:
                    yield from _unknown(member, fields[key], where)
                else:
                    yield where, key, list(fields)
    elif get_origin(kind) is tuple and isinstance(value, list):
        for index, member in enumerate(value):
            yield from _unknown(member, get_args(kind)[0], f"{path}[{index}]")


def _suggestion(key: str, valid: list[str]) -> str:
    if headings := _headings(key):
        return f"it belongs under {' or '.join(headings)}"
    near = difflib.get_close_matches(key.lower().replace("-", "_"), valid, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"the keys are {', '.join(valid)}"


def _headings(key: str) -> list[str]:
    """Return the headings of the tables that have a key of this name, as written in TOML."""
    found = []
    for section in msgspec.structs.fields(Configuration):
        is_list = get_origin(section.type) is tuple
        kind = get_args(section.type)[0] if is_list else section.type
        if key in {field.encode_name for field in msgspec.structs.fields(kind)}:
            found.append(f"[[{section.name}]]" if is_list else f"[{section.name}]")
    return found
