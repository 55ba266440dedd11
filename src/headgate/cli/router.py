"""`headgate router`: spreads accounting over several masters."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from headgate.cli.config import CONFIG, check_flags, config_options, configuration, given
from headgate.config.tree import Router

if TYPE_CHECKING:
    from headgate.config import Configuration


@dataclass(frozen=True)
class RouterOptions:
    """The options of the command line; they override the file each time that it is read."""

    file: str | None = None
    router: dict[str, Any] = field(default_factory=dict)
    """Keys of [router]."""

    def read(self) -> "tuple[Configuration, str | None]":
        """Read the file and apply the options; return the tree, and the name of the file if there is one."""
        from msgspec.structs import replace

        from headgate.runtime.router import require_masters

        tree, name = configuration(self.file)
        tree = replace(tree, router=replace(tree.router, **self.router))
        check_flags(tree, name, Router)
        require_masters(tree)
        return tree, name


@click.command()
@CONFIG
@config_options(Router)
def router(*, file: str | None, **settings: Any) -> None:
    """Run a router: gatekeepers connect to it as to a master, and it spreads their accounting over several masters.

    Each domain has one of the masters that are connected. When a master is lost, only its domains move to others; they
    return when it is back. Control messages come from all masters. Routers keep no state: several with the same masters
    may run side by side.

    \b
    headgate router --master 10.0.0.5:10004 --master 10.0.0.6:10004
    headgate router --listen 10.0.0.4:10004 --master 10.0.0.5:10004 --master 10.0.0.6:10004 \\
        --curve-key secret.key --curve-allow allowed.keys --curve-server masters/public.key
    """
    from headgate.runtime.router import run_router

    options = RouterOptions(file, given(settings))
    click.get_current_context().exit(run_router(options.read))
