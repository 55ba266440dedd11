"""Reading TOML into structs of msgspec, with errors that name the path of the key, the value and what is expected."""

import difflib
import re
import stat
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from datetime import date, time
from pathlib import Path
from typing import Any, Final

import msgspec

from headgate.config.key_types import describe, is_list_of_tables, kind_at, tables, value_at
from headgate.config.tree import Configuration
from headgate.errors import ConfigurationError, explaining, fail_if

MAX_FILE_SIZE: Final = 10_000_000
"""Bytes of a file: one that never ends, such as /dev/zero, is an error."""

_LOCATION = re.compile(r" - at `\$\.?(?P<path>.*)`$")
_MISSING = re.compile(r"missing required field `([^`]*)`")
_UNKNOWN = re.compile(r"contains unknown field `(.*?)`(?: - at|$)")


def read_bytes(path: str | Path, *, advice: str, most: int = MAX_FILE_SIZE) -> bytes:
    """Read a file, and one byte more than `most` of a longer one; raises `ConfigurationError` as `read_text` does."""
    with explaining(str(path), advice), Path(path).open("rb") as file:
        return file.read(most + 1)


def read_text(path: str | Path, *, advice: str) -> str:
    """Read a file of UTF-8 text; raises `ConfigurationError` with the path, the reason and the `advice`."""
    content = read_bytes(path, advice=advice)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: byte {error.start} is not UTF-8; expected a file in UTF-8") from None
    fail_if(len(content) > MAX_FILE_SIZE, f"{path}: longer than {MAX_FILE_SIZE:,} bytes; {advice}")
    return text


def key_file_warnings(*files: str) -> Iterator[str]:
    """Yield a line for each file with a secret key that every user of this machine can read or change; "" names none.

    Its group may: services read keys that way.
    """
    for file in files:
        mode = 0
        with suppress(OSError, ValueError):  # reported where the key is read
            mode = Path(file).stat().st_mode if file else 0
        if mode & (stat.S_IROTH | stat.S_IWOTH):
            yield f"warning: {file}: every user of this machine can read this secret key; use: chmod 600 {file}"


def parse_toml(text: str, name: str) -> tuple[dict[str, Any], bool]:
    """Parse the text of a TOML file that errors call `name`; return whether it has a list [[advice]], too.

    In the document, this list is advice.entry.
    """
    try:
        # Editors on Windows put a byte order mark before the text; TOML 1.1 allows one.
        document = tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{name}: not TOML: {error}") from None
    except RecursionError:
        raise ConfigurationError(f"{name}: not TOML: nested too deeply") from None
    is_list = isinstance(document.get("advice"), list)
    return document | ({"advice": {"entry": document["advice"]}} if is_list else {}), is_list


def convert_document(document: Any, *, strict: bool = True) -> Configuration:
    """Convert parsed TOML; raises `ConfigurationError` for an unknown or missing key, or a value of the wrong type.

    If not `strict`, numbers and booleans may be texts.
    """
    try:
        return msgspec.convert(document, Configuration, strict=strict)
    except msgspec.ValidationError as error:
        raise ConfigurationError(_explain(str(error), document)) from None


def _explain(message: str, document: Any) -> str:
    """Return what is wrong at the place that a message of msgspec names: the path, what is expected, and the value."""
    match = _LOCATION.search(message)
    path = match["path"] if match else ""
    if found := _UNKNOWN.search(message):
        return f"{path}{'.' if path else ''}{found[1]}: unknown key; {_place_of(found[1], path)}"
    if found := _MISSING.search(message):
        return f"{path or 'the file'}: the key {found[1]!r} is missing"
    kind, value = kind_at(path), value_at(document, path)
    text = f"{path}: expected {describe(kind)}, got {_describe_value(value)}"
    if is_list_of_tables(kind):
        other = (
            f"in place of [{path}]"
            if isinstance(value, dict)
            else "or a key of that name below the heading of its table"
        )
        text += f"; write [[{path}]] for each, {other}"
    return text


def _describe_value(value: Any) -> str:
    kinds = {dict: "a table", list: "a list", date | time: "a date or time"}
    return next((words for kind, words in kinds.items() if isinstance(value, kind)), f"{value!r:.60}")


def _place_of(key: str, path: str) -> str:
    """Return where an unknown key of the table at `path` may belong: below other headings, or as the nearest one."""
    places = [(heading, name) for heading, kind in tables() for name in kind.__struct_encode_fields__]
    if headings := [heading for heading, name in places if name == key]:
        return f"it belongs under {' or '.join(headings)}"
    word = key.lower().replace("-", "_")
    table = re.sub(r"\[[^\[\]]*\]", "", path)
    others = {
        f"{heading.strip('[]')}_{name}".replace(".", "_"): f"{heading} {name}"
        for heading, name in places
        if heading.strip("[]") != table
    }
    if inner := difflib.get_close_matches(f"{table}_{word}".replace(".", "_"), others, n=1, cutoff=0.9):
        return f"did you mean {others[inner[0]]}?"  # such as [gate.tls] cert for gate.tls_cert
    valid = list(kind_at(path).__struct_encode_fields__)
    near = [name for name in valid if name.startswith(word)] or difflib.get_close_matches(word, valid, n=1, cutoff=0.65)
    return f"did you mean {near[0]!r}?" if near else f"the keys are {', '.join(valid)}"
