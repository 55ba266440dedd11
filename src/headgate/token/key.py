"""Keys that sign and verify tokens, and base64url, in which keys and tokens are written.

The key determines the algorithm; a token does not name one. With HMAC-SHA256 the site and the proxy hold the same
secret. With Ed25519 (`headgate.token.ed25519`, which needs the extra `sign`) the proxy holds the public key only.
"""

import base64
import hmac
from hashlib import sha256
from typing import Final, Literal, Protocol, TypeAlias

from headgate.errors import ConfigurationError

Algorithm: TypeAlias = Literal["hmac-sha256", "ed25519"]

Jwk: TypeAlias = dict[str, str | int]
"""A key as a JSON Web Key (RFC 7517)."""

DEFAULT_MAX_TTL: Final = 86_400
"""Maximum lifetime of a token in seconds, unless its key sets another: one day."""

MIN_SECRET_SIZE: Final = 32
"""Minimum bytes of a secret (RFC 7518, section 3.2: at least as long as the hash), and the size of new ones."""

KEY_ID_SIZE: Final = 8
"""Bytes of a key id: enough to distinguish the keys of one proxy."""


def encode_base64url(content: bytes) -> str:
    """Encode bytes as base64url without padding (RFC 4648, section 5)."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode("ascii")


def decode_base64url(text: str) -> bytes | None:
    """Decode base64url without padding; None for malformed text and for a non-canonical encoding."""
    try:
        content = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return None
    # Python's decoder skips characters outside the alphabet and ignores unused bits of the last character.
    return content if encode_base64url(content) == text else None


class Key(Protocol):
    """A key that verifies tokens and, unless it is a public key, signs them."""

    @property
    def algorithm(self) -> Algorithm:
        """The signature algorithm."""

    @property
    def key_id(self) -> bytes:
        """The first bytes of the key's thumbprint, equal for the private and the public key; part of every token."""

    @property
    def max_ttl(self) -> int:
        """Maximum lifetime of this key's tokens in seconds."""

    @property
    def can_mint(self) -> bool:
        """Whether this key can sign; a public key cannot."""

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message; raises `ConfigurationError` for a public key."""

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Return whether this key signed the message; the signature may have any length."""

    def to_jwk(self, *, public: bool) -> Jwk:
        """Return the private or the public key as a JSON Web Key; raises `ConfigurationError` without it."""


class HmacKey:
    """A secret shared by the site and the proxy: HMAC-SHA256 (RFC 2104).

    Raises `ConfigurationError` for a secret shorter than the hash.
    """

    algorithm: Final = "hmac-sha256"
    can_mint: Final = True

    def __init__(self, secret: bytes, *, max_ttl: int = DEFAULT_MAX_TTL) -> None:
        if len(secret) < MIN_SECRET_SIZE:
            raise ConfigurationError(f"the secret must have at least {MIN_SECRET_SIZE} bytes, got {len(secret)}")
        self._secret = secret
        self.max_ttl = max_ttl
        self.key_id = key_id_of(f'{{"k":"{encode_base64url(secret)}","kty":"oct"}}')

    def sign(self, message: bytes) -> bytes:
        """Return the message's HMAC."""
        return hmac.digest(self._secret, message, "sha256")

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Return whether this key signed the message; the comparison takes constant time."""
        return hmac.compare_digest(self.sign(message), signature)

    def to_jwk(self, *, public: bool) -> Jwk:
        """Return the secret as a JSON Web Key (RFC 7518, section 6.4); raises `ConfigurationError` if `public`."""
        if public:
            raise ConfigurationError(
                "an hmac-sha256 key does not have a public key, so a proxy that checks its tokens can also mint them; "
                "to separate the two, use --algorithm ed25519"
            )
        return {"kty": "oct", "alg": "HS256", "k": encode_base64url(self._secret)}


def key_id_of(required_members: str) -> bytes:
    """Return a key's id: the first bytes of its thumbprint (RFC 7638), from its required members as JSON."""
    return sha256(required_members.encode()).digest()[:KEY_ID_SIZE]
