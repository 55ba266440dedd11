"""The flags that the commands about tokens share: which key, for how long, for which origin."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from headgate.cli.params import SECONDS
from headgate.cli.printing import unreadable
from headgate.cli.terminal import harmless
from headgate.errors import ConfigurationError

if TYPE_CHECKING:
    from headgate.token import Key

__all__ = ["KEY", "KEY_FILE", "TTL", "keys_in", "minting_key", "ttl_of"]

KEY_FILE = "key.json"
"""The key file that is made and read where none is named."""

KEY: Callable[..., Any] = click.option(
    "--key",
    "file",
    metavar="F",
    default=KEY_FILE,
    show_default=True,
    help="The key file, as new-key writes it; - is standard input.",
)
"""Which keys."""

TTL: Callable[..., Any] = click.option(
    "--ttl", type=SECONDS, metavar="S", help="Seconds until they expire.  [default: 600, or what the key allows]"
)
"""For how long."""

_TTL = 600


def keys_in(file: str) -> "tuple[Key, ...]":
    """Read a key file; raises `ConfigurationError` that names it."""
    from headgate.token.jwk import LONGEST_FILE, read_keys

    name = harmless(file)
    with unreadable(file):
        try:
            with click.open_file(file, "rb") as opened:
                content = opened.read(LONGEST_FILE + 1)
        except FileNotFoundError as error:
            raise ConfigurationError(
                f"{name}: {error.strerror}; make a key with: headgate token new-key -o {name}"
            ) from None
    try:
        return read_keys(content)
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}") from None


def minting_key(file: str) -> "Key":
    """Give the first key of a file that can mint; raises `ConfigurationError` where none can."""
    key = next((key for key in keys_in(file) if key.can_mint), None)
    if key is None:
        raise ConfigurationError(
            f"{harmless(file)} has public halves alone, which check tokens; mint with the file that new-key -o wrote"
        )
    return key


def ttl_of(asked: float | None, key: "Key") -> float:
    """Give the seconds that tokens are to be good for."""
    return min(_TTL, key.max_ttl) if asked is None else asked
