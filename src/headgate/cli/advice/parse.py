"""`headgate advice parse`: what a document advises an agent."""

from typing import TYPE_CHECKING

import click

from headgate.cli.advice.saying import as_json, document_of, identity
from headgate.cli.printing import print_json

if TYPE_CHECKING:
    from headgate.advice import AgentIdentity

__all__ = ["parse"]


@click.command(short_help="What a document advises an agent.")
@click.argument("file", metavar="[FILE|-]", default="-")
@identity()
def parse(*, file: str, identity: "AgentIdentity") -> None:
    """Print what a traffic advice document advises the agent with these names: an entry, or null where that is nothing.

    The document is read as the standards say: one that is not JSON advises nothing, and is not an error.

    \b
    headgate advice parse traffic-advice.json
    headgate advice parse traffic-advice.json --identity 'ExampleProxy,prefetch-proxy,*'
    curl -s https://example.com/.well-known/traffic-advice | headgate advice parse - --identity ExampleBot
    """
    from headgate.advice.parsing import parse_advice_bytes

    print_json(as_json(parse_advice_bytes(document_of(file), identity)))
