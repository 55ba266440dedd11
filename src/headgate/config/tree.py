"""The configuration tree: what `headgate.toml` may say, and what holds where it says nothing.

Frozen values, plain as TOML has them, so that the tree can be written out and read back unchanged. Every field is
told under it; `headgate config schema` and `headgate config show` repeat those words. Seconds are floats; an empty
text, where one is allowed, means "none".
"""

from typing import Annotated, Literal

from msgspec import Meta

from headgate.advice import Entry
from headgate.config.proxy import Proxy
from headgate.config.section import Count, Listen, Loop, Seconds, SecondsOrNone, Section
from headgate.limit import Domain, Rule

__all__ = [
    "Accounting",
    "Loop",
    "Bounds",
    "BundleSection",
    "Bus",
    "Configuration",
    "DomainSection",
    "Gate",
    "Timeouts",
    "Tls",
]

Accounting = Literal["auto", "frames", "batch"]
_RULE = r"^\s*[0-9]+\s*(/|[pP][eE][rR])\s*[0-9]*\s*[A-Za-z]+(\s*[bB][uU][rR][sS][tT]\s*[0-9]+)?\s*$"
_RuleText = Annotated[
    str, Meta(extra_json_schema={"pattern": _RULE}, examples=["10/s burst 20", "600 per 10min", "1000/h burst 50"])
]


class Tls(Section, frozen=True):
    """TLS for the gate's listener; both files or neither."""

    cert: str = ""
    """File with the certificate and its chain, PEM; read again on SIGHUP."""
    key: str = ""
    """File with the private key, PEM; read again on SIGHUP."""


class Timeouts(Section, frozen=True):
    """How long the gate waits, in seconds."""

    header: Seconds = 10.0
    """For the whole head of a request, from its first byte."""
    idle: Seconds = 60.0
    """For the next request on a connection, for the next bytes of a request's body, and for a client to take more of
    what it is sent."""
    connect: Seconds = 5.0
    """For a connection to the origin; then 502 or 504."""
    response: Seconds = 60.0
    """For the head of the origin's response; then 504."""
    response_body: SecondsOrNone = 300.0
    """For the next bytes of the origin's response after its head; then the response is cut. 0 waits for ever, for event
    streams that send nothing for longer."""


class Bounds(Section, frozen=True):
    """How much of something the gate takes before it says no."""

    target_bytes: Annotated[int, Meta(ge=64, le=1_048_576)] = 8_192
    """Bytes in a request's target; more is 414."""
    head_bytes: Annotated[int, Meta(ge=1_024, le=16_777_216)] = 65_536
    """Bytes in a request's head; more is 431."""
    body_bytes: Count = 0
    """Bytes in a request's body; more is 413. 0 sets no bound."""
    connections: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    """Connections of agents at once, in each worker; one more is answered 503 and closed."""
    client_connections: Count = 1_024
    """Connections of one client address at once, in each worker; one more is answered 503 and closed. IPv6 addresses
    count by their /64 network, trusted proxies not at all. 0 sets no bound."""


class Gate(Section, frozen=True):
    """The gate: a reverse proxy that decides before it forwards."""

    listen: Listen = "127.0.0.1:8080"
    """Where agents connect, HOST:PORT; port 0 takes a free one."""
    origin: str = ""
    """The URL of the origin to forward to, such as http://127.0.0.1:8000."""
    admin: str = "127.0.0.1:8090"
    """Where /livez, /readyz, /metrics and /api/state are answered, HOST:PORT; empty for nowhere."""
    workers: Annotated[int, Meta(ge=1, le=256)] = 1
    """Processes that share the listener; they share one master too."""
    identify: str = "client-address"
    """Who a request is from: client-address, or header:NAME, which falls back to the address where it is absent or
    repeated. A header that nothing in front of the gate has authenticated is not an identity."""
    show_identifiers: Literal["digest", "clear"] = "digest"
    """How /api/state shows identifiers from a header: digest, sha256: and 16 digits of their SHA-256; or clear."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and CIDRs of your own proxies. Forwarding fields of any other address are replaced."""
    forwarding_fields: tuple[Literal["Forwarded", "X-Forwarded-For"], ...] = ("Forwarded", "X-Forwarded-For")
    """Fields in which your proxies name the client. Name those that they write and no other: where two are present and
    disagree, the request counts as the proxy's own."""
    ipv6_prefix: Annotated[int, Meta(ge=1, le=128)] = 64
    """Bits of an IPv6 address that make one identifier: one household, one identifier."""
    max_delay: SecondsOrNone = 5.0
    """Seconds a request may be delayed; one held longer is rejected."""
    max_delayed: Count = 1_024
    """Requests delayed at once, in each worker; one more is rejected."""
    rejection_status: Literal[503, 429] = 503
    """Status of a rejection."""
    master: str = "embedded"
    """Where the rules are applied: embedded, or a master's accounting address, tcp://HOST:PORT (control: PORT+1)."""
    accounting: Accounting = "auto"
    """How a master elsewhere is told: batch between headgates, frames as the document has them, auto to find out."""
    drain: SecondsOrNone = 30.0
    """Seconds that requests under way may take to end after SIGTERM."""
    loop: Loop = "auto"
    """The event loop: auto is uvloop where the extra is installed; uvloop insists on it; asyncio does without."""
    tls: Tls = Tls()
    """TLS for the listener."""
    timeouts: Timeouts = Timeouts()
    """How long the gate waits."""
    bounds: Bounds = Bounds()
    """How much the gate takes."""


class DomainSection(Section, frozen=True):
    """A group of resources limited together: its rules, and which requests belong to it.

    Domains are tried in the order of the file; the first that fits takes the request. What fits none is not limited.
    """

    name: str
    """The domain's name, as it goes over the bus and into RateLimit-Policy."""
    rules: tuple[_RuleText, ...] = ()
    """Rules that all hold; none limits nothing."""
    algorithm: Literal["log", "gcra", "smockron"] = "log"
    """log is exact and keeps as many timestamps as the burst; gcra keeps one number; smockron is the original's."""
    mode: Literal["enforce", "shadow", "off"] = "enforce"
    """enforce; shadow works everything out and holds nobody; off only counts."""
    exempt: tuple[str, ...] = ()
    """Identifiers, and CIDRs of identifiers that are addresses, which no rule applies to."""
    path_prefix: str = ""
    """Requests whose path begins with this; empty for all."""
    host: str = ""
    """Requests for this host; empty for all."""
    method: str = ""
    """Requests with this method; empty for all."""
    header: str = ""
    """Requests that have this field; empty for all."""
    value: str = ""
    """What that field must say; empty for anything."""
    bucket: str = ""
    """Sent with rejections as DDoS-Bucket-With, a path that groups throttled resources; empty sends nothing."""
    exponential_throttling: bool = True
    """false tells agents not to throttle this origin by themselves: Exponential-Throttling: disable."""

    @property
    def takes_all(self) -> bool:
        """Whether every request belongs to it that no domain before it takes."""
        return not (self.path_prefix or self.host or self.method or self.header)

    def domain(self) -> Domain:
        """Give the domain of the limit core. Raises `ConfigurationError` for a rule, name or CIDR that is none."""
        rules = tuple(Rule.parse(text) for text in self.rules)
        return Domain(self.name, rules, self.algorithm, self.mode, self.exempt)


class BundleSection(Section, frozen=True):
    """A bundle that the gate publishes, or answers from where it would reject, or both.

    The file is looked at once a second, and on SIGHUP; one that is no bundle leaves the one before in force. Replace it
    by renaming another over it.
    """

    file: str
    """The bundle's file."""
    path: str = ""
    """The URL path where it is published, such as /site.wbn, at every host; empty for nowhere. No rule limits it."""
    lifeboat: bool = False
    """Whether a GET or HEAD that would be rejected is answered from it, where it has the response."""
    hosts: tuple[str, ...] = ()
    """Further hosts whose rejected requests it answers, as its primary URL's; * for every host."""
    profile: Literal["strict", "compat"] = "strict"
    """strict refuses what the document's steps refuse; compat accepts what the published tools write."""


class Bus(Section, frozen=True):
    """A master for gatekeepers elsewhere: `headgate master`."""

    listen: Listen = "127.0.0.1:10004"
    """The accounting port, HOST:PORT; control is the next port."""
    max_identifiers: Annotated[int, Meta(ge=16, le=2**53)] = 1_000_000
    """Identifiers remembered over all domains; an embedded master has the same bound."""


class Configuration(Section, frozen=True):
    """All that `headgate.toml` says."""

    gate: Gate = Gate()
    """The gate: `headgate serve`."""
    domain: tuple[DomainSection, ...] = ()
    """The domains, in the order they are tried."""
    advice: tuple[Entry, ...] = ()
    """Entries of /.well-known/traffic-advice; none leaves the path to the origin."""
    master: Bus = Bus()
    """The master: `headgate master`."""
    bundle: tuple[BundleSection, ...] = ()
    """Bundles, in the order that lifeboats are tried."""
    proxy: Proxy = Proxy()
    """The prefetch proxy: `headgate proxy`."""
