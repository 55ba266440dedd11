"""`headgate master`: a master for gatekeepers elsewhere."""

from dataclasses import dataclass
from typing import Any, Final

import click
from msgspec.structs import replace

from headgate.cli.config import CONFIG, LOG_KEYS, Options, config_options, configuration, given
from headgate.cli.params import Parsed
from headgate.config import Configuration, DomainSection
from headgate.errors import fail_if

_KEYS: Final = (
    "master.listen",
    "master.rlqs",
    "master.rlqs_cert",
    "master.rlqs_key",
    "master.store",
    "master.snapshot",
    "master.admin",
    "master.curve_key",
    "master.curve_allow",
    "master.insecure",
    *LOG_KEYS,
)


def _parse_domain(text: str) -> tuple[str, tuple[str, ...]]:
    """Parse NAME=RULE[;RULE…]; a name may contain '=', a rule cannot."""
    from headgate.limit import Domain, Rule

    name, equals, rules = text.rpartition("=")
    fail_if(not equals, f"invalid domain {text!r}; expected NAME=RULE, such as 'api=10/s burst 20'")
    fail_if(not name.isprintable(), f"invalid domain name {name!r}; expected printable characters")
    texts = tuple(text.strip() for text in rules.split(";"))
    # Limits of the algorithm are checked when the algorithm is known.
    Domain(name.strip(), tuple(map(Rule.parse, texts)), "gcra")
    return name.strip(), texts


@dataclass(frozen=True)
class MasterOptions(Options):
    """The options of a master."""

    domains: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Names of domains with their rules; they are added to those of the file, or replace the rules of one."""

    def start(self) -> tuple[Configuration, str | None]:
        """Return the tree of the file with the domains of the command line."""
        tree, name = configuration(self.file)
        sections = {section.name: section for section in tree.domain}
        for domain, rules in self.domains:
            fail_if(
                [other for other, _ in self.domains].count(domain) > 1,
                f"--domain {domain!r} is given twice; put all of its rules in one option, separated by ;",
            )
            sections[domain] = replace(sections.get(domain) or DomainSection(name=domain), rules=rules)
        return replace(tree, domain=tuple(sections.values())), name

    def finish(self, tree: Configuration) -> Configuration:
        """Return the tree; raises `ConfigurationError` without a domain."""
        fail_if(
            not tree.domain,
            "no domain: add --domain 'default=10/s burst 20', or a [[domain]] to the configuration file",
        )
        return tree


@click.command()
@CONFIG
@config_options(*_KEYS)
@click.option(
    "--domain",
    "domains",
    type=Parsed("name=rule", _parse_domain),
    metavar="NAME=RULE[;RULE…]",
    multiple=True,
    help="Domain with its rules; repeatable.",
)
@config_options("domain.algorithm")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line of counts every second.")
def master(
    *,
    file: str | None,
    domains: tuple[tuple[str, tuple[str, ...]], ...],
    as_json: bool,
    **flags: Any,
) -> None:
    """Run a master: it counts the requests that gatekeepers report, and publishes which clients to hold.

    Gatekeepers send accounting messages to the listening port, and subscribe to control messages at the next port.
    Domains can be part of a configuration file; SIGHUP reloads it.

    \b
    headgate master --domain 'default=10/s burst 20'
    headgate master --domain 'api=10/s;1000/h burst 50' --domain 'search=1/s' --json
    headgate master --domain 'api=500/s burst 50' --algorithm gcra --rlqs 127.0.0.1:10006
    headgate master --domain 'default=10/s' --listen 10.0.0.5:10004 --curve-key secret.key --curve-allow allowed.keys
    """
    from headgate.runtime.lifecycle import run_server
    from headgate.runtime.master_server import MasterServer

    options = MasterOptions(file, given(flags), domains)
    click.get_current_context().exit(run_server(MasterServer(options.read, as_json=as_json)))
