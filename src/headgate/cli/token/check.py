"""`headgate token check`: what a proxy would say of a token, without using it up."""

import time

import click

from headgate.cli.printing import end_with_no, print_json
from headgate.cli.token.keys import KEY, keys_in

__all__ = ["check"]

_LONGEST_LINE = 4096
_SENTENCES = {
    "token_invalid": "of another key, for another origin, changed on its way, or good for longer than its key allows",
    "token_expired": "it was genuine, and is no more",
}


@click.command(short_help="What a proxy would say of a token.")
@click.argument("token", metavar="TOKEN|-")
@KEY
@click.option("--origin", metavar="O", help="The https origin that the CONNECT is for; what a bound token needs.")
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object.")
def check(*, token: str, file: str, origin: str | None, is_json: bool) -> None:
    """Check a token as a proxy with this key would: valid, or the word that the proxy refuses it with.

    The token is not used up, and whether one was used up already only its proxy knows. The exit code is 1 where it is
    not valid.

    \b
    headgate token check --key key.json --origin https://example.org TOKEN
    headgate token mint --key key.json | headgate token check --key key.json -
    """
    from headgate.token import Checker, Valid
    from headgate.token.minting import target_origin
    from headgate.token.wire import is_bound

    checker = Checker(keys_in(file))
    now = time.time()
    shown = _first_line() if token == "-" else token  # noqa: S105  # no password
    found = checker.check(shown, now=now, origin="" if origin is None else target_origin(origin))
    valid = found if isinstance(found, Valid) else None
    if is_json:
        print_json({"result": "valid" if valid else found, "expires": valid and valid.expires})
    elif valid:
        click.echo(f"valid for {valid.expires - now:.0f} s, {'this origin alone' if valid.is_bound else 'any origin'}")
    elif origin is None and is_bound(shown):
        click.echo(f"{found}: it is for one origin; name that with --origin")
    else:
        click.echo(f"{found}: {_SENTENCES[str(found)]}")
    if valid is None:
        end_with_no()


def _first_line() -> str:
    with click.open_file("-", "rb") as stdin:
        # A character for a byte: what is no text is no token either, and that is said of it.
        return bytes(stdin.readline(_LONGEST_LINE)).decode("latin-1").strip()
