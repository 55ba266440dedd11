"""`headgate token`: keys, tokens, and the rules that carry them. One module per command, imported when asked for."""

from collections.abc import Mapping
from typing import ClassVar

import click

from headgate.cli.program import Program

__all__ = ["token"]

_COMMANDS = {
    "new-key": ("new_key:new_key", "A key to mint and check tokens with."),
    "mint": ("mint:mint", "Tokens, one a line."),
    "rules": ("rules:rules", "A page's speculation rules, with a token for each URL."),
    "check": ("check:check", "What a proxy would say of a token."),
}


class _Token(Program):
    sentences: ClassVar[Mapping[str, str]] = {name: sentence for name, (_, sentence) in _COMMANDS.items()}

    def find(self, name: str) -> tuple[str, str]:
        """Give the module of a command that there is, and its name there."""
        module, _, attribute = _COMMANDS[name][0].partition(":")
        return f"headgate.cli.token.{module}", attribute


@click.group(cls=_Token, epilog="Start with: headgate token new-key -o key.json")
def token() -> None:
    """Make keys and tokens for a prefetch proxy, and the speculation rules that carry them.

    A site that runs its own prefetch proxy puts tokens into its pages, and browsers show one per prefetch. The proxy
    checks them by the key alone, without asking the site. Each is good once, for a while, and for one origin if wanted.

    \b
    the site:   headgate token new-key -o key.json
                headgate token rules --key key.json --proxy https://prefetch.example.com https://example.org/next
    the proxy:  headgate proxy --token-key key.json …
    """
