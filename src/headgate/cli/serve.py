"""`headgate serve`: the gate, in one process or several, and its demonstration."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from headgate.cli.config import CONFIG, check_flags, config_option, config_options, configuration, given
from headgate.cli.params import RULE, Parsed, whole_number_or
from headgate.config import DomainSection, Gate
from headgate.config.advice_section import AdviceSection
from headgate.config.limit_section import MAX_IN_FLIGHT, ConcurrencySection
from headgate.config.tree import Timeouts, Tls
from headgate.errors import ConfigurationError

if TYPE_CHECKING:
    from headgate.config import Configuration


_GATE_KEYS = (
    "origin",
    "listen",
    "admin",
    "identify",
    "max_delay",
    "master",
    "curve_key",
    "curve_server",
    "shard",
    "workers",
)


@dataclass(frozen=True)
class ServeOptions:
    """The options of the command line; they override the file each time that it is read."""

    file: str | None = None
    demo: bool = False
    gate: dict[str, Any] = field(default_factory=dict)
    """Keys of [gate]."""
    timeouts: dict[str, Any] = field(default_factory=dict)
    """Keys of [gate.timeouts]."""
    tls: dict[str, Any] = field(default_factory=dict)
    """Keys of [gate.tls]."""
    concurrency: dict[str, Any] = field(default_factory=dict)
    """Keys of [limit.concurrency]."""
    advice: dict[str, Any] = field(default_factory=dict)
    """Keys of [advice]."""
    rules: tuple[str, ...] = ()
    """Rules of the domain `default`."""

    @property
    def admin_is_chosen(self) -> bool:
        """Whether the operator chose the admin address; if the default address is in use, the gate starts without."""
        return self.demo or "admin" in self.gate

    def read(self) -> "tuple[Configuration, str | None]":
        """Read the file and apply the options; return the tree, and the name of the file if there is one."""
        from msgspec.structs import replace

        if self.demo and not self.file:
            from headgate.runtime.demo_origin import demo_configuration

            tree, name = demo_configuration(), None
        else:
            tree, name = configuration(self.file)
        timeouts = replace(tree.gate.timeouts, **self.timeouts)
        tls = replace(tree.gate.tls, **self.tls)
        limit = replace(tree.limit, concurrency=replace(tree.limit.concurrency, **self.concurrency))
        tree = replace(tree, gate=replace(tree.gate, timeouts=timeouts, tls=tls, **self.gate), limit=limit)
        tree = replace(tree, advice=replace(tree.advice, **self.advice))
        if self.rules:
            tree = replace(tree, domain=_with_rules(tree.domain, self.rules))
        check_flags(tree, name, Tls, AdviceSection)
        if "queue" in self.concurrency and not tree.limit.concurrency.is_on:
            _warn("--queue has no effect without a concurrency limit; add --max-in-flight")
        if "capacity" in self.advice and not tree.advice.computes:
            _warn("--capacity has no effect in advice mode 'static'; add --advice-mode adaptive")
        return tree, name


def _warn(sentence: str) -> None:
    click.echo(f"headgate: warning: {sentence}", err=True)


def _with_rules(sections: tuple[DomainSection, ...], rules: tuple[str, ...]) -> tuple[DomainSection, ...]:
    """Set the rules of the domain `default`; if it is missing, add it after the others, for all other requests.

    Raises `ConfigurationError` if no request would reach it.
    """
    from msgspec.structs import replace

    from headgate.runtime.gate_build import CATCH_ALL

    if any(section.name == CATCH_ALL for section in sections):
        return tuple(replace(one, rules=rules) if one.name == CATCH_ALL else one for one in sections)
    for section in sections:
        if section.takes_all:
            raise ConfigurationError(
                f"--rule applies to requests that match no domain of the file, but {section.name!r} matches all "
                f"requests; leave --rule out, or rename that domain to {CATCH_ALL!r} to replace its rules"
            )
    return (*sections, DomainSection(name=CATCH_ALL, rules=rules))


@click.command()
@CONFIG
@click.option("--demo", is_flag=True, help="Start a sample origin behind the gate, and print commands to try.")
@config_options(Gate, _GATE_KEYS)
@config_option(Timeouts, "response", "--response-timeout", "response_timeout")
@config_options(Tls, ["cert", "key"])
@config_option(
    ConcurrencySection,
    "max",
    "--max-in-flight",
    "max_in_flight",
    type_=Parsed("N|learned", whole_number_or("learned", MAX_IN_FLIGHT)),
)
@config_option(ConcurrencySection, "queue")
@config_option(ConcurrencySection, "healthy_latency")
@config_option(AdviceSection, "capacity")
@config_option(AdviceSection, "mode", "--advice-mode", "advice_mode")
@click.option(
    "--rule",
    "rules",
    type=RULE,
    multiple=True,
    help="Rule for the domain 'default', such as '10/s burst 20'; repeatable.",
)
def serve(
    *,
    file: str | None,
    demo: bool,
    rules: tuple[str, ...],
    response_timeout: float | None,
    cert: str | None,
    key: str | None,
    max_in_flight: int | str | None,
    queue: int | None,
    healthy_latency: float | None,
    capacity: str | None,
    advice_mode: str | None,
    **gate: Any,
) -> None:
    """Run a gate: a reverse proxy that limits the requests that reach an origin.

    Rules, domains and all other settings can be keys of a configuration file (see: headgate config show); flags
    override the file. --rule replaces the rules of the domain 'default', or adds that domain for all requests that
    match no other. SIGTERM drains; SIGHUP reloads the file and the certificate.

    --demo starts a gate to try by hand; `headgate demo` shows an overload, and what the gate does about it.

    \b
    headgate serve --demo
    headgate serve --origin http://127.0.0.1:8000 --rule '10/s burst 20'
    headgate serve --origin http://127.0.0.1:8000 --max-in-flight learned --healthy-latency 0.2
    headgate serve --origin http://127.0.0.1:8000 --master 10.0.0.5:10004
    headgate serve --origin http://127.0.0.1:8000 --master 10.0.0.5:10004 --master 10.0.0.6:10004
    """
    if demo and gate["origin"]:
        raise click.UsageError("--demo starts its own origin; use either --demo or --origin")
    options = ServeOptions(
        file,
        demo=demo,
        gate=given(gate),
        timeouts=given({"response": response_timeout}),
        tls=given({"cert": cert, "key": key}),
        concurrency=given({"max": max_in_flight, "queue": queue, "healthy_latency": healthy_latency}),
        advice=given({"capacity": capacity, "mode": advice_mode}),
        rules=rules,
    )
    from headgate.runtime.gate_server import GateOptions, run_gate

    run_options = GateOptions(options.read, demo=demo, require_admin=options.admin_is_chosen)
    click.get_current_context().exit(run_gate(run_options))
