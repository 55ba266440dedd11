"""Builds the parts of a proxy from the table [proxy], and a self-signed certificate. Opens no socket."""

import ipaddress
import os
import ssl
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headgate.advice import AgentIdentity
from headgate.advice.identity import EVERY_AGENT, PREFETCH_PROXY
from headgate.config.proxy_section import Proxy
from headgate.errors import ConfigurationError, MissingExtra, reason_of
from headgate.fetch.fetcher import PROTOCOL, default_context
from headgate.limit import Rule
from headgate.proxy.admission.authority import HostRules
from headgate.proxy.admission.destinations import AddressRules, Overrides, Resolver, parse_network
from headgate.proxy.admission.limits import Clients
from headgate.proxy.dns import SystemLookup
from headgate.proxy.sockets import is_local_address, server_context
from headgate.token import Checker, Key, read_keys
from headgate.token.keys import MAX_KEY_FILE_SIZE

if TYPE_CHECKING:
    from cryptography.x509 import GeneralName


_Made = TypeVar("_Made")


def check_proxy(proxy: Proxy) -> None:
    """Check all that can be checked without a socket; raises `ConfigurationError`."""
    if proxy.brand.strip() in {"", PREFETCH_PROXY, EVERY_AGENT}:
        raise ConfigurationError(f"proxy.brand: {proxy.brand!r} must be the name of one proxy, such as 'ExampleProxy'")
    _parse("brand", AgentIdentity.of, proxy.brand)
    build_host_rules(proxy)
    build_clients(proxy)
    build_resolver(proxy, SystemLookup(), ())
    advice_tls_context(proxy)
    read_token_keys(proxy)
    if proxy.cert:
        server_context(proxy.cert, proxy.key)


def build_host_rules(proxy: Proxy) -> HostRules:
    """Return the rules for hosts and ports."""
    for name in ("allow_hosts", "deny_hosts"):
        for text in getattr(proxy, name):
            _parse(name, HostRules, deny=[text])
    return HostRules(allow=proxy.allow_hosts, deny=proxy.deny_hosts, ports=proxy.allow_ports)


def build_clients(proxy: Proxy) -> Clients:
    """Return the limits of each client."""
    rule = None if proxy.client_rate == "off" else _parse("client_rate", Rule.parse, proxy.client_rate)
    return Clients(tunnels=proxy.client_tunnels, rule=rule)


def build_resolver(proxy: Proxy, lookup: SystemLookup, listeners: Iterable[tuple[str, int]]) -> Resolver:
    """Return what finds the addresses to dial; `listeners` are the proxy's own numeric addresses."""
    rules = AddressRules(
        [_parse("allow_addresses", parse_network, text) for text in proxy.allow_addresses],
        listeners=[(ip_address(host.partition("%")[0]), port) for host, port in listeners],
        is_local_address=is_local_address,
    )
    overrides = _parse("resolve", Overrides, proxy.resolve)
    return Resolver(rules, lookup, overrides=overrides)


def advice_tls_context(proxy: Proxy) -> ssl.SSLContext:
    """Return the TLS context of advice fetches; it trusts only the authorities of `advice_ca`, if given."""
    if not proxy.advice_ca:
        return default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols([PROTOCOL])
    try:
        context.load_verify_locations(proxy.advice_ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"proxy.advice_ca: {proxy.advice_ca!r} cannot be used ({reason_of(error)}); give a PEM file of certificates"
        ) from None
    return context


def read_token_keys(proxy: Proxy) -> tuple[Key, ...]:
    """Read the keys of tokens; none where no token is required."""
    keys: list[Key] = []
    for file in proxy.token_keys:
        content = _read(file, MAX_KEY_FILE_SIZE)
        try:
            keys += read_keys(content)
        except ConfigurationError as error:
            raise ConfigurationError(f"{file}: {error}") from None
    if keys:
        Checker(keys)  # files that are each valid may contradict one another
    return tuple(keys)


def _read(file: str, most: int) -> bytes:
    """Read a file, and one byte more than `most` of a longer one."""
    try:
        with Path(file).open("rb") as opened:
            return opened.read(most + 1)
    except OSError as error:
        raise ConfigurationError(f"{file}: {reason_of(error)}; name a readable file") from None


def _parse(name: str, parse: Callable[..., _Made], *given: Any, **named: Any) -> _Made:
    """Parse the value of a key; raises `ConfigurationError` that names the key."""
    try:
        return parse(*given, **named)
    except ConfigurationError as error:
        raise ConfigurationError(f"proxy.{name}: {error}") from None


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
