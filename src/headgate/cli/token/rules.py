"""`headgate token rules`: a page's speculation rules, with a token for each URL."""

import os
import time

import click

from headgate.cli.token.keys import KEY, TTL, minting_key, ttl_of

__all__ = ["rules"]


@click.command(short_help="A page's speculation rules, with a token for each URL.")
@click.argument("urls", metavar="URL…", nargs=-1, required=True)
@KEY
@click.option("--proxy", metavar="P", required=True, help="The proxy: an https URL, of the same site as the page.")
@TTL
@click.option("--bind", is_flag=True, help="Make each token good for its URL's origin alone: one rule for each origin.")
@click.option("--no-fallback", is_flag=True, help="Let browsers use no proxy of their own where this one fails.")
def rules(*, urls: tuple[str, ...], file: str, proxy: str, ttl: float | None, bind: bool, no_fallback: bool) -> None:
    """Print speculation rules that prefetch these URLs through the site's own proxy, with as many tokens.

    They can be put between <script type="speculationrules"> and </script> as they are. Each page needs its own, made
    while it is answered, and must not be kept by a cache that others share: a token is good once. A browser that knows
    nothing of proxies provided by referrers ignores them.

    \b
    headgate token rules --key key.json --proxy https://prefetch.example.com https://example.org/next
    headgate token rules --key key.json --proxy https://prefetch.example.com --bind --ttl 120 \\
        https://example.org/a https://example.net/b
    """
    from headgate.token.rules import script_text, speculation_rules

    key = minting_key(file)
    written = speculation_rules(
        urls,
        proxy=proxy,
        key=key,
        now=time.time(),
        ttl=ttl_of(ttl, key),
        entropy=os.urandom,
        bind=bind,
        fallback=not no_fallback,
    )
    click.echo(script_text(written))
