"""Build the parts of a gate from its configuration, and load its bundles. Opens no socket.

The modules that read bundles are imported when there is one.
"""

import os
import resource
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from mmap import mmap
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from headgate.config import BundleSection, Configuration, DomainSection
from headgate.config.toml_reader import read_text
from headgate.config.tree import Bounds
from headgate.errors import BundleError, ConfigurationError, fail_if, naming, reason_of
from headgate.http.conditions import as_tuple
from headgate.limit import Domain, Gatekeeper, Master
from headgate.limit.arrivals import MEMORY_SIZE, Arrivals
from headgate.limit.concurrency import ConcurrencySettings
from headgate.limit.gatekeeper import Account, longest_hold, spacing
from headgate.link.curve import ClientKeys, keys_of_masters, read_client_keys
from headgate.origin import Identify, Rejections, Route, Routes
from headgate.origin.gateway import GatewayPolicy, ListenerSettings, TlsKeys
from headgate.origin.gateway.listener import HTTPS_PORT, redirect_to_https
from headgate.origin.gateway.origins import client_tls
from headgate.origin.gateway.policy import decide
from headgate.origin.gateway.responses import Respond
from headgate.origin.identify import AddressSet, ByAgent, ClientAddress, client_address, identify_by
from headgate.origin.pages import MAX_TEMPLATE_SIZE, Pages
from headgate.origin.request_info import plain_path
from headgate.origin.response import QuotaFields, Refusals
from headgate.runtime.gate_advice import GateAdvice
from headgate.runtime.gatekeeping import build_agents, new_rejections
from headgate.runtime.master_store import MasterStore

if TYPE_CHECKING:
    from headgate.origin.agents import AgentVerifier
    from headgate.origin.bundle.server import GateBundles
    from headgate.origin.bundle.snapshot import ReloadingBundle


CATCH_ALL = "default"
"""The name of the domain of rules that are given without one; it matches all requests."""
_MONITORED_LATENCY = 1.0
"""Seconds: the `healthy_latency` of a limit that only learns the capacity, and rejects nothing."""
_OTHER_FILES = 64
"""Descriptors that are kept for listeners, the admin address, the bus and files."""
REPLACED_KEYS = (
    "listeners",
    "gate.takeover",
    "gate.admin",
    "admin",
    "gate.workers",
    "gate.master",
    "gate.curve_key",
    "gate.curve_server",
    "gate.shard",
    "gate.watch_files",
    "gate.bounds.buffer_files",
    "gate.bounds.buffer_memory",
    "master.store",
    "master.snapshot_interval",
    "limit.snapshot",
)
"""Keys for which a reload replaces the gate by another one in the same process; it applies others to the one in force.
"""


class Composition(NamedTuple):
    """What decides on requests, built from the configuration."""

    domains: tuple[Domain, ...]
    routes: Routes
    identify: Identify
    reject: Rejections
    address: ClientAddress
    denies: Callable[[str], bool] | None
    pages: Pages
    agents: "AgentVerifier | None" = None
    agent_resources: Respond | None = None


def compose(tree: Configuration, old: Configuration | None = None, known: "AgentVerifier | None" = None) -> Composition:
    """Build what decides on requests. Raises `ConfigurationError` for an invalid configuration.

    The verifier that is `known` from an `old` configuration stays, with the keys that it has, if its section is the
    same.
    """
    gate = tree.gate
    sections = tree.domain or (DomainSection(name=CATCH_ALL),)
    domains = tuple(section.domain() for section in sections)
    address = client_address(gate.trusted_proxies, ipv6_prefix=gate.ipv6_prefix, fields=gate.forwarding_fields)
    routes = Routes(
        (
            Route(section.name, **{name: getattr(section, name) for name in Route.__struct_fields__[1:]})
            for section in sections
        ),
        address,
    )
    files = {"rejected": tree.responses.rejected_html, "error": tree.responses.error_html}
    pages = Pages(**{name: _read_page(f"responses.{name}_html", file) for name, file in files.items() if file})
    reject = new_rejections(sections, domains, status=gate.rejection_status, page=pages.rejected)
    with naming("gate.identify"):
        identify = identify_by(gate.identify, address)
    agents = known if old is not None and old.web_bot_auth == tree.web_bot_auth else build_agents(tree)
    needs_agents = isinstance(identify, ByAgent) or routes.needs_agents or any(each.challenge for each in sections)
    fail_if(
        needs_agents and agents is None,
        "web_bot_auth.authorities is empty; to verify agents, expected the hosts at which clients reach this site",
    )
    denies, resources = _denies(tree), _agent_resources(tree)
    return Composition(domains, routes, identify, reject, address, denies, pages, agents, resources)


def _agent_resources(tree: Configuration) -> Respond | None:
    """Return what answers requests for the directory and the card of the operator's own agent."""
    section = tree.web_bot_auth
    if not section.publish:
        return None
    from headgate.origin.agent_resources import AgentResources

    with naming("web_bot_auth.publish"):
        advice = "make a key with: headgate keys new --agent"
        return AgentResources(
            {file: read_text(file, advice=advice).encode() for file in section.publish},
            section.authorities,
            clock=time.time,
        )


def _local(resources: Respond | None, bundles: "GateBundles | None") -> Respond | None:
    """Return what answers requests that need no decision."""
    published = bundles.publish if bundles is not None and bundles.published else None
    if resources is None or published is None:
        return resources or published
    return lambda request: resources(request) or published(request)


def _read_page(key: str, file: str) -> str:
    """Read the template that a key names."""
    with naming(key):
        text = read_text(file, advice="name a readable file with an HTML page")
        fail_if(not text.strip(), f"{file!r} is empty; expected an HTML page")
        fail_if(len(text) > MAX_TEMPLATE_SIZE, f"{file!r} has more than {MAX_TEMPLATE_SIZE} characters")
    return text


def _denies(tree: Configuration) -> Callable[[str], bool] | None:
    """Read `gate.deny` and `gate.allow`; return what tells whether an address is denied, None if none is."""
    allow, deny = tree.gate.allow, tree.gate.deny
    fail_if(
        allow and not deny,
        "gate.allow has no effect without gate.deny; to admit only these addresses, add deny = ['all']",
    )
    allowed, everyone = _read_addresses("gate.allow", allow), "all" in deny
    denied = _read_addresses("gate.deny", [entry for entry in deny if entry != "all"])
    return (lambda address: (everyone or denied.has(address)) and not allowed.has(address)) if deny else None


def _read_addresses(key: str, entries: Iterable[str]) -> AddressSet:
    """Return the addresses in a list of addresses, CIDRs, and files of these."""
    texts: list[str] = []
    with naming(key):
        for entry in entries:
            is_file = Path(entry).is_file()
            lines = read_text(entry, advice="expected a file of addresses").splitlines() if is_file else [entry]
            texts += [text for line in lines if (text := line.partition("#")[0].strip())]
        return AddressSet(texts, ", or a file of these")


def check_composition(tree: Configuration) -> None:
    """Check all that can be checked without a socket; a file without an origin is one for a master."""
    composed = compose(tree)
    load_bundles(tree)
    if not tree.origins:
        return
    require_gate(tree)
    for origin in tree.origins:
        client_tls(origin)
    build_gatekeeper(tree, composed.domains, None)
    read_keys(tree)
    load_tls(tree)


def load_tls(tree: Configuration) -> dict[str, TlsKeys]:
    """Load the TLS keys of all listeners, by their `client_ca`. Raises `ConfigurationError` for invalid files."""
    return {
        client_ca: TlsKeys(tree.certificates, client_ca)
        for client_ca in dict.fromkeys(one.client_ca for one in tree.listeners if one.tls)
    }


def listener_settings(tree: Configuration, keys: Mapping[str, TlsKeys], ports: Sequence[int]) -> list[ListenerSettings]:
    """Return the settings of each listener of `tree`, which listens at one of `ports`."""
    https = next((port for one, port in zip(tree.listeners, ports, strict=True) if one.tls and port), HTTPS_PORT)
    return [
        ListenerSettings(
            keys[one.client_ca] if one.tls else None,
            one.proxy_protocol,
            redirect_to_https(port, https) if one.redirect else decide,
        )
        for one, port in zip(tree.listeners, ports, strict=True)
    ]


def require_gate(tree: Configuration) -> None:
    """Raise `ConfigurationError` without an origin, and without anything to do: a limit, or advice from the load."""
    gate = tree.gate
    fail_if(
        not tree.origins,
        "no origin: add --origin http://127.0.0.1:8000, or gate.origin to the configuration; "
        "`headgate init` writes a first one",
    )
    has_limit = tree.limit.concurrency.is_on or any(section.rules for section in tree.domain)
    fail_if(
        gate.master == "embedded" and not (has_limit or tree.advice.computes),
        "no rule: add --rule '10/s burst 20', or a [[domain]] with rules to the configuration; or limit the "
        "requests in flight with --max-in-flight. A gate forwards what its rules allow, and delays or rejects clients "
        "that send more; without a rule it would forward everything. `headgate replay access.log` suggests a rule from "
        "the log of your server",
    )


def read_keys(tree: Configuration) -> Sequence[ClientKeys | None]:
    """Return the keys for each master elsewhere. Raises `ConfigurationError` for an invalid file or number of keys."""
    gate = tree.gate
    keys = read_client_keys(gate.curve_key, as_tuple(gate.curve_server), "gate")
    fail_if(
        keys is not None and not gate.masters,
        "gate.curve_key is for a master elsewhere, but gate.master is embedded; set gate.master (--master), or "
        "leave out the keys",
    )
    return keys_of_masters(keys, len(gate.masters))


def build_policy(
    tree: Configuration,
    composed: Composition,
    gatekeeper: Gatekeeper,
    bundles: "GateBundles | None" = None,
    advice: GateAdvice | None = None,
    *,
    log: Callable[[str], None] = lambda _message: None,
) -> GatewayPolicy:
    """Build the rules for requests. `log` is called for a peer whose forwarding fields are not used."""
    if composed.agents is not None:
        composed.agents.named = composed.routes.agents()
    return GatewayPolicy(
        gatekeeper=gatekeeper,
        identify=composed.identify,
        routes=composed.routes,
        reject=composed.reject,
        quota=_quota_fields(tree, composed, gatekeeper),
        advice=advice.resource if advice is not None else None,
        arrivals=advice.arrivals if advice is not None else None,
        local=_local(composed.agent_resources, bundles),
        lifeboat=bundles.rescue if bundles is not None and bundles.lifeboats else None,
        link=bundles.link if bundles is not None and bundles.published else None,
        trusted=composed.address,
        denies=composed.denies,
        agents=composed.agents,
        challenged=frozenset(section.name for section in tree.domain if section.challenge),
        log=log,
        priorities={section.name: section.priority for section in tree.domain},
        uncounted=frozenset(section.name for section in tree.domain if section.streams == "uncounted"),
        refuse=Refusals(status=tree.gate.rejection_status, page=composed.pages.rejected),
        error_page=composed.pages.error,
    )


def _quota_fields(tree: Configuration, composed: Composition, gatekeeper: Gatekeeper) -> QuotaFields | None:
    """Return what writes RateLimit in responses to accepted requests; None where all requests are not counted here."""
    shares = {
        section.name: 1.0 if section.ratelimit_fields == "all" else 0.5
        for section in tree.domain
        if section.limits and section.mode == "enforce" and section.algorithm == "gcra"
        if section.ratelimit_fields != "rejections"
    }
    is_known = tree.gate.master == "embedded" and tree.master.store == "memory"
    return QuotaFields(gatekeeper, composed.domains, shares) if is_known and shares else None


def concurrency_settings(tree: Configuration, number: int = 0) -> ConcurrencySettings | None:
    """Return the settings of the concurrency limit of worker `number`, which has its part of it; None without one."""
    section, workers = tree.limit.concurrency, tree.gate.workers
    if not section.is_on:
        if not tree.advice.learns:
            return None
        # A limit that rejects nothing learns the capacity of the origin for the traffic advice.
        section = replace(section, max="learned", mode="monitor", healthy_latency=_MONITORED_LATENCY)

    def part(whole: int) -> int:
        return whole // workers + (number < whole % workers)

    return ConcurrencySettings(
        max=section.max if section.max == "learned" else part(section.max),
        queue=part(section.queue),
        mode=section.mode,
        ceiling=max(1, part(section.ceiling)),
        healthy_latency=section.healthy_latency,
        abandoned=section.abandoned,
    )


def fit_bounds(bounds: Bounds, log: Callable[[str], None]) -> Bounds:
    """Return bounds with as many connections as the limit of open files permits.

    Each may need another, to the origin or of a buffer.

    Without descriptors, uvloop resets new connections, and the admin listener does not answer either. A tenth fewer is
    not worth a line at every start.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    fitting = max(1, (files - _OTHER_FILES) // 2)
    if files == resource.RLIM_INFINITY or bounds.connections <= fitting:
        return bounds
    if fitting < 0.9 * bounds.connections:
        log(
            f"bounds.connections is {fitting} instead of {bounds.connections}: the limit of open files is {files}; "
            f"raise it to {2 * bounds.connections + _OTHER_FILES} (LimitNOFILE= of systemd, ulimit -n), or set "
            "bounds.connections"
        )
    return replace(bounds, connections=fitting)


def build_gatekeeper(
    tree: Configuration,
    domains: tuple[Domain, ...],
    account: Account | None,
    store: MasterStore | None = None,
    memory: memoryview | None = None,
) -> Gatekeeper:
    """Build the gatekeeper: with an embedded master, unless `account` sends to one in another process.

    In the latter case it counts in `memory` until that has answered.
    """
    gate, bound = tree.gate, tree.master.max_identifiers
    return Gatekeeper(
        account,
        master=build_master(tree, domains, store) if account is None else None,
        max_delay=gate.max_delay,
        max_delayed=gate.max_delayed,
        spacing=spacing(domains),
        max_holds=bound,
        max_hold=max_hold(tree, domains, alone=account is None and tree.master.store == "memory"),
        arrivals=None if memory is None else Arrivals(domains, memory),
    )


def new_memory() -> bytes:
    """Return the initial content of the memory of `Arrivals`: a random key, and no entry."""
    return os.urandom(32).ljust(MEMORY_SIZE, b"\0")


def open_memory(path: str) -> memoryview:
    """Return the memory that the workers share in the file at `path`; that of one process if it is empty."""
    if not path:
        return memoryview(bytearray(new_memory()))
    with Path(path).open("r+b") as file:
        return memoryview(mmap(file.fileno(), MEMORY_SIZE))


def max_hold(tree: Configuration, domains: tuple[Domain, ...], *, alone: bool = False) -> float:
    """Return the longest hold in seconds that a control may make; `alone` if no other gatekeeper shares the rules."""
    gate = tree.gate
    longest = longest_hold(domains, gate.max_delay)
    if alone:
        return longest
    # A master elsewhere may apply rules that this file does not have. Controls arrive late, and the holds of gcra
    # and smockron last until all requests accepted in the meantime are within the rule, however many these are.
    rules_are_known = gate.master == "embedded" or all(domain.rules for domain in domains)
    bounded = all(domain.algorithm == "log" for domain in domains)
    if rules_are_known:
        return longest if bounded else max(longest, gate.max_hold)
    return gate.max_hold


def build_master(tree: Configuration, domains: tuple[Domain, ...], store: MasterStore | None = None) -> Master:
    """Build the master of a gate, for its process or for the supervisor of its workers."""
    make = Master if store is None else store.new_master
    return make(domains, max_identifiers=tree.master.max_identifiers, max_delay=tree.gate.max_delay)


def snapshot_file(tree: Configuration, file: str | None) -> str:
    """Return the file in which a gate configured by `file` saves the histories of its master; empty for none."""
    named = tree.limit.snapshot
    if tree.gate.master != "embedded" or tree.master.store != "memory":
        return ""
    if named != "auto":
        return named
    path = Path(file or "")
    return str(path.with_suffix(".snapshot")) if path.is_file() and path.suffix != ".snapshot" else ""


def domains_with_kept_holds(tree: Configuration, old: Composition, new: Composition) -> set[str]:
    """Return the names of the domains whose holds are kept on the change from `old` to `new`, made for `tree`.

    In a domain that changed, the master of this gate decides on them: a client that is held by a rule that was a
    mistake should not wait for its end. Where a master elsewhere applies the rules, all are kept: it does not know of
    the change, and would not publish a hold again.
    """
    names = {domain.name for domain in new.domains}
    if tree.gate.master != "embedded":
        return names
    return names - {domain.name for domain in set(new.domains) - set(old.domains)}


def load_bundles(
    tree: Configuration, old: "GateBundles | None" = None, *, log: Callable[[str], None] = lambda _message: None
) -> "GateBundles | None":
    """Load the bundles of `tree`, except files that `old` has loaded and that are unchanged; None without bundles.

    `log` is called when the file of one is later replaced by an invalid one. Raises `ConfigurationError` for an
    invalid bundle, and for a section that has no effect.
    """
    if not tree.bundle:
        return None
    from headgate.origin.bundle.server import GateBundles, Lifeboat

    known = {(one.path, one.profile): one for one in (old.bundles if old is not None else ()) if one.is_current}
    published: dict[bytes, ReloadingBundle] = {}
    lifeboats = []
    for index, section in enumerate(tree.bundle):
        where = f"bundle[{index}]"
        _check(section, where)
        bundle = known.get((section.file, section.profile)) or _load(section, where, log)
        fail_if(
            section.path.encode() in published, f"{where}.path: {section.path!r} is taken; each bundle has its own path"
        )
        if section.path:
            published[section.path.encode()] = bundle
        if section.lifeboat:
            lifeboats.append(Lifeboat(bundle, section.hosts))
    return GateBundles(published, lifeboats)


def _check(section: BundleSection, where: str) -> None:
    path = section.path
    plain = plain_path(path.encode("utf-8", "replace")).decode("utf-8", "replace")
    if path and (path != plain or path[0] != "/" or "?" in path or "#" in path):
        instead = "/" + plain.partition("?")[0].partition("#")[0].lstrip("/")
        raise ConfigurationError(
            f"{where}.path: invalid path {path!r}; expected a decoded, normalized path such as {instead!r}"
        )
    fail_if(
        not path and not section.lifeboat, f"{where}: it has no effect; add a path to publish it at, or lifeboat = true"
    )
    fail_if(section.hosts and not section.lifeboat, f"{where}.hosts: hosts are for a lifeboat; add lifeboat = true")
    for host in section.hosts:
        fail_if(
            not host or any(character in host for character in "/@?#, ") or not host.isascii(),
            f"{where}.hosts: invalid host {host!r}; expected a name such as 'www.example.org', or '*' for all",
        )


def _load(section: BundleSection, where: str, log: Callable[[str], None]) -> "ReloadingBundle":
    from headgate.origin.bundle.snapshot import ReloadingBundle

    try:
        return ReloadingBundle(section.file, profile=section.profile, log=log)
    except (BundleError, OSError) as error:
        raise ConfigurationError(f"{where}.file: {_explain(error, section.file, section.profile)}") from None


def _explain(error: BundleError | OSError, path: str, profile: str) -> str:
    """Return why the file at `path` cannot be served, and what to do about it."""
    if isinstance(error, OSError):
        return f"{path}: {reason_of(error)}; name a readable file"
    message = f"{path} is not a valid bundle: {error.reason} at byte {error.offset} ({error.step})"
    if profile == "strict" and error.kind == "format":
        from headgate.origin.bundle.snapshot import BundleSnapshot

        try:
            BundleSnapshot(path, profile="compat")
        except (BundleError, OSError):
            return message
        return f"{message}; profile compat accepts it, as it accepts what the published tools write"
    return message
