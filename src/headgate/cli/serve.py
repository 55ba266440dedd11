"""`headgate serve`: the gate, in one process or several, and its demonstration."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from headgate.cli.config import CONFIG, configuration
from headgate.cli.flags import ADDRESS, RULE, SECONDS
from headgate.errors import ConfigurationError

if TYPE_CHECKING:
    from headgate.config import Configuration, DomainSection

__all__ = ["Wish", "serve"]


@dataclass(frozen=True)
class Wish:
    """What was asked for on the command line; it is laid over the file each time the file is read."""

    file: str | None = None
    demo: bool = False
    gate: dict[str, Any] = field(default_factory=dict)
    """Keys of [gate] by name."""
    rules: tuple[str, ...] = ()
    response_timeout: float | None = None
    cert: str | None = None
    key: str | None = None

    @property
    def admin_is_chosen(self) -> bool:
        """Whether the operator named the admin address; one left to the default may be taken without harm."""
        return self.demo or "admin" in self.gate

    def read(self) -> "tuple[Configuration, str | None]":
        """Read the file and lay the flags over it; give the tree and the file's name, if there is one."""
        from msgspec.structs import replace

        from headgate.config.reading import check

        if self.demo and not self.file:
            from headgate.runtime.demo_origin import demo_configuration

            tree, name = demo_configuration(), None
        else:
            tree, name = configuration(self.file)
        gate = replace(tree.gate, **self.gate)
        if self.response_timeout is not None:
            gate = replace(gate, timeouts=replace(gate.timeouts, response=self.response_timeout))
        if self.cert or self.key:
            gate = replace(gate, tls=replace(gate.tls, cert=self.cert or gate.tls.cert, key=self.key or gate.tls.key))
        tree = replace(tree, gate=gate)
        if self.rules:
            tree = replace(tree, domain=_with_rules(tree.domain, self.rules))
        check(tree)
        return tree, name


def _with_rules(sections: "tuple[DomainSection, ...]", rules: tuple[str, ...]) -> "tuple[DomainSection, ...]":
    """Give the domain `default` these rules; where there is none, add one behind the others, for all other requests.

    Raises `ConfigurationError` where no request would reach it.
    """
    from msgspec.structs import replace

    from headgate.config import DomainSection
    from headgate.runtime.gate.build import CATCH_ALL

    if any(section.name == CATCH_ALL for section in sections):
        return tuple(replace(one, rules=rules) if one.name == CATCH_ALL else one for one in sections)
    for section in sections:
        if section.takes_all:
            raise ConfigurationError(
                f"--rule is for requests that no domain of the file takes, and {section.name!r} takes all of them; "
                f"leave --rule out, or name that domain {CATCH_ALL!r} to replace its rules"
            )
    return (*sections, DomainSection(name=CATCH_ALL, rules=rules))


@click.command()
@CONFIG
@click.option("--demo", is_flag=True, help="Start a sample origin behind the gate, and say what to try.")
@click.option("--origin", metavar="URL", help="Where to forward to, such as http://127.0.0.1:8000.")
@click.option("--listen", type=ADDRESS, metavar="HOST:PORT", help="Where agents connect.  [default: 127.0.0.1:8080]")
@click.option("--admin", type=ADDRESS, metavar="HOST:PORT", help="Health, metrics, state.  [default: 127.0.0.1:8090]")
@click.option(
    "--rule", "rules", type=RULE, multiple=True, help="'10/s burst 20' for the domain default; repeated: all hold."
)
@click.option("--identify", metavar="WHO", help="client-address (default), or header:NAME, else the address.")
@click.option("--max-delay", type=SECONDS, help="A request held longer is rejected.  [default: 5]")
@click.option("--response-timeout", type=SECONDS, help="For the head of the origin's response.  [default: 60]")
@click.option("--master", metavar="MASTER", help="embedded (default), or tcp://HOST:PORT of a master elsewhere.")
@click.option("--accounting", type=click.Choice(["auto", "frames", "batch"]), help="To a master.  [default: auto]")
@click.option("--workers", type=click.IntRange(1, 256), help="Processes; they share one master.  [default: 1]")
@click.option("--cert", metavar="FILE", help="TLS certificate chain, PEM; with --key. SIGHUP reads both again.")
@click.option("--key", metavar="FILE", help="Private key of --cert, PEM.")
def serve(
    *,
    file: str | None,
    demo: bool,
    rules: tuple[str, ...],
    response_timeout: float | None,
    cert: str | None,
    key: str | None,
    **gate: Any,
) -> None:
    """Put a gate before an origin: a reverse proxy that limits what reaches it.

    Rules, domains and all else can stand in a configuration file (see: headgate config show); flags override it.
    --rule replaces the rules of the domain default, or makes that domain, of all requests that no other one takes.
    SIGTERM drains, SIGHUP reads the file and the certificate again.

    \b
    headgate serve --demo
    headgate serve --origin http://127.0.0.1:8000 --rule '10/s burst 20'
    headgate serve --origin http://127.0.0.1:8000 --master tcp://10.0.0.5:10004
    """
    if demo and gate["origin"]:
        raise click.UsageError("--demo brings its own origin; leave --origin out, or --demo")
    if response_timeout == 0:
        raise click.UsageError("--response-timeout 0 would let no response through; try 60")
    flags = {name: value for name, value in gate.items() if value is not None}
    wish = Wish(file, demo, flags, rules, response_timeout, cert, key)
    tree, _ = wish.read()
    from headgate.runtime.gate.options import GateOptions
    from headgate.runtime.gate.server import serve_alone
    from headgate.runtime.gate.workers import serve_with_workers

    run = serve_alone if tree.gate.workers == 1 else serve_with_workers
    options = GateOptions(wish.read, demo=demo, require_admin=wish.admin_is_chosen)
    click.get_current_context().exit(run(options))
