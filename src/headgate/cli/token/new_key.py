"""`headgate token new-key`: a key to mint and check tokens with."""

import os
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headgate.cli.printing import print_bytes
from headgate.cli.terminal import harmless
from headgate.cli.token.keys import KEY_FILE
from headgate.errors import ConfigurationError

if TYPE_CHECKING:
    from headgate.token.key import Algorithm

__all__ = ["new_key"]

_SECRET = 0o600
_PUBLIC = 0o644


@click.command("new-key", short_help="A key to mint and check tokens with.")
@click.option(
    "-o",
    "--output",
    "out",
    metavar="F",
    default=KEY_FILE,
    show_default=True,
    help="The key file to make; - is standard output.",
)
@click.option(
    "--algorithm", type=click.Choice(["hmac-sha256", "ed25519"]), default="hmac-sha256", show_default=True, help="How."
)
@click.option("--public", metavar="P", help="With ed25519: make this file too, which checks tokens and mints none.")
@click.option("--max-ttl", type=int, metavar="S", default=86_400, show_default=True, help="Seconds a token may last.")
def new_key(*, out: str, algorithm: "Algorithm", public: str | None, max_ttl: int) -> None:
    """Make a key, in a file that its owner alone may read; a file that is there already is never overwritten.

    With hmac-sha256 the site and its proxies share one secret. With ed25519 the site keeps the secret and the proxies
    get the public half, so that an attacker who controls a proxy cannot mint tokens. The files are JSON Web Keys. To
    change keys without refusing valid tokens, give the proxies both keys first, and then the site the new one.

    \b
    headgate token new-key -o key.json
    headgate token new-key --algorithm ed25519 -o site.json --public proxy.json
    """
    from headgate.token import new_key as made
    from headgate.token.jwk import write_keys

    key = made(algorithm, entropy=os.urandom, max_ttl=max_ttl)
    files = [(out, write_keys([key]), _SECRET)]
    if public is not None:
        files.append((public, write_keys([key], public=True), _PUBLIC))
    if public == "-":
        raise click.UsageError("--public is a file; only -o can be standard output")
    _write(files)
    click.echo(f"{harmless(out)}: an {algorithm} key; {_for_whom(public)}", err=True)


def _for_whom(public: str | None) -> str:
    if public is None:
        return "it mints tokens, and checks them for headgate proxy --token-key; keep it secret"
    return f"it mints tokens, keep it secret; {harmless(public)} checks them, for headgate proxy --token-key"


def _write(files: list[tuple[str, bytes, int]]) -> None:
    """Make all of the files or none of them."""
    with ExitStack() as undone:
        for name, content, mode in files:
            if name == "-":
                print_bytes(content)
                continue
            try:
                descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
                undone.callback(_remove, name)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(descriptor)
            except FileExistsError:
                raise ConfigurationError(f"{harmless(name)} is there already, and no key is overwritten") from None
            except OSError as error:
                raise ConfigurationError(f"{harmless(name)} cannot be written: {error.strerror or error}") from None
        undone.pop_all()


def _remove(name: str) -> None:
    with suppress(OSError):
        Path(name).unlink()
