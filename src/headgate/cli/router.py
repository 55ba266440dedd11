"""`headgate router`: spreads accounting over several masters."""

from typing import Any

import click

from headgate.cli.config import CONFIG, LOG_KEYS, Options, config_options, given
from headgate.config import Configuration


class RouterOptions(Options):
    """The options of a router."""

    def finish(self, tree: Configuration) -> Configuration:
        """Return the tree; raises `ConfigurationError` without a master."""
        from headgate.runtime.router import require_masters

        require_masters(tree)
        return tree


@click.command()
@CONFIG
@config_options("router", *LOG_KEYS)
def router(*, file: str | None, **flags: Any) -> None:
    """Run a router: gatekeepers connect to it as to a master, and it spreads their accounting over several masters.

    Each domain has one of the masters that are connected. When a master is lost, only its domains move to others; they
    return when it is back. Control messages come from all masters. Routers keep no state: several with the same masters
    may run side by side.

    \b
    headgate router --master 10.0.0.5:10004 --master 10.0.0.6:10004
    headgate router --listen 10.0.0.4:10004 --master 10.0.0.5:10004 --master 10.0.0.6:10004 \\
        --curve-key secret.key --curve-allow allowed.keys --curve-server masters/public.key
    """
    from headgate.runtime.lifecycle import run_server
    from headgate.runtime.router import RouterServer

    click.get_current_context().exit(run_server(RouterServer(RouterOptions(file, given(flags)).read)))
