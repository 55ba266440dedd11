"""The table [proxy] of the file: `headgate proxy`."""

from typing import Annotated, Literal

from msgspec import Meta

from headgate.config.section import (
    ConfigSection,
    Count,
    File,
    Format,
    Listen,
    ListenOrNone,
    Loop,
    Seconds,
    SecondsOrZero,
)
from headgate.limit import Rule

_Port = Annotated[int, Meta(ge=1, le=65_535)]
_Limit = Annotated[int, Meta(ge=1, le=10_000_000)]
_Host = Annotated[str, Format("HOST")]


class Proxy(ConfigSection, frozen=True):
    """The prefetch proxy: a CONNECT proxy that fetches the traffic advice of an origin before it connects to it.

    Set one of three: `cert` and `key`, `self_signed`, or `plaintext`. On loopback, `self_signed` is the default.
    """

    listen: Listen = "127.0.0.1:8443"
    """Address that clients connect to; [::] listens on IPv6 only, * on IPv4 and IPv6. Port 0 takes a free port."""
    cert: File = ""
    """TLS certificate chain, PEM; needs `key`. SIGHUP reloads it."""
    key: File = ""
    """Private key of the certificate, PEM. SIGHUP reloads it."""
    self_signed: bool = False
    """Create a self-signed certificate at each start, for tests; the default on loopback."""
    plaintext: bool = False
    """Disable TLS and serve HTTP/1.1 only; beyond loopback this also needs `insecure`."""
    insecure: bool = False
    """Allow `plaintext` beyond loopback, where others on the network can read which hosts are requested."""
    brand: Annotated[str, Format("NAME")] = "headgate"
    """Product name matched against traffic advice, before "prefetch-proxy" and "*"; also the User-Agent."""
    admin: ListenOrNone = ""
    """Address that serves the dashboard at /, /livez, /readyz, /metrics and /api/state. Empty disables it."""
    workers: Annotated[int, Meta(ge=1, le=256)] = 1
    """Worker processes; per-client limits apply per worker. The listener, `max_tunnels`, the advice cache and the used
    tokens are shared."""
    token_keys: tuple[File, ...] = ()
    """Key file; each CONNECT must present a token of one of the keys. Without a key file, tokens are not required.
    SIGHUP reloads it."""
    max_connections: _Limit = 16_384
    """Maximum client connections per worker, tunnels included."""
    client_connections: Count = 256
    """Maximum connections per client and worker, HTTP/1.1 tunnels excluded; 0 for no limit. A client is an IPv4 address
    or an IPv6 /64 network. Behind a load balancer that hides client addresses, use 0."""
    client_rate: Annotated[str, Format("RULE|off", lambda text: text == "off" or Rule.parse(text))] = "off"
    """Rule for the CONNECT requests of each client, per worker, such as '10/s burst 20'; off for no limit."""
    client_tunnels: _Limit = 256
    """Maximum tunnels per client and worker. A client is an IPv4 address or an IPv6 /64 network."""
    max_tunnels: _Limit = 16_384
    """Maximum tunnels over all workers; further requests are refused before any lookup."""
    allow_ports: tuple[_Port, ...] = ()
    """Port that is allowed in addition to 443."""
    allow_hosts: tuple[_Host, ...] = ()
    """Allow only this host and its subdomains. Empty allows every host."""
    deny_hosts: tuple[_Host, ...] = ()
    """Refuse this host and its subdomains. Takes precedence over `allow_hosts`."""
    allow_addresses: tuple[Annotated[str, Format("CIDR")], ...] = ()
    """Allow tunnels to this address or CIDR although it is not globally reachable. The proxy's own listeners
    remain refused."""
    resolve: tuple[Annotated[str, Format("HOST=ADDRESS[:PORT]")], ...] = ()
    """Fixed address of a host, used instead of DNS; * stands for every other host."""
    advice_ca: File = ""
    """CA certificates, PEM, to trust for advice fetches instead of the system's."""
    unreachable: Literal["hold", "permit"] = "hold"
    """Refuse (hold) or permit CONNECT requests to an origin whose advice is unreachable."""
    unreachable_hold: Seconds = 60.0
    """Seconds until unreachable advice is fetched again, unless a Retry-After says otherwise."""
    min_freshness: Annotated[float, Meta(ge=1, le=172_800), Format("SECONDS")] = 600.0
    """Minimum seconds that fetched advice stays fresh, whatever its response says; 10 minutes are suggested. Lower it
    in tests only: origins are asked more often."""
    idle: Seconds = 300.0
    """Close tunnels idle for this many seconds."""
    drain: SecondsOrZero = 30.0
    """Seconds that open tunnels may take to end after SIGTERM."""
    log_client: bool = False
    """Include client addresses in the log."""
    loop: Loop = "auto"
    """Event loop: auto uses uvloop if it is installed; uvloop requires it; asyncio does not use it."""
