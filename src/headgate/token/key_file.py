"""Key files: a JSON Web Key (RFC 7517) or a set of them (docs/reference/token.md).

`oct` keys sign with HMAC-SHA256 (RFC 7518). `OKP` keys sign with Ed25519 (RFC 8037); a key with `d` is private, one
without is public. The member `max_ttl`, in seconds, is headgate's own.
"""

import importlib.util
import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from headgate.errors import ConfigurationError, MissingExtra
from headgate.token.key import (
    DEFAULT_MAX_TTL,
    MIN_SECRET_SIZE,
    Algorithm,
    HmacKey,
    Key,
    decode_base64url,
    encode_base64url,
)

if TYPE_CHECKING:
    from headgate.token.ed25519 import Ed25519Key


MAX_TTL: Final = 7 * 86_400
"""Largest `max_ttl` of a key in seconds: proxies must remember each used token until it expires."""

MAX_KEY_FILE_SIZE: Final = 65_536
"""Maximum bytes of a key file; a caller needs to read at most one byte more."""

_ALG_NAMES: Final = {"oct": ("HS256",), "OKP": ("EdDSA", "Ed25519")}
"""Accepted values of the optional member `alg` for each `kty`; RFC 9864 renames EdDSA to Ed25519."""


class _Jwk(msgspec.Struct):
    kty: str
    alg: str | None = None
    crv: str | None = None
    k: str | None = None
    x: str | None = None
    d: str | None = None
    max_ttl: int = DEFAULT_MAX_TTL


class _JwkSet(msgspec.Struct):
    keys: list[_Jwk]


def new_key(algorithm: Algorithm, *, entropy: Callable[[int], bytes], max_ttl: int = DEFAULT_MAX_TTL) -> Key:
    """Return a new key; `entropy` returns so many unpredictable bytes, as `os.urandom` does.

    Raises `ConfigurationError` for an invalid `max_ttl` and `MissingExtra` for Ed25519 without cryptography.
    """
    _check_max_ttl(max_ttl)
    secret = entropy(MIN_SECRET_SIZE)
    if algorithm == "hmac-sha256":
        return HmacKey(secret, max_ttl=max_ttl)
    return _import_ed25519().from_private(secret, max_ttl=max_ttl)


def read_keys(content: bytes) -> tuple[Key, ...]:
    """Parse a key file and return its keys, at least one, in the file's order.

    Raises `ConfigurationError`, whose text quotes no secret, for an invalid file or key, and `MissingExtra` for an
    Ed25519 key without cryptography.
    """
    if len(content) > MAX_KEY_FILE_SIZE:
        raise ConfigurationError(f"the key file is too large; expected at most {MAX_KEY_FILE_SIZE} bytes")
    try:
        value = msgspec.json.decode(content)
        is_set = isinstance(value, dict) and "keys" in value
        jwks = msgspec.convert(value, _JwkSet).keys if is_set else [msgspec.convert(value, _Jwk)]
    except (msgspec.MsgspecError, RecursionError):
        raise ConfigurationError(
            "invalid key file; expected a JSON Web Key or a set of them, as written by: headgate token new-key"
        ) from None
    if not jwks:
        raise ConfigurationError("the key file does not contain a key; expected at least one in 'keys'")
    return tuple(map(_parse_key, jwks))


def write_keys(keys: Iterable[Key], *, public: bool = False) -> bytes:
    """Return a key file with the private or the public keys.

    Raises `ConfigurationError` if a key does not have the requested part.
    """
    jwks = [
        {**key.to_jwk(public=public), "kid": encode_base64url(key.key_id), "use": "sig", "max_ttl": key.max_ttl}
        for key in keys
    ]
    return json.dumps({"keys": jwks}, indent=2).encode() + b"\n"


def _parse_key(jwk: _Jwk) -> Key:
    _check_max_ttl(jwk.max_ttl)
    names = _ALG_NAMES.get(jwk.kty)
    if names is None or (jwk.alg is not None and jwk.alg not in names) or (jwk.kty == "OKP" and jwk.crv != "Ed25519"):
        raise ConfigurationError(
            f"unsupported key with kty {jwk.kty!r}, crv {jwk.crv!r} and alg {jwk.alg!r}; "
            "expected an HS256 or an Ed25519 key"
        )
    if jwk.kty == "oct":
        return HmacKey(_decode_member("k", jwk.k), max_ttl=jwk.max_ttl)
    return _parse_ed25519(jwk)


def _parse_ed25519(jwk: _Jwk) -> Key:
    ed25519_key = _import_ed25519()
    try:
        public = ed25519_key.from_public(_decode_member("x", jwk.x), max_ttl=jwk.max_ttl)
        if jwk.d is None:
            return public
        private = ed25519_key.from_private(_decode_member("d", jwk.d), max_ttl=jwk.max_ttl)
    except ValueError:
        raise ConfigurationError("invalid Ed25519 key; expected 32 bytes in 'x' and, if private, 32 in 'd'") from None
    if private.key_id != public.key_id:
        raise ConfigurationError("invalid Ed25519 key: 'x' is not the public key of 'd'")
    return private


def _decode_member(name: str, text: str | None) -> bytes:
    content = None if text is None else decode_base64url(text)
    if content is None:
        raise ConfigurationError(f"missing or malformed key member {name!r}; expected base64url without padding")
    return content


def _check_max_ttl(seconds: int) -> None:
    if not 1 <= seconds <= MAX_TTL:
        raise ConfigurationError(f"max_ttl must be from 1 to {MAX_TTL} seconds, got {seconds}")


def _import_ed25519() -> "type[Ed25519Key]":
    if importlib.util.find_spec("cryptography") is None:
        raise MissingExtra("sign", "a token key on Ed25519")
    from headgate.token.ed25519 import Ed25519Key

    return Ed25519Key
