"""Keys: read from PEM, and sign and verify with each kind."""

import base64
from collections.abc import Callable
from typing import Final, TypeAlias

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from headgate.errors import ConfigurationError

PrivateKey: TypeAlias = Ed25519PrivateKey | EllipticCurvePrivateKey
PublicKey: TypeAlias = Ed25519PublicKey | EllipticCurvePublicKey

_ED25519: Final = "ed25519PublicKey"
_P256: Final = "ecdsaP256SHA256PublicKey"

KEY_LENGTHS: Final = {_ED25519: 32, _P256: 33}
"""From the attribute of an integrity signature to the bytes of its public key; a P-256 point is compressed."""

_ID_SUFFIXES: Final = {_ED25519: b"\0\1\2", _P256: b"\0\2\2"}
"""The end of a web bundle id, by the kind of key (Isolated Web Apps, Scheme)."""


def read_private_key(content: bytes, *, passphrase: Callable[[], bytes] | None = None) -> PrivateKey:
    """Read an Ed25519 or P-256 private key in PEM; `passphrase` is called if it is encrypted.

    Raises `ConfigurationError`, which says what the content is.
    """
    if b"-----BEGIN" not in content:
        raise ConfigurationError("the key is not PEM; give a private key that begins with -----BEGIN PRIVATE KEY-----")
    if b"PRIVATE KEY-----" not in content:
        kind = "certificate" if b"BEGIN CERTIFICATE" in content else "public key"
        raise ConfigurationError(f"the key is a {kind}; give the private key that belongs to it")
    encrypted = b"ENCRYPTED" in content
    if encrypted and passphrase is None:
        raise ConfigurationError(
            "the private key is encrypted; write it out decrypted, with: openssl pkey -in KEY -out PLAIN"
        )
    try:
        key = load_pem_private_key(content, passphrase() if encrypted and passphrase else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        fault = (
            "cannot be decrypted with this passphrase" if encrypted else "cannot be read; it should be PKCS#8 in PEM"
        )
        raise ConfigurationError(f"the private key {fault}") from None
    if isinstance(key, Ed25519PrivateKey) or (isinstance(key, EllipticCurvePrivateKey) and is_p256(key)):
        return key
    raise ConfigurationError(
        f"the key is {_described(key)}; only Ed25519 and P-256 sign bundles: openssl genpkey -algorithm ed25519"
    )


def is_p256(key: object) -> bool:
    """Return whether a private or public key is on P-256."""
    return isinstance(key, (EllipticCurvePrivateKey, EllipticCurvePublicKey)) and isinstance(key.curve, SECP256R1)


def attribute_of(key: PublicKey) -> str:
    """Return the attribute of an integrity signature for this kind of key."""
    return _ED25519 if isinstance(key, Ed25519PublicKey) else _P256


def raw_public_key(key: PublicKey) -> bytes:
    """Return the bytes of a public key: 32 for Ed25519, 33 (the compressed point) for P-256."""
    if isinstance(key, Ed25519PublicKey):
        return key.public_bytes_raw()
    return key.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)


def load_public_key(attribute: str, raw: bytes) -> PublicKey:
    """Read a public key of an integrity signature; raises ValueError for an invalid point."""
    if attribute == _ED25519:
        return Ed25519PublicKey.from_public_bytes(raw)
    return EllipticCurvePublicKey.from_encoded_point(SECP256R1(), raw)


def web_bundle_id(key: PublicKey) -> str:
    """Return the id of a bundle signed by this key: base32 of the key and its kind, in lower case, without padding."""
    return base64.b32encode(raw_public_key(key) + _ID_SUFFIXES[attribute_of(key)]).decode().rstrip("=").lower()


def sign(key: PrivateKey, message: bytes) -> bytes:
    """Sign; the same message gives the same signature where the cryptography library can do that (RFC 6979)."""
    if isinstance(key, Ed25519PrivateKey):
        return key.sign(message)
    try:
        algorithm = ECDSA(SHA256(), deterministic_signing=True)
        return key.sign(message, algorithm)
    except UnsupportedAlgorithm:  # an OpenSSL before 3.2
        return key.sign(message, ECDSA(SHA256()))


def verify_signature(key: PublicKey, signature: bytes, message: bytes) -> bool:
    """Return whether the key signed the message."""
    try:
        if isinstance(key, Ed25519PublicKey):
            key.verify(signature, message)
        else:
            key.verify(signature, message, ECDSA(SHA256()))
    except InvalidSignature:
        return False
    return True


def _described(key: object) -> str:
    if isinstance(key, EllipticCurvePrivateKey):
        return f"on the curve {key.curve.name}"
    name = type(key).__name__.removesuffix("PrivateKey").strip("_")
    return f"of the kind {name}" if name else "of another kind"
