"""Keys that sign and verify tokens, and key files: one JSON Web Key (RFC 7517) or a set (docs/reference/token.md).

The key determines the algorithm; a token does not name one. With HMAC-SHA256 (`oct` keys, RFC 7518) the site and the
proxy hold the same secret. With Ed25519 (`OKP` keys, RFC 8037), which needs the extra `sign`, the proxy holds the
public key only. Keys, like tokens, are written in base64url. The member `max_ttl`, in seconds, is headgate's own.
"""

import base64
import hmac
import importlib.util
import json
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Literal, Protocol, Self, TypeAlias

import msgspec

from headgate.errors import ConfigurationError, MissingExtra

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey


Algorithm: TypeAlias = Literal["hmac-sha256", "ed25519"]

Jwk: TypeAlias = dict[str, str | int]
"""A key as a JSON Web Key (RFC 7517)."""

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

_ALG_NAMES: Final = {"oct": ("HS256",), "OKP": ("EdDSA", "Ed25519")}
"""Accepted values of the optional member `alg` for each `kty`; RFC 9864 renames EdDSA to Ed25519."""


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


class Ed25519Key:
    """An Ed25519 public key (RFC 8032), and its private key if known; only a site that mints tokens needs the latter.

    The optional package cryptography implements it, and is imported when such a key is used.
    """

    algorithm: Final = "ed25519"

    def __init__(
        self, public: "Ed25519PublicKey", private: "Ed25519PrivateKey | None" = None, *, max_ttl: int = DEFAULT_MAX_TTL
    ) -> None:
        self._public = public
        self._private = private
        self._x = encode_base64url(public.public_bytes_raw())
        self.max_ttl = max_ttl
        self.key_id = key_id_of(f'{{"crv":"Ed25519","kty":"OKP","x":"{self._x}"}}')

    @classmethod
    def from_private(cls, raw: bytes, *, max_ttl: int = DEFAULT_MAX_TTL) -> Self:
        """Return the key of 32 private bytes.

        Raises `ValueError` for another length, and `MissingExtra` without cryptography.
        """
        private_key, _ = _import_ed25519()
        private = private_key.from_private_bytes(raw)
        return cls(private.public_key(), private, max_ttl=max_ttl)

    @classmethod
    def from_public(cls, raw: bytes, *, max_ttl: int = DEFAULT_MAX_TTL) -> Self:
        """Return the key of 32 public bytes; raises as `from_private` does."""
        _, public_key = _import_ed25519()
        return cls(public_key.from_public_bytes(raw), max_ttl=max_ttl)

    @property
    def can_mint(self) -> bool:
        """Whether the private key is known."""
        return self._private is not None

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message; raises `ConfigurationError` without the private key."""
        return self._private_key().sign(message)

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Return whether this key signed the message."""
        from cryptography.exceptions import InvalidSignature

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

    def _private_key(self) -> "Ed25519PrivateKey":
        if self._private is None:
            raise ConfigurationError("this is a public key; minting tokens requires the private key")
        return self._private


def key_id_of(required_members: str) -> bytes:
    """Return a key's id: the first bytes of its thumbprint (RFC 7638), from its required members as JSON."""
    return sha256(required_members.encode()).digest()[:KEY_ID_SIZE]


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
    return Ed25519Key.from_private(secret, max_ttl=max_ttl)


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
    try:
        public = Ed25519Key.from_public(_decode_member("x", jwk.x), max_ttl=jwk.max_ttl)
        if jwk.d is None:
            return public
        private = Ed25519Key.from_private(_decode_member("d", jwk.d), max_ttl=jwk.max_ttl)
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


def _import_ed25519() -> "tuple[type[Ed25519PrivateKey], type[Ed25519PublicKey]]":
    if importlib.util.find_spec("cryptography") is None:
        raise MissingExtra("sign", "a token key on Ed25519")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    return Ed25519PrivateKey, Ed25519PublicKey
