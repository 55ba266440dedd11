"""`headgate master`: a master for gatekeepers elsewhere."""

from typing import TYPE_CHECKING, Any

import click

from headgate.cli.config import CONFIG, configuration
from headgate.cli.flags import ADDRESS
from headgate.errors import ConfigurationError

if TYPE_CHECKING:
    from headgate.config import Configuration

__all__ = ["master", "wished"]


class _Domain(click.ParamType[tuple[str, tuple[str, ...]]]):
    name = "name=rule"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, tuple[str, ...]]:
        """Read NAME=RULE[;RULE…]; a name may have '=' in it, a rule has none."""
        from headgate.limit import Domain, Rule

        name, equals, rules = str(value).rpartition("=")
        if not equals:
            self.fail(f"{value!r} is not NAME=RULE; try 'api=10/s burst 20'", param, ctx)
        if not name.isprintable():
            self.fail(f"{name!r} is no name of a domain; use characters that can be printed", param, ctx)
        texts = tuple(text.strip() for text in rules.split(";"))
        try:
            # What the algorithm cannot do is said once it is known.
            Domain(name.strip(), tuple(map(Rule.parse, texts)), "gcra")
        except ConfigurationError as error:
            self.fail(str(error), param, ctx)
        return name.strip(), texts


def wished(
    file: str | None, listen: str | None, domains: tuple[tuple[str, tuple[str, ...]], ...], algorithm: str | None
) -> "tuple[Configuration, str | None]":
    """Read the file and lay the flags over it; give the tree and the file's name, if there is one.

    A domain on the command line stands beside those of the file, and before one of its own name.
    """
    from msgspec.structs import replace

    from headgate.config import DomainSection
    from headgate.config.reading import check

    tree, name = configuration(file)
    sections: dict[str, DomainSection] = {section.name: section for section in tree.domain}
    for domain, rules in domains:
        if [other for other, _ in domains].count(domain) > 1:
            raise ConfigurationError(f"--domain {domain!r} stands twice; put all its rules in one, with ; between them")
        known = sections.get(domain) or DomainSection(name=domain)
        sections[domain] = replace(known, rules=rules)
    if algorithm is not None:
        sections = {key: replace(section, algorithm=algorithm) for key, section in sections.items()}
    bus = tree.master if listen is None else replace(tree.master, listen=listen)
    tree = replace(tree, domain=tuple(sections.values()), master=bus)
    check(tree)
    if not tree.domain:
        raise ConfigurationError(
            "no domain: add --domain 'default=10/s burst 20', or a [[domain]] to the configuration"
        )
    return tree, name


@click.command()
@CONFIG
@click.option("--listen", type=ADDRESS, metavar="HOST:PORT", help="Accounting; control is PORT+1.  [127.0.0.1:10004]")
@click.option("--domain", "domains", type=_Domain(), metavar="NAME=RULE", multiple=True, help="NAME=RULE[;RULE…].")
@click.option("--algorithm", type=click.Choice(["log", "gcra", "smockron"]), help="Of all domains.  [default: log]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line of counts every second.")
def master(
    *,
    file: str | None,
    listen: str | None,
    domains: tuple[tuple[str, tuple[str, ...]], ...],
    algorithm: str | None,
    as_json: bool,
) -> None:
    """Tell gatekeepers elsewhere who has to wait.

    Gatekeepers send accounting to PORT, and subscribe to what they should hold at PORT+1. Domains can stand in a
    configuration file; SIGHUP reads it again.

    \b
    headgate master --domain 'default=10/s burst 20'
    headgate master --listen 10.0.0.5:10004 --domain 'api=10/s;1000/h burst 50' --domain 'search=1/s' --json
    """
    from headgate.runtime.master import serve_master

    def read() -> "tuple[Configuration, str | None]":
        return wished(file, listen, domains, algorithm)

    click.get_current_context().exit(serve_master(read, as_json=as_json))
