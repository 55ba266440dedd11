"""The configuration tree: the tables and keys of `headgate.toml`, and their defaults.

The values are frozen and plain, as in TOML, so that the tree can be written out and read back unchanged. The docstring
of each field documents its key: `headgate config schema` and `headgate config show` print it whole, `--help` prints its
first sentence for the flag of the same name, with --cert for `cert` in backquotes. Durations are float seconds. An
empty text means "not set".
"""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Annotated, Literal

from msgspec import Meta, field
from msgspec.structs import replace

from headgate.config.advice_section import AdviceSection
from headgate.config.origin_section import OriginSection, OriginUrl
from headgate.config.proxy_section import Proxy
from headgate.config.section import (
    ConfigSection,
    Count,
    File,
    Format,
    Listen,
    Listener,
    ListenOrNone,
    Loop,
    Masters,
    RuleText,
    Seconds,
    SecondsOrZero,
    ServerKeys,
    SocketOrNone,
    check_listener,
    optional,
    parse_mode,
    with_value,
)
from headgate.config.store_url import StoreUrl
from headgate.errors import fail_if
from headgate.http.conditions import Conditions, as_tuple
from headgate.limit import Domain, Rule
from headgate.limit.concurrency import Priority
from headgate.limit.history import AlgorithmName

Level = Literal["debug", "info", "warning", "error"]
"""Levels of the program log, the lowest first."""


class LogSection(ConfigSection, frozen=True):
    """The access log of the gate, and the program log on stderr of every server."""

    access: Annotated[str, Meta(examples=["/var/log/headgate/access.log", "-"]), Format("FILE")] = ""
    """Access log of the gate, one line for each request; - is standard output. It is opened again on SIGHUP, after it
    was renamed. If it is written too slowly, lines are dropped and counted. Empty disables it."""
    format: Literal["json", "combined"] = "json"
    """Format of the access log: json has all fields; combined is that of Apache and nginx."""
    sample: Annotated[float, Meta(ge=0, le=1)] = 1.0
    """Share of accepted requests that are logged, from 0 to 1. Rejected and failed requests are always logged."""
    identifiers: Literal["plain", "hashed", "off"] = "plain"
    """How the access log names clients: plain, by address, and by the digest of a header that identifies; hashed, by a
    keyed hash; off, not at all."""
    identifiers_key: File = ""
    """File with the key of `identifiers` = hashed, 16 to 64 bytes. Empty for a new key at each start: then the hashes
    of a client differ after a restart."""
    level: Level = "info"
    """Lowest level of the lines of the program log."""
    lines: Literal["text", "json"] = "text"
    """Form of the lines of the program log; json has time, level, instance and message. The line that begins with
    `ready` is the same in both."""
    instance: str = ""
    """Name of this instance in the program log. Empty for the name of the host, which only json shows."""


MAX_IN_FLIGHT = 1_000_000
MaxInFlight = Annotated[Annotated[int, Meta(ge=0, le=MAX_IN_FLIGHT)] | Literal["learned"], Format("N|learned")]
"""A number of requests, or learned from latencies; 0 sets no limit."""


class ConcurrencySection(ConfigSection, frozen=True):
    """How many requests are in flight at the origin at once, and which of the others wait.

    Several workers have equal parts of `max`, `queue` and `ceiling`, and each learns its own limit.
    """

    max: MaxInFlight = 0
    """Requests in flight at the origin at once, at most: a number, or learned from latencies, which needs
    healthy_latency; 0 for no limit. A request is in flight until its exchange with the origin is complete, event
    streams included; an open WebSocket is not. Further requests wait in a queue or are rejected."""
    queue: Annotated[int, Meta(ge=0, le=MAX_IN_FLIGHT)] = 128
    """Requests that wait for a permit, at most. An origin below its capacity has short queues of up to 64 requests; set
    128 for each worker to reject none of these."""
    mode: Literal["off", "monitor", "enforce"] = "enforce"
    """enforce; monitor to compute the limit and reject nothing; off for no limit."""
    ceiling: Annotated[int, Meta(ge=1, le=MAX_IN_FLIGHT)] = 1_000
    """The largest limit that is learned."""
    healthy_latency: SecondsOrZero = 0.0
    """Mean seconds until responses begin that a learned limit permits, such as twice the usual latency of a response. A
    learned limit needs it; 0 is for a number as max."""
    abandoned: Literal["release", "hold"] = "release"
    """What becomes of the permit of a request whose client leaves before the response: release it; or hold it until the
    origin answers or gate.timeouts.response has passed, for origins that do not notice that the client has left."""

    @property
    def is_on(self) -> bool:
        """Whether there is a limit."""
        return self.max != 0 and self.mode != "off"


class Limit(ConfigSection, frozen=True):
    """Limits that follow from the load of the origin, and what a restart keeps of the others."""

    concurrency: ConcurrencySection = ConcurrencySection()
    """The concurrency limit."""
    snapshot: File = "auto"
    """File in which `headgate serve` saves what clients have used of the rules, every `master.snapshot_interval`
    seconds and at its end, and from which it starts; for `gate.master` embedded and `master.store` memory. auto is a
    file beside the configuration file, such as headgate.snapshot beside headgate.toml; empty disables it."""


Shard = Literal["domain", "identifier"]


class Tls(ConfigSection, frozen=True):
    """The certificate of the gate if it has one; set both files or neither. More are in [[tls]]."""

    cert: File = ""
    """TLS certificate chain, PEM; needs `key`. SIGHUP reloads it."""
    key: File = ""
    """Private key of the certificate, PEM. SIGHUP reloads it."""


class TlsSection(ConfigSection, frozen=True):
    """A certificate of the gate, and the names that it is for. The first certificate is also for all other names."""

    cert: File
    """TLS certificate chain, PEM. SIGHUP reloads it."""
    key: File
    """Private key of the certificate, PEM, not encrypted. SIGHUP reloads it."""
    names: tuple[Annotated[str, Format("NAME")], ...] = ()
    """Server names (SNI) for which clients get this certificate, such as www.example.org, or *.example.org for those
    with one more label. Only the first certificate needs none."""


class ListenerSection(ConfigSection, frozen=True):
    """A listener of the gate, in place of `gate.listen`."""

    address: Listener
    """Address that clients connect to: HOST:PORT, [::]:PORT for IPv6, *:PORT for IPv4 and IPv6, or unix:PATH for a unix
    socket. Port 0 takes a free port."""
    mode: Annotated[str, Format("MODE", parse_mode)] = "0666"
    """Permissions of a unix socket, in octal."""
    tls: bool = False
    """Serve HTTPS, with the certificates of [[tls]] and gate.tls."""
    client_ca: File = ""
    """Accept only clients with a certificate of the authorities in this PEM file. SIGHUP reloads it."""
    redirect: bool = False
    """Redirect all requests to https with the same host; port 443, or if clients use the port of this listener without
    translation, the port of the first listener with TLS."""
    proxy_protocol: bool = False
    """Accept connections from `gate.trusted_proxies` only, and require the PROXY protocol of version 1 or 2 from them:
    its header names the client. Connections of others, and malformed headers, are closed and counted."""


class Timeouts(ConfigSection, frozen=True):
    """Timeouts of the gate, in seconds."""

    header: Seconds = 10.0
    """For the whole head of a request, from its first byte."""
    idle: Seconds = 60.0
    """For the next request on a connection, for the next bytes of a request body, and for a client to read more of a
    response."""
    connect: Seconds = 5.0
    """For a connection to the origin; then the gate answers 502 or 504."""
    response: Seconds = 60.0
    """Seconds to wait for the head of the origin's response; then the gate answers 504."""
    response_body: SecondsOrZero = 300.0
    """For the next bytes of the origin's response after its head; then the response is cut off. 0 disables the timeout,
    for event streams with longer pauses."""


class Bounds(ConfigSection, frozen=True):
    """Limits on the size of requests and the number of connections."""

    target_bytes: Annotated[int, Meta(ge=64, le=1_048_576)] = 8_192
    """Maximum bytes in a request target; a longer one is answered 414."""
    head_bytes: Annotated[int, Meta(ge=1_024, le=16_777_216)] = 32_768
    """Maximum bytes in a request head; a longer one is answered 431. In the head of a response, twice as many."""
    head_fields: Annotated[int, Meta(ge=8, le=100_000)] = 128
    """Maximum field lines in a request head; more are answered 431."""
    max_body: Count = 67_108_864
    """Maximum bytes in a request body; a longer one is answered 413. 0 for no limit."""
    buffer_memory: Count = 33_554_432
    """Maximum bytes of buffered request bodies in memory, per worker, and of responses as many; what exceeds it goes to
    temporary files."""
    buffer_files: Count = 536_870_912
    """Maximum bytes of temporary files of request bodies, per worker, and of responses as many. If it is reached, a
    request is answered 503, and an origin waits until its client has read on. 0 for no files, and no buffered
    requests. The environment variable TMPDIR sets their directory."""
    connections: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    """Maximum client connections per worker, TLS handshakes included. For a further one the longest idle connection is
    closed; if none is idle, the further one is answered 503 and closed."""
    client_connections: Count = 1_024
    """Maximum connections per client address and worker; a further one is answered 503 and closed. IPv6 addresses count
    by their /64 network; trusted proxies are not limited. 0 for no limit."""


class Gate(ConfigSection, frozen=True):
    """The gate, `headgate serve`: a reverse proxy that applies rules before it forwards a request."""

    listen: Annotated[str | tuple[str, ...], Format("ADDRESS", check_listener)] = "127.0.0.1:8080"
    """Address that clients connect to: HOST:PORT, [::]:PORT, *:PORT for both families, or unix:PATH. Port 0 takes a
    free port. With a certificate, all use TLS; [[listener]] has more settings."""
    origin: Annotated[str | tuple[str, ...], Format("URL", optional(OriginUrl.parse))] = ""
    """URL of the origin to forward to: http://HOST:PORT, https://HOST:PORT or unix:/path. Several URLs share the
    requests; [[origin]] has more settings of each."""
    admin: ListenOrNone = "127.0.0.1:8090"
    """Address that serves the dashboard at /, /livez, /readyz, /metrics and /api/state. Empty disables it."""
    workers: Annotated[int, Meta(ge=1, le=256)] = 1
    """Worker processes; they share one listener and one master."""
    identify: Annotated[str | tuple[str, ...], Format("METHOD")] = "client-address"
    """How a request is attributed to a client: client-address, header:NAME, cookie:NAME, path:NUMBER or web-bot-auth;
    or a list, as `identify` of a domain. If the value is missing or repeated, the address is used. The identifier is =
    and the value; the scheme of Authorization counts in lower case. Use a header or a cookie only if something in front
    of the gate has authenticated it."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and CIDRs of your own proxies. Forwarding fields from other addresses are replaced."""
    forwarding_fields: tuple[Literal["Forwarded", "X-Forwarded-For"], ...] = ("X-Forwarded-For",)
    """Fields in which your proxies name the client. List only those that they set: if two are present and disagree, the
    request is attributed to the proxy. The origin gets both fields, written anew from the addresses that were used."""
    ipv6_prefix: Annotated[int, Meta(ge=1, le=128)] = 64
    """Bits of an IPv6 address that form an identifier; 64 is one household or site."""
    deny: tuple[Annotated[str, Format("CIDR|FILE")], ...] = ()
    """Answer 403 to clients with these addresses, or in these CIDRs; all for every client; or a file with one of them
    per line, and # before comments. SIGHUP reads the files again."""
    allow: tuple[Annotated[str, Format("CIDR|FILE")], ...] = ()
    """Exceptions to `deny`, as in nginx: to admit only some clients, allow them and deny all. Rules still apply to
    them; a domain's `exempt` lifts these."""
    max_delay: SecondsOrZero = 5.0
    """Maximum delay in seconds; requests that would wait longer are rejected."""
    max_delayed: Count = 1_024
    """Maximum delayed requests per worker; a further one is rejected."""
    rejection_status: Literal[503, 429] = 503
    """Status of rejections."""
    master: Masters = "embedded"
    """Where rules are applied: embedded, or HOST:PORT, the accounting address of a master or router. Its control
    address is the next port. With a list of several, each domain belongs to one of those that are connected."""
    max_hold: Annotated[float, Meta(ge=0.001, le=2_678_400), Format("SECONDS")] = 3_600.0
    """Maximum seconds for which a control message of a master elsewhere holds an identifier; a longer hold is shortened
    and counted. If all rules are known here and no domain uses gcra or smockron, the maximum follows from the rules.
    Increase it if burst/rate of a rule of that master is longer."""
    curve_key: File = ""
    """File with the secret key of this gate (`headgate keys new`), for a master that requires CURVE."""
    curve_server: ServerKeys = ""
    """Public key of the master, or a file with it; several keys are in the order of `master`."""
    shard: Shard = "domain"
    """What belongs to one of several masters: each domain; or each identifier, if a domain needs more than one master.
    All gates and sidecars use the same, and list the masters themselves, not a router."""
    drain: SecondsOrZero = 30.0
    """Seconds that requests in progress, and tunnels such as WebSockets, may take to end after SIGTERM."""
    drain_delay: SecondsOrZero = 0.0
    """Seconds after SIGTERM for which new connections are still accepted, before `drain` begins: /readyz answers 503
    draining, and responses carry Connection: close. Longer than a load balancer takes to notice; it checks /readyz."""
    takeover: SocketOrNone = ""
    """Unix socket through which a second gate takes over: started with the same file, it gets the listening sockets,
    and when it is ready, the first one drains. No connection is lost. Only the same user can connect to it."""
    buffer_requests: bool = True
    """Read the body of a request before the origin is asked, so that a slow client does not occupy it: 64 KiB in
    memory, then in a temporary file. With false, bodies are passed on as they arrive."""
    buffer_response: Count = 1_048_576
    """Bytes of a response that are read ahead of a slow client into memory; then 64 MiB into a temporary file. Event
    streams and responses with `X-Accel-Buffering: no` are not. 0 disables it: the origin waits for slow clients."""
    loop: Loop = "auto"
    """Event loop: auto uses uvloop if it is installed; uvloop requires it; asyncio does not use it."""
    tls: Tls = Tls()
    """The certificate if there is one; more are in [[tls]]."""
    watch_files: bool = False
    """Reload certificates, keys and client_ca when their files change, and not on SIGHUP only."""
    timeouts: Timeouts = Timeouts()
    """Timeouts, in seconds."""
    bounds: Bounds = Bounds()
    """Limits on the size of requests and the number of connections."""

    @property
    def masters(self) -> tuple[str, ...]:
        """The addresses of the masters elsewhere; empty if the master is embedded."""
        return () if self.master == "embedded" else as_tuple(self.master)

    @property
    def master_text(self) -> str:
        """Where rules are applied, on one line."""
        return ",".join(as_tuple(self.master))


class DomainSection(Conditions, ConfigSection, frozen=True):
    """A group of resources that are limited together: its rules, and the requests that belong to it.

    Domains are tried in the order of the file; a request belongs to the first that matches. Requests that match none
    are not limited.
    """

    name: str
    """Name of the domain; also sent on the bus and in RateLimit-Policy."""
    rules: tuple[RuleText, ...] = ()
    """Rules; all of them apply. Without rules, nothing is limited."""
    algorithm: AlgorithmName = "gcra"
    """How requests are counted: gcra stores one number per client, log stores up to burst timestamps per client and
    suits a single gatekeeper, and smockron behaves as the original master."""
    mode: Literal["enforce", "shadow", "off"] = "enforce"
    """enforce; shadow to evaluate the rules without holding requests; off to count requests only."""
    priority: Priority = "people"
    """Which requests the concurrency limit refuses last: people, then verified agents, automated ones, prefetches."""
    streams: Literal["counted", "uncounted"] = "counted"
    """uncounted for event streams and downloads: the concurrency limit counts a request of this domain only until its
    response begins, so the origin may have more than `max` requests."""
    ratelimit_fields: Literal["near", "all", "rejections"] = "near"
    """Which responses have RateLimit and RateLimit-Policy: near for rejections, and for others when less than half of
    the burst is left, so that agents slow down before they are rejected; all; or only rejections. Accepted requests
    have them with the algorithm gcra and an embedded master without `store`, for the rules of this domain."""
    exempt: tuple[str, ...] = ()
    """Identifiers that are not limited: addresses, CIDRs, or values of the header that identifies."""
    identify: Annotated[str | tuple[str, ...], Format("METHOD")] = ""
    """How a request is attributed to a client in this domain, instead of `gate.identify`: client-address, header:NAME,
    cookie:NAME, path:NUMBER (path:1 is the first segment), or a list of several that are combined. A client that may
    choose the value has a new budget with each. web-bot-auth is the URL of the verified agent; first in a list, the
    rest identifies requests without one."""
    challenge: bool = False
    """Answer requests of this domain that no verified agent has signed with 403 and Accept-Signature, which asks for a
    signature. An agent whose keys are being fetched gets this answer too, and can retry a second later."""
    also: tuple[str, ...] = ()
    """Other domains in which a request of this one counts, too. The longest hold decides, and a rejected request counts
    in none."""
    cost: Annotated[int, Meta(ge=1, le=100)] = 1
    """As how many requests each request of this domain counts, also in those of `also`. It is admitted as one, then
    further ones wait until the rules permit all of them. A master elsewhere gets it as so many requests, of which the
    algorithm log may count fewer."""
    unless: Conditions = field(default=Conditions(), name="not")
    """Matches requests that lack one of these conditions, such as { path_prefix = "/static/" }; empty matches all."""

    @property
    def takes_all(self) -> bool:
        """Whether every request matches that reaches this domain."""
        return self.is_empty and self.unless.is_empty

    def domain(self) -> Domain:
        """Return the domain of the limit core. Raises `ConfigurationError` for an invalid rule, name or CIDR."""
        rules = tuple(Rule.parse(text) for text in self.rules)
        return Domain(self.name, rules, self.algorithm, self.mode, self.exempt)

    @property
    def limits(self) -> bool:
        """Whether requests of a client are counted against rules."""
        return bool(self.rules) and self.mode != "off"


def domain_changes(old: Sequence[DomainSection], new: Sequence[DomainSection]) -> str:
    """Return what a reload changes in the domains, for the line that it logs; empty if it is nothing."""
    before, after = ({section.name: section for section in sections} for sections in (old, new))
    changed = []
    for name in before | after:
        was, now = before.get(name), after.get(name)
        if was is None or now is None:
            changed.append(f"{name} ({'added' if was is None else 'removed'})")
        elif was != now:
            names = zip(now.__struct_fields__, now.__struct_encode_fields__, strict=True)
            fields = [key for name, key in names if getattr(was, name) != getattr(now, name)]
            changed.append(f"{name} ({', '.join(fields)})")
    lost = [name for name, was in before.items() if was.limits and not (name in after and after[name].limits)]
    if not changed:
        return ""
    what = f"forgotten: what was counted in {', '.join(lost)}" if lost else "nothing was forgotten"
    return f"; domains changed: {', '.join(changed)}; {what}"


def restart_note(old: "Configuration", new: "Configuration", keys: Iterable[str]) -> str:
    """Return which of `keys`, by their paths, a reload would have to change, for the line that it logs; empty if none.

    `keys` are those that only a restart changes; a reload applies all others.
    """
    changed = changed_keys(old, new, keys)
    return f"; a restart is needed for {', '.join(changed)}" if changed else ""


def changed_keys(old: "Configuration", new: "Configuration", keys: Iterable[str]) -> list[str]:
    """Return which of `keys`, by their paths, have another value in `new`."""
    return [key for key in keys if attrgetter(key)(old) != attrgetter(key)(new)]


def keep_keys(old: "Configuration", new: "Configuration", keys: Iterable[str]) -> "Configuration":
    """Return `new` with the values that `keys`, by their paths, have in `old`."""
    for key in keys:
        new = with_value(new, key.split("."), attrgetter(key)(old))
    return new


def with_mode(tree: "Configuration", domain: str, mode: str) -> "Configuration":
    """Return a tree in which a domain has another mode. Raises `ConfigurationError` for an unknown domain."""
    known = [section.name for section in tree.domain]
    fail_if(domain not in known, f"no domain {domain!r:.80}; expected one of {', '.join(known)}")
    sections = tuple(replace(one, mode=mode) if one.name == domain else one for one in tree.domain)
    changed: Configuration = with_value(tree, ["domain"], sections)
    return changed


class BundleSection(ConfigSection, frozen=True):
    """A bundle that the gate publishes, or uses to answer requests that it would reject, or both.

    The gate checks the file once a second and on SIGHUP, and keeps the previous bundle if the new file is invalid.
    Replace the file by renaming another over it.
    """

    file: File
    """Path of the bundle."""
    path: str = ""
    """URL path that the bundle is published at, such as /site.wbn, for every host; empty to disable. Rules do not apply
    to it."""
    lifeboat: bool = False
    """Answer a GET or HEAD that would be rejected from this bundle, if it contains the response."""
    hosts: tuple[str, ...] = ()
    """Additional hosts whose rejected requests are answered as those of the primary URL's host; * for every host."""
    profile: Literal["strict", "compat"] = "strict"
    """strict rejects every violation of the bundle document; compat accepts what published tools write."""


class Bus(ConfigSection, frozen=True):
    """A master for gatekeepers elsewhere: `headgate master`."""

    listen: Listen = "127.0.0.1:10004"
    """Address for accounting messages; control messages are published on the next port."""
    max_identifiers: Annotated[int, Meta(ge=16, le=2**53)] = 1_000_000
    """Maximum identifiers stored over all domains; also applies to an embedded master."""
    rlqs: ListenOrNone = ""
    """Address that serves Envoy's rate limit quota service (gRPC, extra `envoy`), such as 127.0.0.1:10006. Beyond
    loopback it needs `rlqs_cert`, or `insecure`. Empty disables it."""
    rlqs_cert: File = ""
    """TLS certificate chain of the quota service, PEM; needs `rlqs_key`. Read at the start."""
    rlqs_key: File = ""
    """Private key of this certificate, PEM."""
    store: Annotated[str, Format("memory|URL", StoreUrl.parse)] = "memory"
    """Where histories are stored: memory, of this master only; or in Redis or Valkey, where several masters share them:
    redis://HOST, redis+sentinel://HOST,HOST/SERVICE, redis+cluster://HOST,HOST, or rediss… for TLS. Also applies to an
    embedded master."""
    snapshot: File = ""
    """File in which `headgate master` saves its histories, and from which it restores them at its start; for `store`
    memory. A symbolic link stays, and its target is replaced. Empty disables it."""
    snapshot_interval: Annotated[float, Meta(ge=0.1, le=86_400), Format("SECONDS")] = 10.0
    """Seconds between two snapshots; a last one is saved after SIGTERM."""
    admin: ListenOrNone = ""
    """Address that serves the dashboard at /, /livez, /readyz, /metrics and /api/state. Empty disables it."""
    curve_key: File = ""
    """File with the secret key of this master (`headgate keys new`); gatekeepers then connect by CURVE only. Needs
    `curve_allow`."""
    curve_allow: File = ""
    """File with the public keys of the gatekeepers that may connect, one per line. SIGHUP reloads it; connections that
    exist stay."""
    insecure: bool = False
    """Listen beyond loopback without `curve_key`: every peer that reaches the ports can then hold any client."""
    max_hold: Seconds = 3_600.0
    """Maximum delay of a request, in seconds, that the master accepts from a gatekeeper; longer ones are shortened. Set
    it to the longest `max_delay` of the gates if that is longer."""


class Router(ConfigSection, frozen=True):
    """A router between gatekeepers and several masters: `headgate router`."""

    listen: Listen = "127.0.0.1:10004"
    """Address that gatekeepers connect to, as to a master; control messages are published on the next port."""
    master: Annotated[str | tuple[str, ...], Format("HOST:PORT")] = ()
    """Accounting address of a master; its control address is the next port. The map from domains to masters
    follows from the addresses as written, so write them the same in all routers; their order has no effect. SIGHUP
    reloads them."""
    admin: ListenOrNone = ""
    """Address that serves the dashboard at /, /livez, /readyz, /metrics and /api/state. Empty disables it."""
    curve_key: File = ""
    """File with the secret key of this router (`headgate keys new`), for gatekeepers, masters or both."""
    curve_allow: File = ""
    """File with the public keys of the gatekeepers that may connect, one per line; they then connect by CURVE only.
    SIGHUP reloads it; connections that exist stay."""
    curve_server: ServerKeys = ""
    """Public key of the masters, or a file with it; several keys are in the order of `master`."""
    insecure: bool = False
    """Listen beyond loopback without `curve_allow`: every peer that reaches the ports can then hold any client."""

    @property
    def masters(self) -> tuple[str, ...]:
        """The addresses of the masters."""
        return as_tuple(self.master)


class Sidecar(ConfigSection, frozen=True):
    """A gatekeeper for nginx or HAProxy: `headgate sidecar`.

    Set one of three: `nginx_lua`, `auth_request` or `haproxy`.
    """

    master: Annotated[str | tuple[str, ...], Format("HOST:PORT")] = ()
    """Accounting address of a master or router; its control address is the next port. With several, each domain belongs
    to one of those that are connected."""
    domain: Annotated[str | tuple[str, ...], Format("NAME")] = ()
    """Domain of requests to the server. nginx can have several, HAProxy has one. If the file has the rules of a domain,
    delayed requests are spaced out, and rejections name the policy."""
    nginx_lua: SocketOrNone = ""
    """Unix socket to listen at for nginx with Lua, which delays or rejects requests itself."""
    auth_request: SocketOrNone = ""
    """Unix socket to listen at for the auth_request module of nginx, which asks before each request."""
    socket_mode: Annotated[str, Format("MODE", parse_mode)] = "0666"
    """Permissions of the socket that the sidecar listens at, in octal; every user who may write to it can act as the
    server."""
    haproxy: SocketOrNone = ""
    """Runtime socket of HAProxy (`stats socket … level admin`), which rejects requests itself."""
    table: Annotated[str, Format("NAME")] = "headgate"
    """Stick table of HAProxy that receives the holds: the name of its backend or peers section."""
    identify: Annotated[str, Format("METHOD")] = "client-address"
    """How a request is attributed to a client, if the configuration of the server does not say it, as that of HAProxy
    does: client-address or header:NAME. If the header is missing or repeated, the address is used."""
    ipv6_prefix: Annotated[int, Meta(ge=1, le=128)] = 64
    """Bits of an IPv6 address that form an identifier; 64 is one household or site."""
    max_delay: SecondsOrZero = 5.0
    """Maximum delay in seconds; requests that would wait longer are rejected. HAProxy rejects all of them."""
    max_delayed: Count = 1_024
    """Maximum delayed requests; a further one is rejected."""
    rejection_status: Literal[503, 429] = 503
    """Status of rejections."""
    max_hold: Annotated[float, Meta(ge=0.001, le=2_678_400), Format("SECONDS")] = 3_600.0
    """Maximum seconds for which a control message holds an identifier; a longer hold is shortened and counted. Increase
    it if burst/rate of a rule of the masters is longer."""
    curve_key: File = ""
    """File with the secret key of this sidecar (`headgate keys new`), for a master that requires CURVE."""
    curve_server: ServerKeys = ""
    """Public key of the master, or a file with it; several keys are in the order of `master`."""
    shard: Shard = "domain"
    """What belongs to one of several masters: each domain, or each identifier; as in `[gate]`."""
    admin: ListenOrNone = ""
    """Address that serves /livez, /readyz, /metrics and /api/state. Empty disables it."""

    @property
    def masters(self) -> tuple[str, ...]:
        """The addresses of the masters."""
        return as_tuple(self.master)

    @property
    def domains(self) -> tuple[str, ...]:
        """The names of the domains."""
        return as_tuple(self.domain)

    @property
    def mode(self) -> int:
        """The permissions of the unix socket."""
        return parse_mode(self.socket_mode)


class AdminSection(ConfigSection, frozen=True):
    """What the admin listeners of all servers have in common; their addresses are keys of each server."""

    hosts: tuple[Annotated[str, Format("HOST")], ...] = ()
    """Names that an admin listener answers to besides loopback names; beyond loopback, also besides addresses, names
    without a dot and the name of the machine."""
    control: bool = False
    """Answer `headgate ctl`, and the dashboard if there is a token: show why requests were refused, hold and release
    clients, change modes, drain. A gate then keeps its last 1,000 refused and 1,000 other requests in each process."""
    token: File = ""
    """File with a token of at least 16 characters that `headgate ctl` must send; read for each request. Empty: without
    one, from loopback addresses only."""


class WebBotAuthSection(ConfigSection, frozen=True):
    """How agents are verified that sign their requests by Web Bot Auth; needs the extra `sign`."""

    authorities: tuple[Annotated[str, Format("HOST")], ...] = ()
    """Hosts at which clients reach this site, with their ports unless 443. A signature for another host is not
    accepted, so that no other site can use the signatures that it receives here. Needed to verify any."""
    single_use: bool = False
    """Accept a signature once, by its nonce, which it then needs. Each process remembers nonces until their
    signatures expire, at most 262,144, and as many more of agents that domains name; further requests are
    anonymous."""
    allow_addresses: tuple[Annotated[str, Format("CIDR")], ...] = ()
    """Fetch the keys of agents also from this address or CIDR, although it is not globally reachable."""
    ca: File = ""
    """CA certificates, PEM, to trust when the keys of agents are fetched, instead of the system's."""
    publish: tuple[File, ...] = ()
    """Files of your own agent to publish: key files, whose public keys are served and signed as the directory of each
    of the `authorities`, and a card as `headgate keys directory --card` prints it, served at the path of its
    `client_id`. SIGHUP reads them again."""


class ResponsesSection(ConfigSection, frozen=True):
    """The responses that the gate makes itself: HTML for browsers, otherwise text or a problem document, by Accept."""

    rejected_html: File = ""
    """HTML page for requests that a rule rejects or the concurrency limit refuses. In it {status}, {title}, {reason},
    {retry_after} (seconds; empty if unknown) and {request_id} are replaced. SIGHUP reloads it. Empty
    for a plain page."""
    error_html: File = ""
    """HTML page for errors of the gate, such as 400, 413, 502 and 504; as `rejected_html`."""


class Configuration(ConfigSection, frozen=True):
    """The whole of `headgate.toml`."""

    gate: Gate = Gate()
    """The gate: `headgate serve`."""
    listener: tuple[ListenerSection, ...] = ()
    """Listeners of the gate, in place of `gate.listen`."""
    tls: tuple[TlsSection, ...] = ()
    """Certificates of the gate, which clients choose from by server name."""
    origin: tuple[OriginSection, ...] = ()
    """Origins behind the gate, instead of `gate.origin`."""
    limit: Limit = Limit()
    """Limits that follow from the load of the origin."""
    domain: tuple[DomainSection, ...] = ()
    """Domains, in the order they are tried."""
    advice: AdviceSection = AdviceSection()
    """Traffic advice, /.well-known/traffic-advice. A list [[advice]] is short for [[advice.entry]] without other
    keys."""
    master: Bus = Bus()
    """The master: `headgate master`."""
    router: Router = Router()
    """The router: `headgate router`."""
    sidecar: Sidecar = Sidecar()
    """The sidecar: `headgate sidecar`."""
    bundle: tuple[BundleSection, ...] = ()
    """Bundles, in the order they are tried for requests that would be rejected."""
    proxy: Proxy = Proxy()
    """The prefetch proxy: `headgate proxy`."""
    admin: AdminSection = AdminSection()
    """The admin listeners of all servers."""
    web_bot_auth: WebBotAuthSection = WebBotAuthSection()
    """Agents that sign their requests."""
    responses: ResponsesSection = ResponsesSection()
    """Pages for rejected requests and for errors of the gate."""
    log: LogSection = LogSection()
    """Access log and program log."""

    @property
    def origins(self) -> tuple[OriginSection, ...]:
        """The origins behind the gate."""
        return self.origin or tuple(OriginSection(url=url) for url in as_tuple(self.gate.origin) if url)

    @property
    def certificates(self) -> tuple[TlsSection, ...]:
        """All certificates of the gate; the first one is for all names that no other has."""
        first = self.gate.tls
        return (*((TlsSection(cert=first.cert, key=first.key),) if first.cert else ()), *self.tls)

    @property
    def listeners(self) -> tuple[ListenerSection, ...]:
        """All listeners of the gate."""
        has_tls = bool(self.certificates)
        short = tuple(ListenerSection(address=one, tls=has_tls) for one in as_tuple(self.gate.listen))
        return self.listener or short
