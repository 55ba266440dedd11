"""`headgate serve`: the gate, in one process or several, and its demonstration."""

from dataclasses import dataclass
from typing import Any, Final

import click
from msgspec.structs import replace

from headgate.cli.config import CONFIG, LOG_KEYS, Options, config_options, environment, given, warn
from headgate.cli.params import RULE, misuse_if
from headgate.config import Configuration, DomainSection
from headgate.errors import fail_if

_KEYS: Final = (
    "gate.origin",
    "gate.listen",
    "gate.admin",
    "gate.identify",
    "gate.max_delay",
    "gate.master",
    "gate.curve_key",
    "gate.curve_server",
    "gate.shard",
    "gate.workers",
    "gate.timeouts.response=--response-timeout",
    "gate.tls.cert",
    "gate.tls.key",
    "limit.concurrency.max=--max-in-flight",
    "limit.concurrency.queue",
    "limit.concurrency.healthy_latency",
    "advice.capacity",
    "advice.mode=--advice-mode",
    "log.access=--access-log",
    *LOG_KEYS,
)
"""The keys that have a flag."""


@dataclass(frozen=True)
class ServeOptions(Options):
    """The options of a gate."""

    rules: tuple[str, ...] = ()
    """Rules of the domain `default`."""
    demo: bool = False

    @property
    def admin_is_chosen(self) -> bool:
        """Whether the operator chose the admin address; if the default address is in use, the gate starts without."""
        return self.demo or "gate.admin" in {*self.flags, *environment()}

    def start(self) -> tuple[Configuration, str | None]:
        """Return the tree of the file, or of the demonstration, with the rules of the command line."""
        if self.demo and not self.file:
            from headgate.runtime.demo_origin import demo_configuration

            tree, name = demo_configuration(), None
        else:
            tree, name = super().start()
        for key, table in (("gate.origin", "origin"), ("gate.listen", "listener")):
            if key in {*self.flags, *environment()}:
                tree = replace(tree, **{table: ()})  # those of the file
        return replace(tree, domain=_with_rules(tree.domain, self.rules)) if self.rules else tree, name

    def finish(self, tree: Configuration) -> Configuration:
        """Return the tree; warn of flags without effect."""
        if "limit.concurrency.queue" in self.flags and not tree.limit.concurrency.is_on:
            warn("warning: --queue has no effect without a concurrency limit; add --max-in-flight")
        if "advice.capacity" in self.flags and not tree.advice.computes:
            warn("warning: --capacity has no effect in advice mode 'static'; add --advice-mode adaptive")
        return tree


def _with_rules(sections: tuple[DomainSection, ...], rules: tuple[str, ...]) -> tuple[DomainSection, ...]:
    """Set the rules of the domain `default`; if it is missing, add it after the others, for all other requests.

    Raises `ConfigurationError` if no request would reach it.
    """
    from headgate.runtime.gate_build import CATCH_ALL

    if any(section.name == CATCH_ALL for section in sections):
        return tuple(replace(one, rules=rules) if one.name == CATCH_ALL else one for one in sections)
    for section in sections:
        fail_if(
            section.takes_all,
            f"--rule applies to requests that match no domain of the file, but {section.name!r} matches all "
            f"requests; leave --rule out, or rename that domain to {CATCH_ALL!r} to replace its rules",
        )
    return (*sections, DomainSection(name=CATCH_ALL, rules=rules))


@click.command()
@CONFIG
@click.option("--demo", is_flag=True, help="Start a sample origin behind the gate, and print commands to try.")
@config_options(*_KEYS)
@click.option(
    "--rule",
    "rules",
    type=RULE,
    multiple=True,
    help="Rule for the domain 'default', such as '10/s burst 20'; repeatable.",
)
def serve(*, file: str | None, demo: bool, rules: tuple[str, ...], **flags: Any) -> None:
    """Run a gate: a reverse proxy that limits the requests that reach an origin.

    Rules, domains and all other settings can be keys of a configuration file (see: headgate config show); environment
    variables such as HEADGATE_GATE_LISTEN override the file, and flags override both. --rule replaces the rules of the
    domain 'default', or adds that domain for all requests that match no other. SIGTERM drains; SIGHUP reloads the file
    and the certificates.

    --demo starts a gate to try by hand; `headgate demo` shows an overload, and what the gate does about it.

    \b
    headgate serve --demo
    headgate serve --origin http://127.0.0.1:8000 --rule '10/s burst 20'
    headgate serve --origin http://127.0.0.1:8000 --origin https://app.example --rule '10/s burst 20'
    headgate serve --origin http://127.0.0.1:8000 --max-in-flight learned --healthy-latency 0.2
    headgate serve --origin http://127.0.0.1:8000 --master 10.0.0.5:10004
    headgate serve --origin http://127.0.0.1:8000 --master 10.0.0.5:10004 --master 10.0.0.6:10004
    """
    options = ServeOptions(file, given(flags), rules, demo)
    misuse_if(demo and "gate.origin" in options.flags, "--demo starts its own origin; use either --demo or --origin")
    from headgate.runtime.gate_server import GateServer
    from headgate.runtime.lifecycle import run_server

    server = GateServer(options.read, demo=demo, require_admin=options.admin_is_chosen)
    click.get_current_context().exit(run_server(server))
