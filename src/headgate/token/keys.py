"""Keys that sign and verify tokens, and key files: one JSON Web Key (RFC 7517) or a set (docs/reference/token.md).

The site and its proxies share the secret of each key, and sign with HMAC-SHA256 (`oct` keys, RFC 7518). Keys, like
tokens, are written in base64url. The member `max_ttl`, in seconds, is headgate's own.
"""

import hmac
import json
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Final

import msgspec

from headgate.errors import ConfigurationError, fail_if
from headgate.http.base64url import decode_base64url, encode_base64url

DEFAULT_MAX_TTL: Final = 86_400
"""Maximum lifetime of a token in seconds, unless its key sets another: one day."""

MIN_SECRET_SIZE: Final = 32
"""Minimum bytes of a secret (RFC 7518, section 3.2: at least as long as the hash), and the size of new ones."""

KEY_ID_SIZE: Final = 8
"""Bytes of a key id: enough to distinguish the keys of one proxy."""

MAX_TTL: Final = 7 * 86_400
"""Largest `max_ttl` of a key in seconds: proxies must remember each used token until it expires."""

MAX_KEY_FILE_SIZE: Final = 65_536
"""Maximum bytes of a key file; a caller needs to read at most one byte more."""


class Key:
    """A secret that signs and verifies tokens: HMAC-SHA256 (RFC 2104).

    Raises `ConfigurationError` for a secret shorter than the hash.
    """

    def __init__(self, secret: bytes, *, max_ttl: int = DEFAULT_MAX_TTL) -> None:
        fail_if(
            len(secret) < MIN_SECRET_SIZE, f"the secret must have at least {MIN_SECRET_SIZE} bytes, got {len(secret)}"
        )
        self._secret = secret
        self.max_ttl = max_ttl
        """Maximum lifetime of this key's tokens in seconds."""
        # The thumbprint (RFC 7638) of the required members as JSON.
        thumbprint = sha256(f'{{"k":"{encode_base64url(secret)}","kty":"oct"}}'.encode())
        self.key_id = thumbprint.digest()[:KEY_ID_SIZE]
        """The first bytes of the key's thumbprint; part of every token."""

    def sign(self, message: bytes) -> bytes:
        """Return the message's HMAC."""
        return hmac.digest(self._secret, message, "sha256")

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Return whether this key signed the message; the comparison takes constant time."""
        return hmac.compare_digest(self.sign(message), signature)

    def to_jwk(self) -> dict[str, str | int]:
        """Return the key as a JSON Web Key (RFC 7518, section 6.4)."""
        secret, key_id = encode_base64url(self._secret), encode_base64url(self.key_id)
        return {"kty": "oct", "alg": "HS256", "k": secret, "kid": key_id, "use": "sig", "max_ttl": self.max_ttl}


class _Jwk(msgspec.Struct):
    kty: str
    alg: str | None = None
    k: str | None = None
    max_ttl: int = DEFAULT_MAX_TTL


class _JwkSet(msgspec.Struct):
    keys: list[_Jwk]


def new_key(*, entropy: Callable[[int], bytes], max_ttl: int = DEFAULT_MAX_TTL) -> Key:
    """Return a new key; `entropy` returns so many unpredictable bytes, as `os.urandom` does.

    Raises `ConfigurationError` for an invalid `max_ttl`.
    """
    _check_max_ttl(max_ttl)
    return Key(entropy(MIN_SECRET_SIZE), max_ttl=max_ttl)


def read_keys(content: bytes) -> tuple[Key, ...]:
    """Parse a key file and return its keys, at least one, in the file's order.

    Raises `ConfigurationError`, whose text quotes no secret, for an invalid file or key.
    """
    fail_if(len(content) > MAX_KEY_FILE_SIZE, f"the key file is too large; expected at most {MAX_KEY_FILE_SIZE} bytes")
    try:
        value = msgspec.json.decode(content)
        is_set = isinstance(value, dict) and "keys" in value
        jwks = msgspec.convert(value, _JwkSet).keys if is_set else [msgspec.convert(value, _Jwk)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise ConfigurationError(
            "invalid key file; expected a JSON Web Key or a set of them, as written by: headgate keys new-token"
        ) from None
    fail_if(not jwks, "the key file does not contain a key; expected at least one in 'keys'")
    return tuple(map(_parse_key, jwks))


def write_keys(keys: Iterable[Key]) -> bytes:
    """Return a key file."""
    return json.dumps({"keys": [key.to_jwk() for key in keys]}, indent=2).encode() + b"\n"


def _parse_key(jwk: _Jwk) -> Key:
    _check_max_ttl(jwk.max_ttl)
    fail_if(
        jwk.kty != "oct" or jwk.alg not in {None, "HS256"},
        f"unsupported key with kty {jwk.kty!r} and alg {jwk.alg!r}; expected an HS256 key",
    )
    secret = None if jwk.k is None else decode_base64url(jwk.k)
    if secret is None:
        raise ConfigurationError("missing or malformed key member 'k'; expected base64url without padding")
    return Key(secret, max_ttl=jwk.max_ttl)


def _check_max_ttl(seconds: int) -> None:
    fail_if(not 1 <= seconds <= MAX_TTL, f"max_ttl must be from 1 to {MAX_TTL} seconds, got {seconds}")
