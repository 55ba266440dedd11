"""Reading TOML into structs of msgspec, with errors that name the path of the key, the value and what is expected."""

import difflib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from headgate.errors import ConfigurationError, reason_of

T = TypeVar("T", bound=msgspec.Struct)

MAX_FILE_SIZE: Final = 10_000_000
"""Bytes of a file: one that never ends, such as /dev/zero, is an error."""

_LOCATION = re.compile(r" - at `\$\.?(?P<path>.*)`$")
_TYPE_NAMES = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "date": "a date",
    "time": "a time",
    "datetime": "a time",
}
_TYPES = re.compile(rf"`((?:{'|'.join(_TYPE_NAMES)})(?: \| (?:{'|'.join(_TYPE_NAMES)}|null))*)`")
_MISSING = re.compile(r"object missing required field `([^`]*)`")


def read_text(path: str | Path, *, advice: str) -> str:
    """Read a file of UTF-8 text; raises `ConfigurationError` with the path, the reason and the `advice`."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_FILE_SIZE + 1)
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: byte {error.start} is not UTF-8; expected a file in UTF-8") from None
    except (OSError, ValueError) as error:  # ValueError: the path contains a NUL
        raise ConfigurationError(f"{path}: {reason_of(error)}; {advice}") from None
    if len(content) > MAX_FILE_SIZE:
        raise ConfigurationError(f"{path}: longer than {MAX_FILE_SIZE:,} bytes; {advice}")
    return text


def parse_toml(text: str, name: str) -> dict[str, Any]:
    """Parse the text of a TOML file that errors call `name`."""
    try:
        # Editors on Windows put a byte order mark before the text; TOML 1.1 allows one.
        return tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{name}: not TOML: {error}") from None
    except RecursionError:
        raise ConfigurationError(f"{name}: not TOML: nested too deeply") from None


def convert_document(document: Any, kind: type[T], *, strict: bool = True) -> T:
    """Convert parsed TOML to `kind`; raises `ConfigurationError` for a missing key or a value of the wrong type.

    If not `strict`, numbers and booleans may be texts.
    """
    try:
        return msgspec.convert(document, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise ConfigurationError(_explain(str(error), document, kind)) from None


def unknown_keys(value: object, kind: Any, path: str = "") -> Iterator[tuple[str, str, list[str]]]:
    """Yield each key that `kind` lacks: its path, its name, and the keys that its table can have."""
    kind = _without_limits(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if isinstance(value, dict):
            fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
            for key, member in value.items():
                where = f"{path}.{key}" if path else key
                if key in fields:
                    yield from unknown_keys(member, fields[key], where)
                else:
                    yield where, key, list(fields)
    elif get_origin(kind) is tuple and isinstance(value, list):
        for index, member in enumerate(value):
            yield from unknown_keys(member, get_args(kind)[0], f"{path}[{index}]")


def nearest_key(key: str, valid: list[str]) -> str:
    """Return the nearest valid key as a question; all keys if none is near."""
    word = key.lower().replace("-", "_")
    near = [name for name in valid if name.startswith(word)] or difflib.get_close_matches(word, valid, n=1, cutoff=0.65)
    return f"did you mean {near[0]!r}?" if near else f"the keys are {', '.join(valid)}"


def _explain(message: str, document: Any, kind: Any) -> str:
    """Rewrite a message of msgspec about a document: the path first, then the names of TOML's types, then the value."""
    match = _LOCATION.search(message)
    path = match["path"] if match else ""
    reason = message[: match.start()] if match else message
    is_other_type = ", got `" in reason
    reason = _TYPES.sub(_name_types, reason)
    reason = _MISSING.sub(r"the key '\1' is missing", reason[:1].lower() + reason[1:])
    if reason == "expected a list, got a table":
        reason += f"; write [[{path}]] for each, in place of [{path}]"
    if ">=" in reason or "<=" in reason:
        reason += f", got {_value_at(document, path)!r}"
    if words := ", ".join(map(repr, _words_beside_numbers(kind, path))):
        reason = reason.replace("a text", words)
        if reason.startswith("invalid enum value"):
            reason = f"expected a number or {words}, got {_value_at(document, path)!r}"
    if is_other_type and type(value := _value_at(document, path)) in {str, int, float}:
        reason += f" {value!r:.60}"
        if reason.startswith("expected a list, got") and path in getattr(kind, "__struct_fields__", ()):
            reason += f"; write [[{path}]] for each, or a key of that name below the heading of its table"
    if choices := _choices(kind, path):
        reason = f"expected one of {', '.join(choices)}, got {_value_at(document, path)!r}"
    return f"{path or 'the file'}: {reason}"


def _name_types(match: re.Match[str]) -> str:
    """Name the types `int | array | null` as in TOML, which has no null: a whole number or a list."""
    return " or ".join(_TYPE_NAMES[name] for name in match[1].split(" | ") if name != "null")


def _value_at(document: Any, path: str) -> Any:
    """Return the value of the document at a path such as domain[0].name."""
    for name in _steps(path):
        document = document[int(name.strip("[]"))] if name.startswith("[") else document[name]
    return document


def _steps(path: str) -> list[str]:
    """Split a path into names and indexes: domain[0].name into domain, [0] and name."""
    return re.findall(r"[^.\[\]]+|\[[^\]]*\]", path)


def _kind_at(kind: Any, path: str) -> Any:
    """Return the type of the key at `path`, without its limits."""
    for name in _steps(path):
        if name.startswith("["):
            kind = get_args(kind)[0] if get_args(kind) else None
        elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            kind = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}.get(name)
        kind = _without_limits(kind)
    return kind


def _without_limits(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _words_beside_numbers(kind: Any, path: str) -> list[str]:
    """Return the words allowed in place of a number for the key at `path`; empty for other keys."""
    kind = _kind_at(kind, path)
    members = get_args(kind) if get_origin(kind) in {Union, UnionType} else ()
    return [word for member in members if get_origin(member) is Literal for word in get_args(member)]


def _choices(kind: Any, path: str) -> list[str]:
    """Return the values allowed for the key at `path`; empty unless the key is an enumeration."""
    values = get_args(_kind_at(kind, path))
    return [str(value) for value in values] if values and all(isinstance(v, (str, int)) for v in values) else []
