"""Key files: JSON Web Keys (RFC 7517), a set of them or a single one (docs/reference/token.md).

`oct` keys sign with HMAC-SHA256 (RFC 7518), `OKP` ones on Ed25519 (RFC 8037); with `d` such a key is private, without
it is the public half. One member is our own: `max_ttl`, in seconds.
"""

import importlib.util
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from headgate.errors import ConfigurationError, MissingExtra
from headgate.token import base64url
from headgate.token.key import MAX_TTL, SECRET_LENGTH, Algorithm, HmacKey, Key
from headgate.token.minting import Entropy

if TYPE_CHECKING:
    from headgate.token.ed25519 import Ed25519Key

__all__ = ["LONGEST_FILE", "LONGEST_TTL", "new_key", "read_keys", "write_keys"]

LONGEST_TTL: Final = 7 * 86_400
"""Seconds that a key may let its tokens be good for: proxies remember each of them so long."""

LONGEST_FILE: Final = 65_536
"""Bytes of a key file: nobody need read more of one than one byte beyond these."""

_ALGORITHMS: Final = {"oct": ("HS256",), "OKP": ("EdDSA", "Ed25519")}
"""The names that `alg` may have for each `kty`, if it is there; RFC 9864 renames the one for Ed25519."""


class _Jwk(msgspec.Struct):
    kty: str
    alg: str | None = None
    crv: str | None = None
    k: str | None = None
    x: str | None = None
    d: str | None = None
    max_ttl: int = MAX_TTL


class _Set(msgspec.Struct):
    keys: list[_Jwk]


def new_key(algorithm: Algorithm, *, entropy: Entropy, max_ttl: int = MAX_TTL) -> Key:
    """Make a key; raises `ConfigurationError` for a `max_ttl` out of bounds and, for Ed25519, `MissingExtra`."""
    _check_max_ttl(max_ttl)
    secret = entropy(SECRET_LENGTH)
    if algorithm == "hmac-sha256":
        return HmacKey(secret, max_ttl=max_ttl)
    return _ed25519().of_seed(secret, max_ttl=max_ttl)


def read_keys(content: bytes) -> tuple[Key, ...]:
    """Read a key file: one key at least, in the file's order.

    Raises `ConfigurationError` with a sentence that quotes nothing of it, for what is no such file or has no such keys,
    and `MissingExtra` for Ed25519 where there is no cryptography.
    """
    if len(content) > LONGEST_FILE:
        raise ConfigurationError(f"a key file has at most {LONGEST_FILE} bytes")
    try:
        read = msgspec.json.decode(content)
        is_set = isinstance(read, dict) and "keys" in read
        jwks = msgspec.convert(read, _Set).keys if is_set else [msgspec.convert(read, _Jwk)]
    except (msgspec.MsgspecError, RecursionError):
        raise ConfigurationError(
            "invalid key file: expected a JSON Web Key or a set of them; make one with: headgate token new-key"
        ) from None
    if not jwks:
        raise ConfigurationError("the key file has no key in it")
    return tuple(map(_key, jwks))


def write_keys(keys: Iterable[Key], *, public: bool = False) -> bytes:
    """Write a key file, or one of the public halves; raises `ConfigurationError` where a key has not that half."""
    members = [
        {**key.jwk(public=public), "kid": base64url.encode(key.key_id), "use": "sig", "max_ttl": key.max_ttl}
        for key in keys
    ]
    return json.dumps({"keys": members}, indent=2).encode() + b"\n"


def _key(jwk: _Jwk) -> Key:
    _check_max_ttl(jwk.max_ttl)
    names = _ALGORITHMS.get(jwk.kty)
    if names is None or (jwk.alg is not None and jwk.alg not in names) or (jwk.kty == "OKP" and jwk.crv != "Ed25519"):
        raise ConfigurationError(
            f"a key of kty {jwk.kty!r}, crv {jwk.crv!r} and alg {jwk.alg!r} makes no tokens; only HS256 and Ed25519 do"
        )
    if jwk.kty == "oct":
        return HmacKey(_bytes("k", jwk.k), max_ttl=jwk.max_ttl)
    return _ed25519_key(jwk)


def _ed25519_key(jwk: _Jwk) -> Key:
    kind = _ed25519()
    try:
        public = kind.of_public(_bytes("x", jwk.x), max_ttl=jwk.max_ttl)
        if jwk.d is None:
            return public
        private = kind.of_seed(_bytes("d", jwk.d), max_ttl=jwk.max_ttl)
    except ValueError:
        raise ConfigurationError("an Ed25519 key has 32 bytes in x, and 32 in d where it is private") from None
    if private.key_id != public.key_id:
        raise ConfigurationError("an Ed25519 key has halves that do not belong to one another")
    return private


def _bytes(member: str, text: str | None) -> bytes:
    content = None if text is None else base64url.decode(text)
    if content is None:
        raise ConfigurationError(f"a key has no {member!r} in base64url, without padding")
    return content


def _check_max_ttl(seconds: int) -> None:
    if not 1 <= seconds <= LONGEST_TTL:
        raise ConfigurationError(f"a key's max_ttl is {seconds}; it is in seconds, from 1 to {LONGEST_TTL}")


def _ed25519() -> "type[Ed25519Key]":
    if importlib.util.find_spec("cryptography") is None:
        raise MissingExtra("sign", "a token key on Ed25519")
    from headgate.token.ed25519 import Ed25519Key

    return Ed25519Key
