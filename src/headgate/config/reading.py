"""TOML to the tree: the one reader, and the sentences it says when the file is off.

Every error is one `ConfigurationError` that names the file, the dotted path of the key, and what would be right.
"""

import difflib
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from headgate.config.address import Address
from headgate.config.proxy import Proxy
from headgate.config.tree import Configuration
from headgate.errors import ConfigurationError
from headgate.limit import Rule

__all__ = ["check", "parse", "read"]

_WHERE = re.compile(r" - at `\$\.?(?P<path>.*)`$")
_WORDS = {
    "`int`": "a whole number",
    "`float`": "a number",
    "`str`": "a text",
    "`bool`": "true or false",
    "`array`": "a list",
    "`object`": "a table",
}
_MISSING = re.compile(r"object missing required field `([^`]*)`")
_PATH = re.compile(r"/[^\x00-\x20?#\x7f-\U0010ffff]*")
_BUS = re.compile(r"tcp://(?P<address>.+)|ipc://.+")


def read(path: str | Path) -> Configuration:
    """Read the file at `path`; raises `ConfigurationError` in one sentence that names it."""
    try:
        text = Path(path).read_bytes().decode("utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror or error}; name a readable file with --config") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: byte {error.start} is not UTF-8; TOML is always UTF-8") from None
    return parse(text, name=str(path))


def parse(text: str, *, name: str = "headgate.toml") -> Configuration:
    """Read a file's text; `name` is what errors call it."""
    try:
        # Editors on Windows put a byte order mark before the text; TOML 1.1 takes one.
        document = tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{name}: not TOML: {error}") from None
    except RecursionError:
        raise ConfigurationError(f"{name}: not TOML that can be read: it is nested too deeply") from None
    for path, key, valid in _unknown(document, Configuration, ""):
        raise ConfigurationError(f"{name}: {path}: unknown key; {_nearest(key, valid)}")
    try:
        tree = _converted(document)
        check(tree)
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}") from None
    return tree


def check(tree: Configuration) -> None:
    """Check a file, or one with flags laid over it; raises `ConfigurationError` with the dotted path."""
    _converted(msgspec.to_builtins(tree))  # flags are laid over values that were checked, and are not themselves
    gate = tree.gate
    _told("gate.listen", Address.parse, gate.listen)
    if gate.admin:
        _told("gate.admin", Address.parse, gate.admin)
    _told("gate.master", _check_master, gate.master)
    if bool(gate.tls.cert) != bool(gate.tls.key):
        raise ConfigurationError("gate.tls: a certificate and its key come together; set both cert and key")
    _told("master.listen", _check_bus, tree.master.listen)
    seen: set[str] = set()
    for index, section in enumerate(tree.domain):
        for number, text in enumerate(section.rules):
            _told(f"domain[{index}].rules[{number}]", Rule.parse, text)
        _told(f"domain[{index}]", section.domain)
        if section.name in seen:
            raise ConfigurationError(f"domain[{index}].name: {section.name!r} is taken; each domain has its own name")
        seen.add(section.name)
    _check_proxy(tree.proxy)


def _converted(document: Any) -> Configuration:
    try:
        return msgspec.convert(document, Configuration)
    except msgspec.ValidationError as error:
        raise ConfigurationError(_sentence(str(error))) from None


def _check_proxy(proxy: Proxy) -> None:
    _told("proxy.listen", Address.parse, proxy.listen)
    if proxy.admin:
        _told("proxy.admin", Address.parse, proxy.admin)
    if proxy.client_rate != "off":
        _told("proxy.client_rate", Rule.parse, proxy.client_rate)
    if bool(proxy.cert) != bool(proxy.key):
        raise ConfigurationError("proxy: a certificate and its key come together; set both cert and key")
    ways = [name for name in ("cert", "self_signed", "plaintext") if getattr(proxy, name)]
    if len(ways) > 1:
        raise ConfigurationError(f"proxy: {' and '.join(ways)} are two ways to listen; leave one of them out")
    if proxy.client_ca and proxy.plaintext:
        raise ConfigurationError("proxy: client_ca needs TLS, which plaintext does without; leave one of them out")
    if proxy.token_store and not proxy.token_keys:
        raise ConfigurationError("proxy.token_store: no token is asked for that it could remember; set token_keys")
    if _PATH.fullmatch(proxy.geofeed_path) is None:
        raise ConfigurationError(f"proxy.geofeed_path: {proxy.geofeed_path!r} is no path; try '/geofeed.csv'")


def _told(path: str, made: Callable[..., Any], *given: str) -> None:
    try:
        made(*given)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None


def _check_master(text: str) -> None:
    match = _BUS.fullmatch(text)
    if text != "embedded" and match is None:
        raise ConfigurationError(f"{text!r} is no master; use 'embedded' or 'tcp://HOST:PORT'")
    if match is not None and match["address"]:
        _check_bus(match["address"])


def _check_bus(text: str) -> None:
    if Address.parse(text).port == 65_535:
        raise ConfigurationError(f"{text!r} leaves no port for control, which is the next one; use one below 65535")


def _unknown(value: object, kind: Any, path: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield each key that the tree does not have: its path, itself, and the keys it could have been."""
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


def _nearest(key: str, valid: list[str]) -> str:
    if headings := _headings(key):
        return f"it belongs under {' or '.join(headings)}"
    near = difflib.get_close_matches(key.lower().replace("-", "_"), valid, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(valid)}"


def _headings(key: str) -> list[str]:
    """Return the headings of the sections that have a key of this name, as TOML writes them."""
    found = []
    for section in msgspec.structs.fields(Configuration):
        is_list = get_origin(section.type) is tuple
        kind = get_args(section.type)[0] if is_list else section.type
        if key in {field.encode_name for field in msgspec.structs.fields(kind)}:
            found.append(f"[[{section.name}]]" if is_list else f"[{section.name}]")
    return found


def _sentence(message: str) -> str:
    """Turn msgspec's message into path first, then words an operator uses."""
    match = _WHERE.search(message)
    path = match["path"] if match else ""
    said = message[: match.start()] if match else message
    for name, words in _WORDS.items():
        said = said.replace(name, words)
    said = _MISSING.sub(r"the key '\1' is missing", said[:1].lower() + said[1:])
    if said == "expected a list, got a table":
        said += f"; write [[{path}]] for each, in place of [{path}]"
    choices = _choices(Configuration, path)
    if choices:
        said = f"{said.removeprefix('invalid enum value ')} is none of {', '.join(choices)}"
    return f"{path or 'the file'}: {said}"


def _choices(kind: Any, path: str) -> list[str]:
    """List the values of the enumerated key at `path`; none when it is not one."""
    for name in re.findall(r"[^.\[\]]+|\[[^\]]*\]", path):
        if name.startswith("["):
            kind = get_args(kind)[0] if get_args(kind) else None
        elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            kind = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}.get(name)
    values = get_args(kind)
    return [str(value) for value in values] if values and all(isinstance(v, (str, int)) for v in values) else []
