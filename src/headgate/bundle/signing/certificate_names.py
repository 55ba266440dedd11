"""The hosts that a certificate names."""

import ipaddress
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.x509.oid import NameOID
from msgspec import Struct


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


def host_of(url: str) -> str:
    """Return the host of a URL in normal form, without the brackets of an IPv6 address; "" without a host."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return ""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.removesuffix(".")
