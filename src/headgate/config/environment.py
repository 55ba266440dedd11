"""Keys of the configuration in environment variables: HEADGATE_GATE_LISTEN for gate.listen.

A list is separated by commas. HEADGATE_MASTER_STORE_FILE names a file with the value of HEADGATE_MASTER_STORE: a secret
in the environment is visible to more processes than a file. Tables that can be repeated, such as [[domain]], have no
variables. The environment is an argument: this file does not read it.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from typing import Any, Final, NamedTuple, get_origin

from headgate.config.key_types import kind_at, tables, takes_list, unwrap
from headgate.config.toml_reader import convert_document, read_text
from headgate.config.validation import check_texts
from headgate.errors import ConfigurationError, fail_if, naming

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
            with naming(variable):
                text = read_text(text, advice="name a readable file").rstrip("\r\n")
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
    headings = dict(tables())
    paths = (
        f"{heading.strip('[]')}.{name}"
        for heading, kind in headings.items()
        if not heading.startswith("[[")
        for name in kind.__struct_encode_fields__
    )
    keys = [path for path in paths if headings.keys().isdisjoint((f"[{path}]", f"[[{path}]]"))]
    return {_PREFIX + path.replace(".", "_").upper(): path for path in keys}


def _parse(path: str, variable: str, text: str) -> Any:
    """Return the value of the key at `path`; raises `ConfigurationError`, which names the variable."""
    kind, _ = unwrap(kind_at(path))
    given: str | list[str] = text
    if takes_list(kind) and ("," in text or get_origin(kind) is tuple):
        given = [one.strip() for one in text.split(",") if one.strip()]
    try:
        return parse_value(path, given)
    except ConfigurationError as error:
        raise ConfigurationError(str(error).replace(path, variable, 1)) from None


def parse_value(path: str, given: str | list[str]) -> Any:
    """Return the value of the key at `path` for a text, or a list of texts, of the environment or of an option.

    Raises `ConfigurationError`, which begins with the path.
    """
    document: Any = given
    for name in reversed(path.split(".")):
        document = {name: document}
    tree = convert_document(document, strict=False)
    check_texts(tree)
    return attrgetter(path)(tree)
