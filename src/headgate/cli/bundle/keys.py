"""Keys, certificates and passphrases for signing, from files and the terminal."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from headgate.cli.output import report_read_errors

KEY: Callable[..., Any] = click.option(
    "--key", metavar="K", help="The private key, PEM: Ed25519 or P-256 for an integrity block, else P-256."
)


def read_secret(file: str) -> bytes:
    """Read a key or certificates; raises `ConfigurationError` for a file that cannot be read."""
    with report_read_errors(file):
        return Path(file).read_bytes()


def passphrase_of(file: str) -> Callable[[], bytes] | None:
    """Return a prompt for the passphrase of an encrypted key; None without a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    return lambda: str(click.prompt(f"passphrase of {file}", hide_input=True, err=True)).encode()
