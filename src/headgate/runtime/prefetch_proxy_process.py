"""One process of a prefetch proxy: decision, tunnel server and log built from the table [proxy], reloaded and drained.

It is a proxy of its own, or one worker of several: then this is the main module of the process.
"""

import asyncio
import gc
import ipaddress
import os
import ssl
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from headgate.advice import AgentIdentity
from headgate.advice.identity import EVERY_AGENT, PREFETCH_PROXY
from headgate.config import Address
from headgate.config.proxy_section import Proxy
from headgate.config.toml_reader import read_bytes
from headgate.config.tree import LogSection
from headgate.errors import MissingExtra, fail_if, naming
from headgate.fetch.destinations import AddressRules, parse_network
from headgate.fetch.fetcher import tls_context
from headgate.limit import Rule
from headgate.proxy.admission.authority import HostRules
from headgate.proxy.admission.decide import Admission, AdviceSource, ProxyPolicy
from headgate.proxy.admission.destinations import Overrides, Resolver
from headgate.proxy.admission.limits import Clients, TunnelSlots
from headgate.proxy.admission.remote_advice import AdviceQuery, AdviceReply, RemoteAdvice
from headgate.proxy.admission.tokens import TokenCheck
from headgate.proxy.counters import Counts
from headgate.proxy.dns import SystemLookup
from headgate.proxy.log import DecisionLog
from headgate.proxy.server import TunnelServer
from headgate.proxy.sockets import is_local_address, listening_socket, server_context
from headgate.runtime.ipc import Configure, Query, Ready, Reply, Shutdown, StartFailed
from headgate.runtime.lifecycle import Backend
from headgate.runtime.listen import listen_error
from headgate.runtime.log import configure_log, log, log_counters, write_line
from headgate.runtime.worker_main import Send, run_worker
from headgate.token import Checker, Key, read_keys
from headgate.token.keys import MAX_KEY_FILE_SIZE

if TYPE_CHECKING:
    from cryptography.x509 import GeneralName


_Made = TypeVar("_Made")


def check_proxy(proxy: Proxy) -> None:
    """Check all that can be checked without a socket; raises `ConfigurationError`."""
    fail_if(
        proxy.brand.strip() in {"", PREFETCH_PROXY, EVERY_AGENT},
        f"proxy.brand: {proxy.brand!r} must be the name of one proxy, such as 'ExampleProxy'",
    )
    _parse("brand", AgentIdentity.of, proxy.brand)
    build_host_rules(proxy)
    build_clients(proxy)
    build_resolver(proxy, SystemLookup(), ())
    tls_context("proxy.advice_ca", proxy.advice_ca)
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


def read_token_keys(proxy: Proxy) -> tuple[Key, ...]:
    """Read the keys of tokens; none where no token is required."""
    keys: list[Key] = []
    for file in proxy.token_keys:
        content = read_bytes(file, advice="name a readable file", most=MAX_KEY_FILE_SIZE)
        with naming(file):
            keys += read_keys(content)
    if keys:
        Checker(keys)  # files that are each valid may contradict one another
    return tuple(keys)


def _parse(name: str, parse: Callable[..., _Made], *given: Any, **named: Any) -> _Made:
    """Parse the value of a key; raises `ConfigurationError` that names the key."""
    with naming(f"proxy.{name}"):
        return parse(*given, **named)


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


class ProxyConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of one process of a proxy. All but `worker` is the same for all of them."""

    settings: Proxy
    log: LogSection = LogSection()
    addresses: tuple[Address, ...]
    """Numeric addresses to listen at; reserved, and shared with other processes."""
    admin: tuple[Address, ...]
    """Numeric addresses of the admin listener."""
    files: tuple[str, str] | None
    """The certificate and its key; None in plaintext."""
    key: bytes
    """The key of the draws that stay the same for a client and an origin."""
    slots: int
    """Descriptor of the table of open tunnels, owned by the process that gets it."""
    tokens: int | None
    """Descriptor of the table of used tokens, likewise; None without tokens."""
    worker: int = 0
    """The number of the worker, from 0."""


class WorkerState(msgspec.Struct, frozen=True):
    """The state of one process that accepts connections, or the sum of several."""

    counts: Counts
    """What it has counted; without advice fetches, where another process fetches advice."""
    dropped: int = 0
    """Log lines dropped."""
    cut: int = 0
    """Tunnels closed at its end before they had ended."""


FromSupervisor = Configure[ProxyConfiguration] | Query | Shutdown | AdviceReply
FromWorker = Ready | StartFailed | Reply | AdviceQuery


class ProxyProcess(Backend):
    """The decision on CONNECT requests and the tunnels. Raises `ConfigurationError` for invalid settings."""

    def __init__(self, configuration: ProxyConfiguration, advice: AdviceSource) -> None:
        settings = configuration.settings
        configure_log(configuration.log)
        self._configuration = configuration
        self.drain_timeout = settings.drain
        self._closing = ExitStack()
        self._cut = 0
        # Kept to the end of the process: decisions that are cancelled at the end release their slots later.
        self._slots = TunnelSlots(settings.max_tunnels, configuration.slots, worker=configuration.worker)
        self._tokens = self._new_tokens()
        decision_log = DecisionLog(write_line, clients=settings.log_client)
        self._closing.callback(decision_log.flush)
        self._decision = Admission(
            ProxyPolicy(key=configuration.key, unreachable=settings.unreachable, idle=settings.idle),
            tokens=self._tokens,
            clients=build_clients(settings),
            slots=self._slots,
            hosts=build_host_rules(settings),
            resolver=build_resolver(settings, SystemLookup(), (*configuration.addresses, *configuration.admin)),
            advice=advice,
            log=decision_log,
            seconds_left=lambda: self._server.seconds_left,
            connect=lambda *what: self._server.connector.connect(*what),  # noqa: PLW0108 - the server is made later
        )
        self._server = TunnelServer(
            self._decision.decide,
            self._decision.refuse_early,
            connections=settings.max_connections,
            client_connections=settings.client_connections,
        )

    async def start(self) -> None:
        tls = self._new_context()
        for address in self._configuration.addresses:
            try:
                self._server.start(listening_socket(*address, reuse_port=True), tls=tls)
            except OSError as error:
                raise listen_error("--listen", address, error) from None
        # The objects built so far stay: the garbage collector need not look at them again.
        gc.collect()
        gc.freeze()

    async def state(self, *, whole: bool) -> WorkerState:  # noqa: ARG002  # nothing of it takes long
        """Return what was counted."""
        return WorkerState(self.counts()[os.getpid()], log_counters().dropped, self._cut)

    def counts(self) -> dict[int, Counts]:
        """Return what was counted, by the id of this process."""
        # The bytes of a tunnel are counted when it ends; those of open tunnels are added.
        counts, (received, sent) = self._decision.counts, self._server.bytes_passed
        return {
            os.getpid(): msgspec.structs.replace(counts, received=counts.received + received, sent=counts.sent + sent)
        }

    async def reload(self, configuration: object) -> None:  # noqa: ARG002  # only files are read again
        """Read certificate and token keys again."""
        tls, keys = self._new_context(), read_token_keys(self._configuration.settings)
        if tls is not None:
            self._server.replace_tls(tls)
        if self._tokens is not None:
            self._tokens.replace_keys(keys)

    async def drain(self, seconds: float) -> None:
        self._cut = await self._server.drain(seconds, others_have_tunnels=lambda: self._slots.taken > 0)
        await asyncio.sleep(0)  # decisions under way are cancelled in this turn

    async def close(self) -> None:
        await self.drain(0)
        self._closing.close()

    def _new_context(self) -> ssl.SSLContext | None:
        files = self._configuration.files
        return None if files is None else server_context(*files)

    def _new_tokens(self) -> TokenCheck | None:
        keys = read_token_keys(self._configuration.settings)
        if self._configuration.tokens is None:
            return None
        tokens = TokenCheck(keys, self._configuration.tokens)
        self._closing.callback(tokens.close)
        return tokens


def log_exception(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an exception of the event loop on one line, without a traceback."""
    log(f"internal error: {context.get('message')}: {context.get('exception')!r}")


class _ProxyWorker(ProxyProcess):
    """One proxy of several, which gets advice from the supervisor."""

    def __init__(self, configuration: ProxyConfiguration, send: Send) -> None:
        self._remote_advice = RemoteAdvice(send)
        super().__init__(configuration, self._remote_advice)
        asyncio.get_running_loop().set_exception_handler(log_exception)

    def on_message(self, message: Any) -> None:
        if isinstance(message, AdviceReply):
            self._remote_advice.receive(message)
        else:
            self._remote_advice.close()


if __name__ == "__main__":
    sys.exit(run_worker(FromSupervisor, _ProxyWorker))
