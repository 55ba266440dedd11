"""Keys of the configuration in environment variables: HEADGATE_GATE_LISTEN for gate.listen.

A list is separated by commas. HEADGATE_MASTER_STORE_FILE names a file with the value of HEADGATE_MASTER_STORE: a secret
in the environment is visible to more processes than a file. Tables that can be repeated, such as [[domain]], have no
variables. The environment is an argument: this file does not read it.
"""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from operator import attrgetter
from types import UnionType
from typing import Annotated, Any, Final, NamedTuple, Union, get_args, get_origin

import msgspec

from headgate.config.toml_reader import convert_document, read_text
from headgate.config.tree import Configuration
from headgate.config.validation import check_texts
from headgate.errors import ConfigurationError, fail_if

_PREFIX: Final = "HEADGATE_"
_FILE: Final = "_FILE"
_OTHERS: Final = re.compile(r"HEADGATE_(TRACEBACK|(\w+_)?(SERVICE_HOST|PORT|(SERVICE_)?PORT_\w+|SERVICE_PORT))")
"""Variables of this name for other purposes; Kubernetes sets most of them for a Service that is named headgate."""


class Setting(NamedTuple):
    """A key that a variable sets."""

    variable: str
    value: Any


def read_environment(
    environ: Mapping[str, str], warn: Callable[[str], None] = lambda _sentence: None
) -> dict[str, Setting]:
    """Return what `environ` sets, by the paths of the keys; `warn` is called for each unknown variable.

    Raises `ConfigurationError` for an invalid value, which names the variable.
    """
    keys, found = variables(), {}
    for variable in sorted(name for name in environ if name.startswith(_PREFIX)):
        text, name = environ[variable], variable
        if name not in keys and (base := name.removesuffix(_FILE)) in keys:
            fail_if(base in environ, f"{variable}: {base} is set too; set only one of them")
            name = base
            try:
                text = read_text(text, advice="name a readable file").rstrip("\r\n")
            except ConfigurationError as error:
                raise ConfigurationError(f"{variable}: {error}") from None
        if name in keys:
            found[keys[name]] = Setting(variable, _parse(keys[name], variable, text))
        elif not _OTHERS.fullmatch(variable):
            names = [name.removeprefix(_PREFIX) for name in keys]
            near = difflib.get_close_matches(variable.removeprefix(_PREFIX), names, n=1, cutoff=0.65)
            hint = f"did you mean {_PREFIX}{near[0]}?" if near else "see: headgate config show --help"
            warn(f"{variable}: unknown variable; {hint}")
    return found


@cache
def variables() -> dict[str, str]:
    """Return the paths of all keys that have a variable, by its name."""
    return {_PREFIX + path.replace(".", "_").upper(): path for path in _paths(Configuration, "")}


def _paths(table: Any, prefix: str) -> Iterator[str]:
    for field in msgspec.structs.fields(table):
        path = prefix + field.name
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from _paths(field.type, f"{path}.")
        elif not (_is_list(field.type) and hasattr(get_args(field.type)[0], "__struct_fields__")):
            yield path


def _is_list(kind: Any) -> bool:
    return get_origin(kind) is tuple


def _parse(path: str, variable: str, text: str) -> Any:
    """Return the value of the key at `path`; raises `ConfigurationError`, which names the variable."""
    table: Any = Configuration
    for name in path.split("."):
        table = next(field.type for field in msgspec.structs.fields(table) if field.name == name)
    kind = get_args(table)[0] if get_origin(table) is Annotated else table
    members = get_args(kind) if get_origin(kind) in {Union, UnionType} else ()
    document: Any = text
    if _is_list(kind) or ("," in text and any(map(_is_list, members))):
        document = [one.strip() for one in text.split(",") if one.strip()]
    for name in reversed(path.split(".")):
        document = {name: document}
    try:
        tree = convert_document(document, Configuration, strict=False)
        check_texts(tree)
    except ConfigurationError as error:
        raise ConfigurationError(str(error).replace(path, variable, 1)) from None
    return attrgetter(path)(tree)
