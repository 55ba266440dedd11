"""Keys of agents: Ed25519, as JSON Web Keys (RFC 8037), named by their thumbprints (RFC 7638)."""

import json
from collections.abc import Callable
from hashlib import sha256
from math import inf
from typing import Any, Final, Literal

import msgspec

from headgate.errors import ConfigurationError, MissingExtra
from headgate.http.base64url import decode_base64url, encode_base64url

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
except ImportError:
    raise MissingExtra("sign", "Web Bot Auth") from None

ALGORITHM: Final = "ed25519"
"""The name of the algorithm in signature parameters."""


def thumbprint(public: bytes) -> str:
    """Return the thumbprint of a public key: 43 characters (RFC 8037, appendix A.3)."""
    return encode_base64url(
        sha256(b'{"crv":"Ed25519","kty":"OKP","x":"%b"}' % encode_base64url(public).encode()).digest()
    )


class PublicKey:
    """A key that verifies; `not_before` and `expires` bound its use, in seconds since 1970."""

    def __init__(self, raw: bytes, *, not_before: float = 0.0, expires: float = inf) -> None:
        self._key = Ed25519PublicKey.from_public_bytes(raw)
        self.raw = raw
        """The 32 bytes of the key."""
        self.key_id = thumbprint(raw)
        """The key's thumbprint, the `keyid` of its signatures."""
        self.not_before = not_before
        self.expires = expires

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Return whether this key signed the message."""
        try:
            self._key.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    def to_jwk(self) -> dict[str, Any]:
        """Return the key as a JSON Web Key, with its thumbprint as `kid`."""
        jwk: dict[str, Any] = {
            "kty": "OKP", "crv": "Ed25519", "kid": self.key_id, "x": encode_base64url(self.raw), "use": "sig"
        }  # fmt: skip
        if self.not_before:
            jwk["nbf"] = int(self.not_before)
        return jwk if self.expires == inf else {**jwk, "exp": int(self.expires)}


class SigningKey:
    """A private key, with the public key that belongs to it; the arguments are those of `PublicKey`."""

    def __init__(self, raw: bytes, **validity: float) -> None:
        self._raw = raw
        self._key = Ed25519PrivateKey.from_private_bytes(raw)
        self.public = PublicKey(self._key.public_key().public_bytes_raw(), **validity)
        """The key that verifies."""

    @property
    def key_id(self) -> str:
        """The thumbprint of the public key."""
        return self.public.key_id

    def sign(self, message: bytes) -> bytes:
        """Return the signature of the message: 64 bytes."""
        return self._key.sign(message)

    def to_jwk(self) -> dict[str, Any]:
        """Return the key as a JSON Web Key, with its private member `d`."""
        return {**self.public.to_jwk(), "d": encode_base64url(self._raw)}


class _Jwk(msgspec.Struct):
    kty: Literal["OKP"]
    crv: Literal["Ed25519"]
    x: str
    alg: Literal["EdDSA", "Ed25519", "ed25519"] | None = None
    use: Literal["sig"] = "sig"
    nbf: float = 0.0
    exp: float = inf


class _PrivateJwk(_Jwk, kw_only=True):
    d: str


class _PrivateJwkSet(msgspec.Struct):
    keys: list[_PrivateJwk]


def public_key(jwk: object) -> PublicKey | None:
    """Read a member of a JSON Web Key Set; None unless it is a valid Ed25519 key for signatures."""
    try:
        read = msgspec.convert(jwk, _Jwk)
        return PublicKey(decode_base64url(read.x) or b"", not_before=read.nbf, expires=read.exp)
    except (msgspec.ValidationError, ValueError):
        return None


def new_signing_key(*, entropy: Callable[[int], bytes]) -> SigningKey:
    """Return a new key; `entropy` returns so many unpredictable bytes, as `os.urandom` does."""
    return SigningKey(entropy(32))


def read_signing_keys(content: bytes) -> tuple[SigningKey, ...]:
    """Parse a key file, one private JSON Web Key or a set of them; return its keys, at least one, in order.

    Raises `ConfigurationError`, whose text quotes no secret, for an invalid file or key.
    """
    try:
        value = msgspec.json.decode(content)
        value = value if isinstance(value, dict) and "keys" in value else {"keys": [value]}
        keys = tuple(map(_signing_key, msgspec.convert(value, _PrivateJwkSet).keys))
    except (msgspec.MsgspecError, RecursionError, ValueError):
        keys = ()
    if not keys:
        raise ConfigurationError(
            "invalid key file; expected a private Ed25519 JSON Web Key, as written by: headgate keys new --agent"
        )
    return keys


def write_signing_key(key: SigningKey) -> bytes:
    """Return the content of a key file."""
    return json.dumps(key.to_jwk(), indent=2).encode() + b"\n"


def _signing_key(jwk: _PrivateJwk) -> SigningKey:
    key = SigningKey(decode_base64url(jwk.d) or b"", not_before=jwk.nbf, expires=jwk.exp)
    if encode_base64url(key.public.raw) != jwk.x:
        raise ValueError("the two parts of the key do not belong together")
    return key
