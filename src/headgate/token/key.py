"""Keys of tokens: what each kind signs and verifies. The key says how; a token has no say in it.

A site that mints holds a secret. A proxy that checks holds the same one for HMAC-SHA256, and the public half alone for
Ed25519 (`headgate.token.ed25519`, which needs the extra `sign`).
"""

import hmac
from hashlib import sha256
from typing import Final, Literal, Protocol, TypeAlias

from headgate.errors import ConfigurationError
from headgate.token import base64url

__all__ = ["KEY_ID_LENGTH", "MAX_TTL", "SECRET_LENGTH", "Algorithm", "HmacKey", "Jwk", "Key", "key_id_of"]

Algorithm: TypeAlias = Literal["hmac-sha256", "ed25519"]

Jwk: TypeAlias = dict[str, str | int]
"""A key as a JSON Web Key (RFC 7517)."""

MAX_TTL: Final = 86_400
"""Seconds that a token may be good for, unless its key says otherwise: a day."""

SECRET_LENGTH: Final = 32
"""Bytes of a new secret, and the least that one may have (RFC 7518, section 3.2: at least as many as the hash)."""

KEY_ID_LENGTH: Final = 8
"""Bytes of a key's id: enough to tell the keys of one proxy apart."""


class Key(Protocol):
    """What a token is signed with, checked with, or both."""

    @property
    def algorithm(self) -> Algorithm:
        """How it signs."""

    @property
    def key_id(self) -> bytes:
        """The start of the key's thumbprint, the same for both halves; it stands in every token."""

    @property
    def max_ttl(self) -> int:
        """Seconds that a token of this key may be good for."""

    @property
    def can_mint(self) -> bool:
        """Whether it can sign; a public half cannot."""

    def sign(self, message: bytes) -> bytes:
        """Sign; raises `ConfigurationError` where only the public half is there."""

    def holds(self, message: bytes, signature: bytes) -> bool:
        """Say whether this key signed the message; a signature may have any length."""

    def jwk(self, *, public: bool) -> Jwk:
        """Give it as a JSON Web Key, or its public half; raises `ConfigurationError` where that is not to be had."""


class HmacKey:
    """A secret that both ends share: HMAC-SHA256 (RFC 2104).

    Raises `ConfigurationError` for a secret shorter than the hash.
    """

    algorithm: Final = "hmac-sha256"
    can_mint: Final = True

    def __init__(self, secret: bytes, *, max_ttl: int = MAX_TTL) -> None:
        if len(secret) < SECRET_LENGTH:
            raise ConfigurationError(f"the secret has {len(secret)} bytes; it must have {SECRET_LENGTH} at least")
        self._secret = secret
        self.max_ttl = max_ttl
        self.key_id = key_id_of(f'{{"k":"{base64url.encode(secret)}","kty":"oct"}}')

    def sign(self, message: bytes) -> bytes:
        """Sign."""
        return hmac.digest(self._secret, message, "sha256")

    def holds(self, message: bytes, signature: bytes) -> bool:
        """Say whether this key signed the message, in a time that tells nothing of how much of it is right."""
        return hmac.compare_digest(hmac.digest(self._secret, message, "sha256"), signature)

    def jwk(self, *, public: bool) -> Jwk:
        """Give it as a JSON Web Key (RFC 7518, section 6.4); a shared secret has no public half."""
        if public:
            raise ConfigurationError(
                "an hmac-sha256 key has no public half: a proxy that checks its tokens can also mint them; "
                "make one with --algorithm ed25519"
            )
        return {"kty": "oct", "alg": "HS256", "k": base64url.encode(self._secret)}


def key_id_of(required: str) -> bytes:
    """Give the id of a key: the start of its thumbprint (RFC 7638), made of its required members as JSON."""
    return sha256(required.encode()).digest()[:KEY_ID_LENGTH]
