"""Which hosts a certificate speaks for."""

import ipaddress
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.x509.oid import NameOID
from msgspec import Struct

__all__ = ["CertificateNames", "host_of", "names_of"]


class CertificateNames(Struct, frozen=True):
    """The names in a certificate."""

    hosts: frozenset[str]
    """In lower case; `*.example.com` stands for one label."""
    addresses: frozenset[str]

    def cover(self, host: str) -> bool:
        """Say if a host is among them; `host` as a URL in normal form has it, without brackets."""
        parent = host.partition(".")[2]
        return host in self.hosts or host in self.addresses or (bool(parent) and f"*.{parent}" in self.hosts)


def names_of(certificate: x509.Certificate) -> CertificateNames:
    """Give the subject's alternative names; only where a certificate has none at all, its common name.

    The last is RFC 6125's last resort, for certificates that people make by hand. Extensions that cannot be read raise
    whatever the library has for that.
    """
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return CertificateNames(frozenset(str(name.value).lower() for name in common), frozenset())
    hosts = frozenset(name.lower() for name in extension.get_values_for_type(x509.DNSName))
    addresses = frozenset(str(address) for address in extension.get_values_for_type(x509.IPAddress))
    return CertificateNames(hosts, addresses)


def host_of(url: str) -> str:
    """Give the host of a URL in normal form, without the brackets of an IPv6 address; "" where it has none."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return ""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.removesuffix(".")
