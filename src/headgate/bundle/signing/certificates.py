"""Certificate chains: `application/cert-chain+cbor` (signed exchanges, section 3.3) and PEM, read strictly."""

import warnings
from collections.abc import Iterable
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.utils import CryptographyDeprecationWarning
from msgspec import Struct

from headgate.bundle.format import cbor
from headgate.bundle.signing.certificate_names import CertificateNames, names_of
from headgate.errors import ConfigurationError

_MAGIC: Final = "📜⛓"


class AugmentedCertificate(Struct, frozen=True):
    """A certificate with its OCSP response and SCT."""

    certificate: x509.Certificate
    names: CertificateNames
    item: bytes
    """Its CBOR bytes, whatever else its map holds."""
    der: bytes
    """The certificate, as it is in the bundle."""
    ocsp: bytes | None = None
    sct: bytes | None = None


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


def write_chain(chain: Iterable[AugmentedCertificate]) -> bytes:
    """Write a chain as `application/cert-chain+cbor`."""
    return cbor.array([cbor.text(_MAGIC), *(augmented.item for augmented in chain)])


def write_augmented(der: bytes, *, ocsp: bytes | None = None, sct: bytes | None = None) -> bytes:
    """Write an augmented-certificate item."""
    entries = {"cert": der, "ocsp": ocsp, "sct": sct}
    return cbor.encode({name: value for name, value in entries.items() if value is not None})


def read_augmented(items: cbor.Items) -> AugmentedCertificate:
    """Read one augmented-certificate item; raises `CborError`."""
    start = items.position
    found: dict[str, bytes] = {}
    for key in items.entries(items.text):
        if key in ("cert", "ocsp", "sct"):
            found[key] = items.data()
        else:
            items.any()
    if "cert" not in found:
        raise cbor.CborError("a certificate's map has no cert", "3.5.1 step 5", start)
    certificate, names = _load(found["cert"], start)
    item = items.source[start : items.position]
    return AugmentedCertificate(certificate, names, item, found["cert"], found.get("ocsp"), found.get("sct"))


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
        kind = "a private key" if b"PRIVATE KEY-----" in content else "PEM"
        raise ConfigurationError(f"the certificates are {kind} without a certificate that can be read") from None
    items = [write_augmented(certificate.public_bytes(Encoding.DER)) for certificate in certificates]
    try:
        return tuple(read_augmented(cbor.Items(item)) for item in items)
    except cbor.CborError as error:
        raise ConfigurationError(f"among the certificates, {error.reason}") from None
