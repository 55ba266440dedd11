"""Ed25519 keys (RFC 8032): the site that mints holds the private key, proxies need the public key only.

Imported only when an Ed25519 key is used, because the optional package cryptography implements it.
"""

from typing import Final, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from headgate.errors import ConfigurationError
from headgate.token.key import DEFAULT_MAX_TTL, Jwk, encode_base64url, key_id_of


class Ed25519Key:
    """A public key, and its private key if known."""

    algorithm: Final = "ed25519"

    def __init__(
        self, public: Ed25519PublicKey, private: Ed25519PrivateKey | None = None, *, max_ttl: int = DEFAULT_MAX_TTL
    ) -> None:
        self._public = public
        self._private = private
        self._x = encode_base64url(public.public_bytes_raw())
        self.max_ttl = max_ttl
        self.key_id = key_id_of(f'{{"crv":"Ed25519","kty":"OKP","x":"{self._x}"}}')

    @classmethod
    def from_private(cls, raw: bytes, *, max_ttl: int = DEFAULT_MAX_TTL) -> Self:
        """Return the key of 32 private bytes; raises ValueError for another length."""
        private = Ed25519PrivateKey.from_private_bytes(raw)
        return cls(private.public_key(), private, max_ttl=max_ttl)

    @classmethod
    def from_public(cls, raw: bytes, *, max_ttl: int = DEFAULT_MAX_TTL) -> Self:
        """Return the key of 32 public bytes; raises ValueError for another length."""
        return cls(Ed25519PublicKey.from_public_bytes(raw), max_ttl=max_ttl)

    @property
    def can_mint(self) -> bool:
        """Whether the private key is known."""
        return self._private is not None

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message; raises `ConfigurationError` without the private key."""
        return self._private_key().sign(message)

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Return whether this key signed the message."""
        try:
            self._public.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    def to_jwk(self, *, public: bool) -> Jwk:
        """Return the private or the public key as a JSON Web Key (RFC 8037).

        Raises `ConfigurationError` if the private key is requested and not known.
        """
        jwk: Jwk = {"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "x": self._x}
        if public:
            return jwk
        return {**jwk, "d": encode_base64url(self._private_key().private_bytes_raw())}

    def _private_key(self) -> Ed25519PrivateKey:
        if self._private is None:
            raise ConfigurationError("this is a public key; minting tokens requires the private key")
        return self._private
