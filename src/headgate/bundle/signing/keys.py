"""Keys and certificates: read them from PEM or `application/cert-chain+cbor`, sign, verify, and list named hosts."""

import ipaddress
import warnings
from collections.abc import Callable
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from cryptography import x509
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
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import NameOID
from msgspec import Struct

from headgate.bundle.format import cbor
from headgate.bundle.format.integrity_block import key_id
from headgate.bundle.format.sections import read_certificate
from headgate.errors import ConfigurationError, fail_if

PrivateKey: TypeAlias = Ed25519PrivateKey | EllipticCurvePrivateKey

PublicKey: TypeAlias = Ed25519PublicKey | EllipticCurvePublicKey

_ED25519: Final = "ed25519PublicKey"
_P256: Final = "ecdsaP256SHA256PublicKey"
_MAGIC: Final = "📜⛓"


def read_private_key(content: bytes, *, passphrase: Callable[[], bytes] | None = None) -> PrivateKey:
    """Read an Ed25519 or P-256 private key in PEM; `passphrase` is called if it is encrypted.

    Raises `ConfigurationError`, which says what the content is.
    """
    fail_if(
        b"-----BEGIN" not in content,
        "the key is not PEM; give a private key that begins with -----BEGIN PRIVATE KEY-----",
    )
    if b"PRIVATE KEY-----" not in content:
        kind = "certificate" if b"BEGIN CERTIFICATE" in content else "public key"
        raise ConfigurationError(f"the key is a {kind}; give the private key that belongs to it")
    encrypted = b"ENCRYPTED" in content
    fail_if(
        encrypted and passphrase is None,
        "the private key is encrypted; write it out decrypted, with: openssl pkey -in KEY -out PLAIN",
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
    """Return the id of a bundle signed by this key."""
    return key_id(attribute_of(key), raw_public_key(key))


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


class CertificateNames(Struct, frozen=True):
    """The names in a certificate."""

    hosts: frozenset[str]
    """In lower case; `*.example.com` matches one label."""
    addresses: frozenset[str]

    def cover(self, host: str) -> bool:
        """Return whether they include a host, in normal form and without brackets."""
        parent = host.partition(".")[2]
        return host in self.hosts or host in self.addresses or (bool(parent) and f"*.{parent}" in self.hosts)


def names_of(certificate: x509.Certificate) -> CertificateNames:
    """Return the subject's alternative names; without any, its common name (RFC 6125, as a last resort).

    Malformed extensions raise errors of the library.
    """
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return CertificateNames(frozenset(str(name.value).lower() for name in common), frozenset())
    hosts = frozenset(name.lower() for name in extension.get_values_for_type(x509.DNSName))
    addresses = frozenset(str(address) for address in extension.get_values_for_type(x509.IPAddress))
    return CertificateNames(hosts, addresses)


def certificate_host(url: str) -> str:
    """Return the host of a URL in normal form, without the brackets of an IPv6 address; "" without a host."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return ""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.removesuffix(".")


class AugmentedCertificate(Struct, frozen=True):
    """A certificate, with its OCSP response if it has one."""

    certificate: x509.Certificate
    names: CertificateNames
    item: bytes
    """Its CBOR bytes, with all entries of its map."""
    der: bytes
    """The certificate, as it is in the bundle."""
    ocsp: bytes | None = None


def read_certificate_chain(content: bytes) -> tuple[AugmentedCertificate, ...]:
    """Read a chain, the signing certificate first, from PEM or cert-chain+cbor.

    Raises `ConfigurationError` for anything else.
    """
    if b"-----BEGIN" in content:
        return _read_pem(content)
    try:
        return _read_cbor(cbor.Items(content))
    except cbor.CborError as error:
        fault = f"{error.reason} at byte {error.offset}"
        raise ConfigurationError(f"the certificates are neither PEM nor application/cert-chain+cbor: {fault}") from None


def read_augmented(items: cbor.Items) -> AugmentedCertificate:
    """Read one augmented-certificate item; raises `CborError`."""
    start = items.position
    item, found = read_certificate(items)
    certificate, names = _load(found["cert"], start)
    return AugmentedCertificate(certificate, names, item, found["cert"], found.get("ocsp"))


def _load(der: bytes, start: int) -> tuple[x509.Certificate, CertificateNames]:
    try:
        with warnings.catch_warnings():
            # What RFC 5280 forbids and the library accepts with a warning is refused.
            warnings.simplefilter("error", CryptographyDeprecationWarning)
            certificate = x509.load_der_x509_certificate(der)
            return certificate, names_of(certificate)
    except Exception as error:
        # For malformed certificates the library raises errors without a common base.
        raise cbor.CborError(f"the certificate cannot be read: {error}", "", start) from None


def _read_cbor(items: cbor.Items) -> tuple[AugmentedCertificate, ...]:
    count = items.array()
    start = items.position
    if items.text() != _MAGIC:
        raise cbor.CborError(f"it does not begin with {_MAGIC}", "", start)
    if count < 2:
        raise cbor.CborError("it has no certificate", "", 0)
    chain = []
    for index in range(count - 1):
        start = items.position
        chain.append(read_augmented(items))
        if index and chain[-1].ocsp is not None:
            # "Subsequent certificates MUST NOT have an ocsp value."
            raise cbor.CborError(f"certificate {index} has an OCSP response, which is for the first alone", "", start)
    items.end()
    return tuple(chain)


def _read_pem(content: bytes) -> tuple[AugmentedCertificate, ...]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CryptographyDeprecationWarning)
            certificates = x509.load_pem_x509_certificates(content)
    except ValueError:
        kind = "a private key and no" if b"PRIVATE KEY-----" in content else "no"
        raise ConfigurationError(f"the file of the certificates has {kind} certificate that can be read") from None
    items = [cbor.encode({"cert": certificate.public_bytes(Encoding.DER)}) for certificate in certificates]
    try:
        return tuple(read_augmented(cbor.Items(item)) for item in items)
    except cbor.CborError as error:
        raise ConfigurationError(f"among the certificates, {error.reason}") from None
