"""Keys and certificates for tests, the same in every run, so that signatures can be compared."""

import io
from collections.abc import Sequence
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headgate.bundle import open_bundle
from headgate.bundle.reader import locate
from headgate.bundle.signing import sign_bundle

NOW = datetime(2026, 1, 10, tzinfo=UTC).timestamp()
"""The time of the tests of signatures, at which the certificates are valid."""

Key = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey


def p256(number: int = 1) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(number, ec.SECP256R1())


def p384(number: int = 1) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(number, ec.SECP384R1())


def ed(number: int = 1) -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.from_private_bytes(number.to_bytes(32, "big"))


def pem(key: Key, *, passphrase: bytes | None = None, encoding: PrivateFormat = PrivateFormat.PKCS8) -> bytes:
    """Return a private key in PEM."""
    protection: KeySerializationEncryption = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    return key.private_bytes(Encoding.PEM, encoding, protection)


def public_pem(key: Key) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def certificate(
    names: Sequence[str] = ("example.com",),
    key: Key | None = None,
    *,
    issuer: tuple[x509.Certificate, Key] | None = None,
    common_name: str = "a signer of tests",
    valid: tuple[datetime, datetime] = (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)),
) -> x509.Certificate:
    """Return a certificate for these hosts and addresses, self-signed unless there is an issuer."""
    key = key or p256()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    signer, signing_key = (issuer[0].subject, issuer[1]) if issuer else (subject, key)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(valid[0])
        .not_valid_after(valid[1])
    )
    if names:
        listed = [x509.IPAddress(ip_address(name)) if _is_address(name) else x509.DNSName(name) for name in names]
        builder = builder.add_extension(x509.SubjectAlternativeName(listed), critical=False)
    if issuer:
        issuer_key: Any = issuer[0].public_key()
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key)
        builder = builder.add_extension(identifier, critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    return builder.sign(signing_key, SHA256())


def root(key: Key | None = None, *, issuer: tuple[x509.Certificate, Key] | None = None) -> x509.Certificate:
    """Make a certificate that issues others, itself issued by nobody unless there is an issuer."""
    key = key or p256(2)
    name = "one between, of tests" if issuer else "a root of tests"
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signer, signing_key = (issuer[0], issuer[1]) if issuer else (None, key)
    signing_public_key: Any = signer.public_key() if signer else key.public_key()
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer.subject if signer else subject)
        .public_key(key.public_key())
        .serial_number(2)
        .not_valid_before(datetime(2025, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2030, 1, 1, tzinfo=UTC))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_public_key), critical=False)
        .sign(signing_key, SHA256())
    )


def certificate_pem(*certificates: x509.Certificate) -> bytes:
    return b"".join(one.public_bytes(Encoding.PEM) for one in certificates)


def der(one: x509.Certificate) -> bytes:
    return one.public_bytes(Encoding.DER)


def vouched(content: bytes, *names: str) -> bytes:
    """Sign all responses of a bundle that are of these hosts, with the key of a certificate for them."""
    names = names or ("example.com",)
    out = io.BytesIO()
    with open_bundle(content, profile="compat") as bundle:
        sign_bundle(
            bundle,
            out,
            certificate=certificate_pem(certificate(names)),
            key=pem(p256()),
            validity_url=f"https://{names[0]}/validity",
            date=int(NOW),
            expires=int(NOW) + 86_400,
        )
    return out.getvalue()


def tampered(content: bytes, url: str, variant_key: str | None = None, *, byte: int = -1) -> bytes:
    """Change one byte of a payload, the last unless another is meant."""
    changed = bytearray(content)
    with open_bundle(content, profile="compat") as bundle:
        location = locate(bundle.metadata, url, variant_key)
        length = len(bundle.load(location).payload)
        end = bundle.start + location.offset + location.length
    changed[end + byte if byte < 0 else end - length + byte] ^= 1
    return bytes(changed)


def _is_address(name: str) -> bool:
    return name.replace(".", "").isdigit() or ":" in name
