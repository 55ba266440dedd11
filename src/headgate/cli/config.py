"""`headgate config`: check a configuration file, show the effective configuration, print the schema."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headgate.cli.output import format_count
from headgate.errors import ConfigurationError

if TYPE_CHECKING:
    from headgate.config import Configuration


DEFAULT_FILE = "headgate.toml"
"""The file that is read by default, if it is in the working directory."""

CONFIG: Callable[..., Any] = click.option(
    "--config",
    "file",
    metavar="FILE",
    help=f"Configuration file; by default {DEFAULT_FILE} in the working directory, if it exists.",
)

_FILE: Callable[..., Any] = click.argument("named", metavar="[FILE]", required=False)


def configuration(file: str | None) -> "tuple[Configuration, str | None]":
    """Read the named file, or the default file if it exists; return the tree and the name of the file."""
    from headgate.config import Configuration, read

    if file is None and not Path(DEFAULT_FILE).is_file():
        return Configuration(), None
    name = file if file is not None else DEFAULT_FILE
    if not name:
        raise ConfigurationError("--config: empty file name; give a file name, or leave the option out")
    return read(name), name


@click.group(short_help="Check, show or describe a configuration file.")
def config() -> None:
    """Check, show or describe a configuration file."""


@config.command()
@_FILE
@CONFIG
def check(named: str | None, file: str | None) -> None:
    """Check FILE: print the first error, or that the file is valid."""
    from headgate.config import log_warnings
    from headgate.config.tree import Proxy
    from headgate.runtime.gate.build import check_composition

    tree, name = configuration(_one_name(named, file))
    if name is None:
        raise ConfigurationError(f"{DEFAULT_FILE} does not exist here; name a file: headgate config check FILE")
    try:
        check_composition(tree)
        if tree.proxy != Proxy():
            from headgate.runtime.prefetch_proxy.build import check_proxy

            check_proxy(tree.proxy)
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}") from None
    log_warnings(tree, lambda sentence: click.echo(sentence, err=True))
    click.echo(f"{name}: valid, {format_count(len(tree.domain), 'domain')}")


@config.command()
@_FILE
@CONFIG
def show(named: str | None, file: str | None) -> None:
    """Print the effective configuration: the keys of FILE and the defaults of all others, with their documentation."""
    from headgate.config import show as written

    tree, _ = configuration(_one_name(named, file))
    click.echo(written(tree), nl=False)


def _one_name(named: str | None, file: str | None) -> str | None:
    """Return the file name, which may be given with or without `--config`."""
    if named is not None and file is not None:
        raise click.UsageError(f"two files are given, {named!r} and {file!r}; give only one")
    return file if named is None else named


@config.command()
@click.option("--config", "file", metavar="FILE", help="Ignored; the schema is the same for every file.")
def schema(file: str | None) -> None:  # noqa: ARG001  # as its help says
    """Print the JSON Schema of the file."""
    import json

    from headgate.config import schema as described

    click.echo(json.dumps(described(), indent=2, default=list))
