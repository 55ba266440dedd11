"""`headgate config`, and the options with which other commands read the configuration file and override its keys.

An option that is generated from a table takes its name, type, limits and default from a field, and its help from the
first sentence of the docstring of the field, so that each key is described once. An option that is not given has the
value None, so that the value of the file remains.
"""

import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click
import msgspec

from headgate.cli.output import format_count, printable
from headgate.cli.params import Parsed, misuse_if
from headgate.cli.program import CommandGroup
from headgate.config import Configuration, check, log_warnings, read, schema, show
from headgate.config.environment import Setting, parse_value, read_environment
from headgate.config.file import field_docs
from headgate.config.key_types import find_key, takes_list, union_members, unwrap, value_at
from headgate.config.proxy_section import Proxy
from headgate.config.section import ConfigSection, Format, parse_optional_address, with_value
from headgate.config.toml_reader import key_file_warnings, parse_toml, read_text
from headgate.config.tree import Router, Sidecar
from headgate.errors import ConfigurationError, fail_if, naming

DEFAULT_FILE = "headgate.toml"
"""The file that is read by default, if it is in the working directory."""
_FIRST_SENTENCE = re.compile(r".*?[.](?=\s|$)", re.DOTALL)
_KEY = re.compile(r"`(\w+)`")
CONFIG: Callable[..., Any] = click.option(
    "--config",
    "file",
    metavar="FILE",
    help=f"Configuration file; by default {DEFAULT_FILE} in the working directory, if it exists.",
)
LOG_KEYS = "log.lines=--log-format", "log.level=--log-level"
"""The keys of the program log, flags of every server."""
_FILE: Callable[..., Any] = click.argument("named", metavar="[FILE]", required=False)


@click.group(cls=CommandGroup, short_help="Check, show or describe a configuration file.")
def config() -> None:
    """Check, show or describe a configuration file."""


@config.command("check", short_help="Check a file.")
@_FILE
@CONFIG
def check_file(named: str | None, file: str | None) -> None:
    """Check FILE, with what the environment sets: print the first error, or that the file is valid."""
    tree, name = Options(_one_name(named, file)).read()
    if environment():
        name = name or "the environment"
    if name is None:
        raise ConfigurationError(f"{DEFAULT_FILE} does not exist here; name a file: headgate config check FILE")
    with naming(name):
        warnings = check_servers(tree)
    for warning in warnings:
        warn(warning)
    click.echo(f"{name}: valid, {format_count(len(tree.domain), 'domain')}")


def check_servers(tree: Configuration) -> list[str]:
    """Raise `ConfigurationError` for what a server that the tree describes refuses at its start; return warnings."""
    # A prefetch proxy runs with the extra `proxy` alone.
    has_proxy_only = tree.proxy != Proxy() and tree == Configuration(proxy=tree.proxy, log=tree.log)
    warnings: list[str] = []
    log_warnings(tree, warnings.append)
    if not has_proxy_only:
        warnings += _check_gate(tree)
    if tree.proxy != Proxy():
        from headgate.runtime.prefetch_proxy_process import check_proxy

        check_proxy(tree.proxy)
    if tree.sidecar != Sidecar():
        from headgate.runtime.sidecar import check_sidecar

        check_sidecar(tree)
    return warnings


def warn(warning: str) -> None:
    """Print a warning."""
    click.echo(f"headgate: {warning}", err=True)


def _check_gate(tree: Configuration) -> list[str]:
    """Raise `ConfigurationError` for what a gate, a master or a router refuses at its start; return warnings."""
    from headgate.link.curve import read_server_keys
    from headgate.runtime.bus_protection import (
        bus_warnings,
        require_protection,
        require_quota_protection,
    )
    from headgate.runtime.gate_build import check_composition, snapshot_file
    from headgate.runtime.router import read_keys, require_masters
    from headgate.runtime.snapshot import snapshot_path

    check_composition(tree)
    read_server_keys(tree.master.curve_key, tree.master.curve_allow, "master")
    require_protection("master", tree.master)
    require_quota_protection(tree.master)
    if tree.master.snapshot:
        snapshot_path(tree.master.snapshot)
    if snapshot_file(tree, None):
        snapshot_path(tree.limit.snapshot, "limit.snapshot")
    read_keys(tree)
    if tree.router != Router():
        require_protection("router", tree.router)
        require_masters(tree)
    keys = tree.gate.curve_key, tree.sidecar.curve_key
    return [*bus_warnings(tree.master), *bus_warnings(tree.router), *key_file_warnings(*keys)]


@config.command("show", short_help="Print the effective configuration with its documentation.")
@_FILE
@CONFIG
def show_file(named: str | None, file: str | None) -> None:
    """Print the effective configuration with its documentation: environment over FILE over defaults.

    A comment behind each value that is not a default says where it comes from: the file, or the name of a variable.

    Each key is also an environment variable, HEADGATE_SECTION_KEY: HEADGATE_GATE_TIMEOUTS_RESPONSE=30 for
    gate.timeouts.response, lists by comma. With _FILE after its name, a variable names a file with the value, such as a
    secret. Flags of a command override the environment. Tables that can be repeated, such as [[domain]], can only be
    in the file.

    The password in the URL of a Redis server, and the value of a header that may be a credential, are printed as ***.

    A table that FILE lacks and that can be repeated, such as [[domain]], is commented out.
    """
    tree, name = Options(_one_name(named, file)).read()
    click.echo(show(tree, _origins(name, environment())), nl=False)


def _origins(name: str | None, settings: Mapping[str, Setting]) -> Callable[[str], str]:
    """Return the function that tells where the value of the key at a path comes from; empty for a default."""
    document = {} if name is None else parse_toml(read_text(name, advice="name a readable file"), name)[0]

    def origin_of(path: str) -> str:
        if path in settings:
            return settings[path].variable
        with suppress(LookupError):
            value_at(document, path)
            return printable(name or "")
        return ""

    return origin_of


@config.command("schema")
@click.option("--config", "file", metavar="FILE", help="Ignored; the schema is the same for every file.")
def print_schema(file: str | None) -> None:  # noqa: ARG001  # as its help says
    """Print the JSON Schema of the file."""
    click.echo(json.dumps(schema(), indent=2, default=list))


def _one_name(named: str | None, file: str | None) -> str | None:
    """Return the file name, which may be given with or without `--config`."""
    misuse_if(named is not None and file is not None, f"two files are given, {named!r} and {file!r}; give only one")
    return file if named is None else named


def configuration(file: str | None) -> tuple[Configuration, str | None]:
    """Read the named file, or the default file if it exists; return the tree and the name of the file."""
    if file is None and not Path(DEFAULT_FILE).is_file():
        return Configuration(), None
    name = file if file is not None else DEFAULT_FILE
    fail_if(not name, "--config: empty file name; give a file name, or leave the option out")
    return read(name), name


def environment(warn: Callable[[str], None] = lambda _sentence: None) -> dict[str, Setting]:
    """Return what the environment of this process sets; see `read_environment`."""
    return read_environment(os.environ, warn)


@dataclass(frozen=True)
class Options:
    """The options of a server's command: a file, if one is named, and the keys that flags set."""

    file: str | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)
    """Values by the path of their key, such as gate.tls.cert."""

    def read(self) -> tuple[Configuration, str | None]:
        """Read the file, apply environment and flags, at the start and at each reload; return the tree and file's name.

        Raises `ConfigurationError`; without a file, it names flags in place of keys.
        """
        tree, name = self.start()
        for path, setting in environment(lambda sentence: warn(f"warning: {sentence}")).items():
            tree = with_value(tree, path.split("."), setting.value)
        for path, value in self.flags.items():
            tree = with_value(tree, path.split("."), value)
        try:
            check(tree)
        except ConfigurationError as error:
            text = str(error)
            for table in () if name else dict.fromkeys(find_key(path)[0] for path in self.flags):
                text = name_flags(table, text)
            raise ConfigurationError(text) from None
        return self.finish(tree), name

    def start(self) -> tuple[Configuration, str | None]:
        """Return the tree that flags override, and the name of its file if it has one."""
        return configuration(self.file)

    def finish(self, tree: Configuration) -> Configuration:
        """Return the tree that takes effect, made of a valid one. Raises `ConfigurationError`."""
        return tree


def config_options(*keys: str, **types: click.ParamType[Any]) -> Callable[..., Any]:
    """Return a decorator that adds an option for each key, in this order; see `given` for their values.

    A key is written as its path, such as gate.origin, with =--flag after it for another flag than its name. The path of
    a table stands for all of its keys. `types` replaces the types of options, by the names of their keys.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for declared in reversed([one for key in keys for one in _paths(key)]):
            path, _, flag = declared.partition("=")
            command = _config_option(path, flag, types.get(path.rpartition(".")[2]))(command)
        return command

    return decorate


def given(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of `config_options` that were given on the command line, by the paths of their keys."""
    return {name.replace("__", "."): value for name, value in options.items() if value is not None and value != ()}


def _paths(key: str) -> list[str]:
    """Return the path of a key, or those of all keys of the table that it names."""
    return [key] if "." in key else [f"{key}.{name}" for name in find_key(key)[1].type.__struct_fields__]


def _config_option(path: str, flag: str, type_: click.ParamType[Any] | None) -> Callable[..., Any]:
    """Return a decorator that adds the option for one key, with its usual flag unless another is named.

    A list is an option that can be repeated, named in the singular; its help says so.
    """
    table, key = find_key(path)
    kind, extras = unwrap(key.type)
    is_list, is_text_or_list = takes_list(kind), str in union_members(kind)
    if get_origin(kind) is tuple:
        kind, extras = unwrap(get_args(kind)[0])
    names = (flag or _flag(key.name, is_list=is_list), path.replace(".", "__"))
    text = _help(table, key.name, key.default, is_list=is_list)
    if kind is bool:
        return click.option(*names, is_flag=True, default=None, help=text)
    return click.option(
        *names,
        type=type_ or _param_type(path, kind, extras, is_list=is_list),
        metavar=_metavar(kind, extras),
        multiple=is_list,
        callback=(lambda _context, _option, texts: texts[0] if len(texts) == 1 else texts) if is_text_or_list else None,
        help=text,
    )


def name_flags(table: type[ConfigSection], text: str) -> str:
    """Replace each key of `table` that stands in backquotes by its flag: --token-key for `token_keys`."""

    def flag(match: re.Match[str]) -> str:
        field = next((field for field in msgspec.structs.fields(table) if field.name == match[1]), None)
        if field is None:
            return match[0]
        return _flag(match[1], is_list=takes_list(unwrap(field.type)[0]))

    return _KEY.sub(flag, text)


def _flag(name: str, *, is_list: bool) -> str:
    singular = re.sub(r"(?<=ss)es$|(?<!s)s$", "", name) if is_list else name
    return f"--{singular.replace('_', '-')}"


def _help(table: type[ConfigSection], name: str, default: Any, *, is_list: bool) -> str:
    found = _FIRST_SENTENCE.match(field_docs(table)[name])
    assert found is not None
    sentence = name_flags(table, " ".join(found[0].split()))
    if is_list:
        sentence = f"{sentence.removesuffix('.')}; repeatable."
    elif isinstance(default, tuple):
        default = ",".join(map(str, default))
    shown = f"{default:g}" if isinstance(default, float) else default
    return sentence if default in {"", ()} or default is False else f"{sentence}  [default: {shown}]"


def _metavar(kind: Any, extras: tuple[Any, ...]) -> str | None:
    if get_origin(kind) is Literal:
        return None
    metavar = next((extra.metavar for extra in extras if isinstance(extra, Format)), None)
    return metavar or ("N" if kind is int else None)


def _param_type(path: str, kind: Any, extras: tuple[Any, ...], *, is_list: bool) -> click.ParamType[Any]:
    """Return the type of an option for the key at `path`, or for a member of the list that it is."""
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind))
    parse = next((extra.parse for extra in extras if isinstance(extra, Format)), None)
    if kind is str and parse is None:
        return click.STRING

    def value_of(text: str) -> Any:
        fail_if(not text and parse is not parse_optional_address, "empty; give a value, or leave the option out")
        try:
            return parse_value(path, [text])[0] if is_list else parse_value(path, text)
        except ConfigurationError as error:
            raise ConfigurationError(str(error).partition(": ")[2]) from None

    return Parsed({int: "integer", str: "text"}.get(kind, "number"), value_of)
