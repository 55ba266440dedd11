"""Checking: what the proxy does, with nothing but a key, and what a refusal says to the client.

Whether a token was shown before is not known here: that is asked of whoever remembers (`headgate.token.replay`), after
everything here was in order.
"""

import re
from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from headgate.errors import ConfigurationError
from headgate.token.key import Key
from headgate.token.wire import signed, split

__all__ = ["CLOCKS_DIFFER", "Checker", "Reason", "Valid", "bearer_token"]

Reason: TypeAlias = Literal["token_missing", "token_invalid", "token_expired", "token_replayed", "tokens"]
"""Why a token does not open a tunnel; the first four are about the token, and "tokens" says that nobody can tell now
whether it was shown before, which is the proxy's own load."""

CLOCKS_DIFFER: Final = 60.0
"""Seconds that two machines' clocks may be apart: by so much a token may expire later than its key allows, as it looks
from here. To the other side nothing is given: an expired token is expired, and who mints gives it time enough."""

_bearer = re.compile(r"(?i:bearer)(?: ++(.*+))?").fullmatch


class Valid(Struct, frozen=True):
    """A token that is genuine, not expired, and for this origin."""

    identity: bytes
    """What no other token has: 24 bytes."""
    expires: float
    """Seconds since 1970."""
    is_bound: bool
    """Whether it is for this origin alone."""


class Checker:
    """Checks tokens of any of these keys.

    Raises `ConfigurationError` for none, and for one that is there twice with two values of `max_ttl`.
    """

    def __init__(self, keys: Iterable[Key]) -> None:
        self._keys: dict[bytes, Key] = {}
        for key in keys:
            known = self._keys.setdefault(key.key_id, key)
            if known.max_ttl != key.max_ttl:
                raise ConfigurationError("one key is there twice, with two values of max_ttl; leave one of them out")
        if not self._keys:
            raise ConfigurationError("no key to check tokens with; make one with: headgate token new-key")

    def check(self, token: str | None, *, now: float, origin: str) -> Valid | Reason:
        """Say whether a token opens a tunnel to a serialised origin, as far as can be told from it alone."""
        if token is None:
            return "token_missing"
        parts = split(token)
        if parts is None:
            return "token_invalid"
        head, raw, signature = parts
        key = self._keys.get(head.key_id)
        if key is None or not key.holds(signed(raw, origin), signature):
            return "token_invalid"
        if head.expires <= now:
            return "token_expired"
        # Else whoever holds the key could make a token that has to be remembered for ever.
        if head.expires > now + key.max_ttl + CLOCKS_DIFFER:
            return "token_invalid"
        return Valid(head.identity, head.expires, head.is_bound)


def bearer_token(value: str | None) -> str | None:
    """Give the token in a `Proxy-Authorization` (RFC 6750, section 2.1); None where there is none, or another scheme.

    What follows `Bearer` is given whatever it is: the check finds out.
    """
    match = None if value is None else _bearer(value)
    return None if match is None else match[1] or ""
