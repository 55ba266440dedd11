"""`headgate token mint`: tokens, one a line."""

import os
import time

import click

from headgate.cli.printing import print_json
from headgate.cli.token.keys import KEY, TTL, minting_key, ttl_of

__all__ = ["mint"]

_MOST = 1_000_000


@click.command(short_help="Tokens, one a line.")
@KEY
@click.option("--count", type=click.IntRange(1, _MOST), metavar="N", default=1, show_default=True, help="How many.")
@TTL
@click.option("--origin", metavar="O", help="Good for a CONNECT to this https origin alone.")
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object.")
def mint(*, file: str, count: int, ttl: float | None, origin: str | None, is_json: bool) -> None:
    """Mint tokens, each good once, with the first key of the file that can.

    A client shows one to the proxy as: Proxy-Authorization: Bearer TOKEN. It is used up when the proxy has checked it,
    whatever becomes of the CONNECT.

    \b
    headgate token mint --key key.json
    headgate token mint --key key.json --count 8 --ttl 300 --origin https://example.org
    """
    from headgate.token import mint as minted

    key = minting_key(file)
    seconds, now = ttl_of(ttl, key), time.time()
    tokens = (minted(key, now=now, ttl=seconds, entropy=os.urandom, origin=origin) for _ in range(count))
    if is_json:
        print_json({"tokens": list(tokens), "expires": now + seconds, "origin": origin and _shown(origin)})
        return
    for token in tokens:
        click.echo(token)


def _shown(origin: str) -> str:
    from headgate.token.minting import target_origin

    return target_origin(origin)
