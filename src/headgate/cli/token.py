"""`headgate token`: make and check tokens."""

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from headgate.cli.output import exit_with_failure, print_json, printable, report_read_errors
from headgate.cli.params import SECONDS, Parsed, whole_number
from headgate.cli.program import CommandGroup
from headgate.errors import ConfigurationError, naming, reason_of

if TYPE_CHECKING:
    from headgate.token import Key


_DEFAULT_TTL: Final = 600
_COUNT: Final = Parsed("integer", whole_number(1, 1_000_000))
_MAX_LINE_LENGTH: Final = 4096
_EXPLANATIONS: Final = {
    "token_invalid": "malformed, of another key, for another origin, or with a longer lifetime than its key allows",
    "token_expired": "its signature is valid, but it has expired",
}


@click.group(cls=CommandGroup, epilog="Start with: headgate keys new-token -o key.json")
def token() -> None:
    """Create and check tokens for a prefetch proxy.

    A site that runs its own prefetch proxy puts tokens into its pages, and browsers send one with each prefetch. The
    proxy checks tokens with the key, without a request to the site. A token can be used once, until it expires, and
    optionally for one origin only.

    \b
    the site:   headgate keys new-token -o key.json
                headgate token mint --key key.json --count 8
    the proxy:  headgate proxy --token-key key.json …
    """


_key_option: Callable[..., Any] = click.option(
    "--key",
    "file",
    metavar="FILE",
    required=True,
    help="Key file, as written by headgate keys new-token; - reads standard input.",
)
_ttl_option: Callable[..., Any] = click.option(
    "--ttl",
    type=SECONDS,
    metavar="SECONDS",
    help=f"Seconds until the tokens expire.  [default: {_DEFAULT_TTL}, or the key's max_ttl if lower]",
)
_json_option: Callable[..., Any] = click.option("--json", "is_json", is_flag=True, help="Print one JSON object.")


@token.command(short_help="Print new tokens, one a line.")
@_key_option
@click.option(
    "--count",
    type=_COUNT,
    metavar="N",
    default=1,
    show_default=True,
    help="Number of tokens.",
)
@_ttl_option
@click.option("--origin", metavar="ORIGIN", help="Restrict the tokens to a CONNECT to this https origin.")
@_json_option
def mint(*, file: str, count: int, ttl: float | None, origin: str | None, is_json: bool) -> None:
    """Mint tokens with the first key of the file; each token can be used once.

    A client sends one to the proxy as: Proxy-Authorization: Bearer TOKEN. It is used up when the proxy has checked it,
    even if the CONNECT fails afterwards.

    \b
    headgate token mint --key key.json
    headgate token mint --key key.json --count 8 --ttl 300 --origin https://example.org
    """
    from headgate.token import mint as mint_token
    from headgate.token.signed_token import target_origin

    key = _read_keys(file)[0]
    seconds, now = min(_DEFAULT_TTL, key.max_ttl) if ttl is None else ttl, time.time()
    tokens = (mint_token(key, now=now, ttl=seconds, entropy=os.urandom, origin=origin) for _ in range(count))
    if is_json:
        target = None if origin is None else target_origin(origin)
        print_json({"tokens": list(tokens), "expires": now + seconds, "origin": target})
        return
    for text in tokens:
        click.echo(text)


@token.command(short_help="Print whether a proxy would accept a token.")
@click.argument("token", metavar="TOKEN|-")
@_key_option
@click.option("--origin", metavar="ORIGIN", help="The https origin of the CONNECT; required by a token for one origin.")
@_json_option
def check(*, token: str, file: str, origin: str | None, is_json: bool) -> None:
    """Check a token as a proxy with this key does, and print "valid" or the proxy's reason for refusing it.

    The token is not used up. Whether it was used before is known to its proxy only. The exit code is 1 if the token is
    not valid.

    \b
    headgate token check --key key.json --origin https://example.org TOKEN
    headgate token mint --key key.json | headgate token check --key key.json -
    """
    from headgate.token import Checker, ValidToken
    from headgate.token.signed_token import has_bound_form, target_origin

    checker = Checker(_read_keys(file))
    now = time.time()
    if token == "-":  # noqa: S105  # not a password
        with click.open_file("-", "rb") as stdin:
            # Latin-1 decodes any bytes; what is not ASCII is an invalid token.
            token = bytes(stdin.readline(_MAX_LINE_LENGTH)).decode("latin-1").strip()
    outcome = checker.check(token, now=now, origin="" if origin is None else target_origin(origin))
    valid = outcome if isinstance(outcome, ValidToken) else None
    if is_json:
        print_json({"result": "valid" if valid else outcome, "expires": valid and valid.expires})
    elif valid:
        click.echo(f"valid for {valid.expires - now:.0f} s, {'one origin only' if valid.is_bound else 'any origin'}")
    elif origin is None and has_bound_form(token):
        click.echo(f"{outcome}: the token is for one origin; name it with --origin")
    else:
        click.echo(f"{outcome}: {_EXPLANATIONS[str(outcome)]}")
    if valid is None:
        exit_with_failure()


def _read_keys(file: str) -> "tuple[Key, ...]":
    from headgate.token.keys import MAX_KEY_FILE_SIZE, read_keys

    name = printable(file)
    with report_read_errors(file):
        try:
            with click.open_file(file, "rb") as opened:
                content = opened.read(MAX_KEY_FILE_SIZE + 1)
        except FileNotFoundError as error:
            raise ConfigurationError(
                f"{name}: {reason_of(error)}; create a key with: headgate keys new-token -o {name}"
            ) from None
    with naming(name):
        return read_keys(content)
