"""Whom an origin's certificate has to be from: the authorities of this machine, whatever the environment names."""

import re
import ssl
import sys
from functools import cache
from pathlib import Path
from typing import Final

__all__ = ["PROTOCOL", "usual_authorities"]

PROTOCOL: Final = "http/1.1"
"""What is spoken, as TLS calls it."""

_FILES: Final = (
    "/etc/ssl/cert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/cert.pem",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/ca-bundle.pem",
)
"""Where systems keep them: BSD, macOS, Alpine and Arch; Fedora and RHEL, new and old; Debian; SUSE."""


@cache
def usual_authorities() -> ssl.SSLContext:
    """Give the TLS context that trusts this machine's authorities; one for all, since reading them takes long."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols([PROTOCOL])
    if sys.platform == "win32":
        context.load_default_certs()
        return context
    # Not `load_default_certs`: it reads SSL_CERT_FILE and SSL_CERT_DIR.
    paths = ssl.get_default_verify_paths()
    file, folder = Path(paths.openssl_cafile), Path(paths.openssl_capath)
    if not file.is_file() and not _is_of_certificates(folder):
        file = next(filter(Path.is_file, map(Path, _FILES)), file)
    if file.is_file():
        context.load_verify_locations(cafile=file)
    if folder.is_dir():
        context.load_verify_locations(capath=folder)
    return context


def _is_of_certificates(folder: Path) -> bool:
    return folder.is_dir() and any(re.fullmatch(r"[0-9a-f]{8}\.[0-9]+", file.name) for file in folder.iterdir())
