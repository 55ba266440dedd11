"""Minting: what the referring site does."""

import re
from collections.abc import Callable
from typing import Final, TypeAlias

from headgate.errors import ConfigurationError
from headgate.http.origin import serialised_origin
from headgate.token.key import Key
from headgate.token.wire import ID_LENGTH, Head, joined, signed

__all__ = ["Entropy", "mint", "target_origin"]

Entropy: TypeAlias = Callable[[int], bytes]
"""Gives as many bytes as it is asked for, none of which anybody can guess: `os.urandom`."""

_LAST_DOT: Final = re.compile(r"\.(?=(?::[0-9]+)?\Z)")


def mint(key: Key, *, now: float, ttl: float, entropy: Entropy, origin: str | None = None) -> str:
    """Mint a token that is good once, for `ttl` seconds from `now` and, with `origin`, for a CONNECT there alone.

    `origin` is any https URL, of which its origin counts. Raises `ConfigurationError` for a ttl that the key does not
    allow, for what is no https URL, and for a key that is a public half.
    """
    if not 0 < ttl <= key.max_ttl:
        raise ConfigurationError(
            f"a token cannot be good for {ttl:g} s; with this key it is for more than 0 s and at most {key.max_ttl} s"
        )
    target = "" if origin is None else target_origin(origin)
    head = Head(origin is not None, key.key_id, now + ttl, key.key_id + entropy(ID_LENGTH)).raw
    return joined(head, key.sign(signed(head, target)))


def target_origin(url: str) -> str:
    """Give the origin of an https URL, as the proxy will know it; raises `ConfigurationError` for any other text.

    A CONNECT names a host and a port, and https is what is spoken there. A dot at the end of the host is dropped: it is
    the same server, and the proxy knows it by one name.
    """
    origin = serialised_origin(url)
    if origin is None or not origin.startswith("https://"):
        raise ConfigurationError(f"invalid origin {url!r}; expected an https origin, such as https://example.com")
    return _LAST_DOT.sub("", origin)
