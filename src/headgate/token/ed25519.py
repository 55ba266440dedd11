"""Ed25519 keys of tokens (RFC 8032): the site that mints holds the secret, proxies need the public half alone.

Imported only where there is such a key: cryptography computes.
"""

from typing import Final, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from headgate.errors import ConfigurationError
from headgate.token import base64url
from headgate.token.key import MAX_TTL, Jwk, key_id_of

__all__ = ["Ed25519Key"]


class Ed25519Key:
    """A public key, and the private one that belongs to it where that is known."""

    algorithm: Final = "ed25519"

    def __init__(
        self, public: Ed25519PublicKey, private: Ed25519PrivateKey | None = None, *, max_ttl: int = MAX_TTL
    ) -> None:
        self._public = public
        self._private = private
        self._x = base64url.encode(public.public_bytes_raw())
        self.max_ttl = max_ttl
        self.key_id = key_id_of(f'{{"crv":"Ed25519","kty":"OKP","x":"{self._x}"}}')

    @classmethod
    def of_seed(cls, seed: bytes, *, max_ttl: int = MAX_TTL) -> Self:
        """Make the key that 32 bytes stand for; raises ValueError for another number of them."""
        private = Ed25519PrivateKey.from_private_bytes(seed)
        return cls(private.public_key(), private, max_ttl=max_ttl)

    @classmethod
    def of_public(cls, raw: bytes, *, max_ttl: int = MAX_TTL) -> Self:
        """Read a public half of 32 bytes; raises ValueError for another number of them."""
        return cls(Ed25519PublicKey.from_public_bytes(raw), max_ttl=max_ttl)

    @property
    def can_mint(self) -> bool:
        """Whether the private half is here."""
        return self._private is not None

    def sign(self, message: bytes) -> bytes:
        """Sign; raises `ConfigurationError` where only the public half is there."""
        return self._known_private().sign(message)

    def holds(self, message: bytes, signature: bytes) -> bool:
        """Say whether this key signed the message."""
        try:
            self._public.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    def jwk(self, *, public: bool) -> Jwk:
        """Give it, or its public half, as a JSON Web Key (RFC 8037); raises where the private half is not there."""
        jwk: Jwk = {"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "x": self._x}
        if public:
            return jwk
        return {**jwk, "d": base64url.encode(self._known_private().private_bytes_raw())}

    def _known_private(self) -> Ed25519PrivateKey:
        if self._private is None:
            raise ConfigurationError("this is the public half of a key; tokens are minted with the private one")
        return self._private
