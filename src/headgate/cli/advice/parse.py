"""`headgate advice parse`: print what a document advises an agent."""

from typing import TYPE_CHECKING

import click

from headgate.cli.advice.options import as_json, document_of, identity
from headgate.cli.output import print_json

if TYPE_CHECKING:
    from headgate.advice import AgentIdentity


@click.command(short_help="Print what a document advises an agent.")
@click.argument("file", metavar="[FILE|-]", default="-")
@identity()
def parse(*, file: str, identity: "AgentIdentity") -> None:
    """Print the entry of a traffic advice document that applies to the agent with these names, or null if none does.

    As the standard requires, a document that is not valid JSON contains no advice and is not an error.

    \b
    headgate advice parse traffic-advice.json
    headgate advice parse traffic-advice.json --identity 'ExampleProxy,prefetch-proxy,*'
    curl -s https://example.com/.well-known/traffic-advice | headgate advice parse - --identity ExampleBot
    """
    from headgate.advice.parser import parse_advice_bytes

    print_json(as_json(parse_advice_bytes(document_of(file), identity)))
