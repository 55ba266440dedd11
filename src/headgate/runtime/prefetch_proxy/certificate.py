"""A self-signed certificate for trying the proxy out, for this machine's own names; deleted when the proxy stops."""

import ipaddress
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.errors import MissingExtra

if TYPE_CHECKING:
    from cryptography.x509 import GeneralName


_VALID_DAYS: Final = 30


@contextmanager
def self_signed(host: str) -> Iterator[tuple[str, str]]:
    """Give the PEM files of a certificate and its ECDSA P-256 key while inside; `host` is one more name in it.

    Raises `MissingExtra` without the package cryptography.
    """
    if find_spec("cryptography") is None:
        raise MissingExtra("sign", "a self-signed certificate")
    with tempfile.TemporaryDirectory(prefix="headgate-") as folder:
        cert, key = Path(folder) / "cert.pem", Path(folder) / "key.pem"
        certificate, secret = _new_certificate(host)
        key.touch(mode=0o600)
        key.write_bytes(secret)
        cert.write_bytes(certificate)
        yield os.fspath(cert), os.fspath(key)


def _new_certificate(host: str) -> tuple[bytes, bytes]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "headgate proxy, for trying it out")])
    now = datetime.now(UTC)
    names = [_general_name(text) for text in dict.fromkeys(["localhost", "127.0.0.1", "::1", host])]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=_VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return certificate.public_bytes(Encoding.PEM), secret


def _general_name(text: str) -> "GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text.encode("idna").decode("ascii"))
