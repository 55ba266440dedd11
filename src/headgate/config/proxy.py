"""The table [proxy]: all that `headgate proxy` can be told, each key under the name of its flag."""

from typing import Annotated, Literal

from msgspec import Meta

from headgate.config.section import Count, Listen, Loop, Seconds, SecondsOrNone, Section

__all__ = ["Proxy"]

_Port = Annotated[int, Meta(ge=1, le=65_535)]
_Most = Annotated[int, Meta(ge=1, le=10_000_000)]


class Proxy(Section, frozen=True):
    """The prefetch proxy: a CONNECT proxy that asks an origin for its traffic advice first.

    A listener needs one of three: a certificate and its key, self_signed, or plaintext.
    """

    listen: Listen = "127.0.0.1:8443"
    """Where clients connect, HOST:PORT; port 0 takes a free one."""
    cert: str = ""
    """File with the certificate and its chain, PEM; read again on SIGHUP."""
    key: str = ""
    """File with the private key, PEM; read again on SIGHUP."""
    self_signed: bool = False
    """Whether to make a certificate for trying it out, another one at each start."""
    plaintext: bool = False
    """Whether to do without TLS, on HTTP/1.1 alone; beyond loopback only with insecure."""
    insecure: bool = False
    """Whether plaintext may be spoken beyond loopback, where others read what is asked for."""
    brand: str = "headgate"
    """The name by which advice means this proxy, before "prefetch-proxy" and "*"; also its User-Agent."""
    admin: str = ""
    """Where /livez, /readyz, /metrics and /api/state are answered, HOST:PORT; empty for nowhere."""
    workers: Annotated[int, Meta(ge=1, le=256)] = 1
    """Processes that share the listener, the places for tunnels, the advice and the tokens that were shown."""
    alpn: Annotated[tuple[Literal["h2", "http/1.1"], ...], Meta(min_length=1)] = ("h2", "http/1.1")
    """Protocols offered in TLS, the preferred one first."""
    client_ca: str = ""
    """File of certificates, PEM: clients have to show one that is signed by one of them; empty for no client."""
    token_keys: tuple[str, ...] = ()
    """Key files: a CONNECT has to show a token of one of these keys; read again on SIGHUP. None asks for no token."""
    token_store: str = ""
    """URL of a Redis that remembers, for several proxies, which tokens were shown; empty for this proxy's memory."""
    max_connections: _Most = 16_384
    """Connections of clients at once, tunnels included, in each worker."""
    client_connections: Count = 256
    """Connections of each client at once, in each worker, HTTP/1.1 tunnels not counted; 0 sets no bound. A client is an
    IPv4 address, or the first 64 bits of an IPv6 one: where a load balancer hides these, use 0."""
    client_rate: str = "off"
    """The rule for each client's CONNECTs, such as 10/s burst 20, in each worker; off for none."""
    client_tunnels: _Most = 256
    """Tunnels of each client at once, in each worker: an IPv4 address, or the first 64 bits of an IPv6 one."""
    max_tunnels: _Most = 16_384
    """Tunnels at once, over all workers; one more is refused before anything is looked up for it."""
    allow_ports: tuple[_Port, ...] = ()
    """Ports that a CONNECT may name beside 443."""
    allow_hosts: tuple[str, ...] = ()
    """Hosts that a CONNECT may name, each with every name below it; none allows all."""
    deny_hosts: tuple[str, ...] = ()
    """Hosts that a CONNECT may not name, each with every name below it, whatever allows them."""
    allow_addresses: tuple[str, ...] = ()
    """Addresses and CIDRs that are dialled although they are not global; never the proxy's own listeners."""
    resolve: tuple[str, ...] = ()
    """Where names are that are not looked up: HOST=ADDRESS or HOST=ADDRESS:PORT; * for every other name."""
    advice_ca: str = ""
    """File of certificates, PEM, to trust instead of this machine's when advice is asked for; empty for this machine's.
    """
    unreachable: Literal["hold", "permit"] = "hold"
    """What becomes of a CONNECT to an origin that cannot say what it advises: hold refuses it, permit lets it through.
    """
    unreachable_hold: Seconds = 60.0
    """Seconds for which such an origin is not asked again, unless it says for how long."""
    idle: Seconds = 300.0
    """Seconds after which a tunnel ends that nothing moves in."""
    max_seconds: SecondsOrNone = 0.0
    """Seconds that a tunnel may last; 0 sets no bound."""
    max_bytes: Count = 0
    """Bytes that a tunnel may carry, both directions together; 0 sets no bound."""
    byte_ratio: Annotated[float, Meta(ge=0, le=1_000_000)] = 0.0
    """Bytes a client has to have received for each one it sent beyond 16 KiB; 0 asks for none."""
    drain: SecondsOrNone = 30.0
    """Seconds that open tunnels may take to end after SIGTERM."""
    log: Literal["refusals", "all"] = "refusals"
    """What is written to stderr, JSON lines: refusals, and tunnels as counts; or all, with a line for each tunnel."""
    log_client: bool = False
    """Whether the lines name the client's address."""
    geofeed: str = ""
    """File that says where this proxy's addresses are (RFC 8805), published at geofeed_path; read again on SIGHUP."""
    geofeed_path: str = "/geofeed.csv"
    """The path of the proxy's own URL where the geofeed is."""
    loop: Loop = "auto"
    """The event loop: auto is uvloop where the extra is installed; uvloop insists on it; asyncio does without."""
