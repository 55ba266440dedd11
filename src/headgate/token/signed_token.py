"""Signed tokens: their bytes (docs/reference/token.md, "Format"), how a site mints them and how a proxy checks them.

A token is a header of 32 bytes and a signature, in base64url. That is a `token68` (RFC 9110, section 11.2), so it can
follow `Bearer` (RFC 6750). Whether a token was used
before is not checked here: `headgate.token.replay_table` records that.
"""

import math
import re
import struct
from collections.abc import Callable, Iterable
from typing import Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct

from headgate.errors import ConfigurationError, fail_if
from headgate.http.base64url import decode_base64url, encode_base64url
from headgate.http.url import serialised_origin
from headgate.token.keys import Key

Reason: TypeAlias = Literal["token_missing", "token_invalid", "token_expired", "token_replayed", "tokens"]
"""Why a token is refused. The first four concern the token; "tokens" means that the proxy cannot determine whether the
token was used before."""

MAX_TOKEN_LENGTH: Final = 128
"""Characters; longer text is not decoded."""

MAX_CLOCK_DIFFERENCE: Final = 60.0
"""Seconds by which the site's clock may be ahead of the proxy's. If it is behind, a token expires early by as much: the
site chooses a sufficient `ttl`."""

TOKEN_ID_SIZE: Final = 16
"""Random bytes in each token."""

_VERSION: Final = 1

_CONTEXT: Final = b"headgate token 1\0"
"""Precedes the signed bytes, so that no other message signed with the same key is accepted as a token."""

_HEADER: Final = struct.Struct(">BB8sHI16s")

_BEARER: Final = re.compile(r"(?i:bearer)(?: ++(.*+))?")
_FINAL_DOT: Final = re.compile(r"\.(?=(?::[0-9]+)?\Z)")


class TokenHeader(NamedTuple):
    """The unsigned part of a token."""

    is_bound: bool
    """Whether the token is for one origin. The origin is signed but not part of the token."""
    key_id: bytes
    expires: float
    """Seconds since 1970, in whole milliseconds; the token is invalid from then on."""
    token_id: bytes
    """16 random bytes."""

    def encode(self) -> bytes:
        """Return the header's bytes; a fraction of a millisecond is rounded up."""
        milliseconds = math.ceil(self.expires * 1000)
        high, low = milliseconds >> 32, milliseconds & 0xFFFF_FFFF
        return _HEADER.pack(_VERSION, self.is_bound, self.key_id, high, low, self.token_id)


class ValidToken(Struct, frozen=True):
    """A token whose signature, expiry and origin are valid."""

    identity: bytes
    """The key id and the token's random bytes, 24 in all: unique to this token."""
    expires: float
    """Seconds since 1970."""
    is_bound: bool
    """Whether the token is for one origin only."""


class Checker:
    """Checks tokens signed by any of several keys.

    Raises `ConfigurationError` without a key, and if one key is listed twice with different values of `max_ttl`.
    """

    def __init__(self, keys: Iterable[Key]) -> None:
        self._keys: dict[bytes, Key] = {}
        for key in keys:
            known = self._keys.setdefault(key.key_id, key)
            fail_if(
                known.max_ttl != key.max_ttl,
                f"one key is listed twice, with max_ttl {known.max_ttl} and {key.max_ttl}; remove one of them",
            )
        fail_if(not self._keys, "no key to check tokens with; create one with: headgate keys new-token")

    def check(self, token: str | None, *, now: float, origin: str) -> ValidToken | Reason:
        """Return whether a token permits a tunnel to a serialised origin, or why not; prior use is not checked."""
        if token is None:
            return "token_missing"
        decoded = decode_token(token)
        if decoded is None:
            return "token_invalid"
        header, content, signature = decoded
        key = self._keys.get(header.key_id)
        if key is None or not key.verify(signed_message(content, origin), signature):
            return "token_invalid"
        if header.expires <= now:
            return "token_expired"
        # Otherwise the holder of the key could mint tokens that have to be remembered without limit.
        if header.expires > now + key.max_ttl + MAX_CLOCK_DIFFERENCE:
            return "token_invalid"
        return ValidToken(header.key_id + header.token_id, header.expires, header.is_bound)


def mint(key: Key, *, now: float, ttl: float, entropy: Callable[[int], bytes], origin: str | None = None) -> str:
    """Return a new token, valid for `ttl` seconds from `now` and, with `origin`, for a CONNECT to that origin only.

    `origin` may be any https URL; its origin is used. `entropy` returns so many unpredictable bytes, as `os.urandom`
    does. Raises `ConfigurationError` for a `ttl` above the key's `max_ttl`, and another URL.
    """
    fail_if(
        not 0 < ttl <= key.max_ttl, f"ttl must be above 0 and at most {key.max_ttl} seconds with this key, got {ttl:g}"
    )
    target = "" if origin is None else target_origin(origin)
    content = TokenHeader(origin is not None, key.key_id, now + ttl, entropy(TOKEN_ID_SIZE)).encode()
    return encode_token(content, key.sign(signed_message(content, target)))


def target_origin(url: str) -> str:
    """Return the origin of an https URL as the proxy serialises it; raises `ConfigurationError` for other text.

    A final dot of the host is removed: the proxy uses one name for the same server.
    """
    origin = serialised_origin(url)
    if origin is None or not origin.startswith("https://"):
        raise ConfigurationError(f"invalid origin {url!r}; expected an https origin, such as https://example.com")
    return _FINAL_DOT.sub("", origin)


def bearer_token(value: str | None) -> str | None:
    """Return the token of a `Proxy-Authorization` field (RFC 6750, section 2.1); None if absent or of another scheme.

    All text after `Bearer` is returned; the check refuses what is malformed.
    """
    match = None if value is None else _BEARER.fullmatch(value)
    return None if match is None else match[1] or ""


def signed_message(header: bytes, origin: str) -> bytes:
    """Return what is signed: a fixed prefix, the header and, if the token is bound, its serialised origin."""
    return _CONTEXT + header + (origin.encode("utf-8", "replace") if header[1] else b"")


def encode_token(header: bytes, signature: bytes) -> str:
    """Return the token of a header and its signature."""
    return encode_base64url(header + signature)


def decode_token(token: str) -> tuple[TokenHeader, bytes, bytes] | None:
    """Return a token's header, the header's bytes and the signature, unverified; None if malformed."""
    if len(token) > MAX_TOKEN_LENGTH:
        return None
    content = decode_base64url(token)
    if content is None or len(content) <= _HEADER.size:
        return None
    raw = content[: _HEADER.size]
    version, bound, key_id, high, low, token_id = _HEADER.unpack(raw)
    if version != _VERSION or bound > 1:
        return None
    return TokenHeader(bool(bound), key_id, (high << 32 | low) / 1000, token_id), raw, content[_HEADER.size :]


def has_bound_form(token: str) -> bool:
    """Return whether a text, genuine or not, has the form of a token for one origin."""
    decoded = decode_token(token)
    return decoded is not None and decoded[0].is_bound
