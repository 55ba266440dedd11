"""Checks of a whole configuration tree: the text of each value, and which keys go together.

Every error is one `ConfigurationError` with the dotted path of the key, the value and what is expected.
"""

import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any, get_args, get_origin

import msgspec

from headgate.config.advice_section import check_advice
from headgate.config.origin_section import check_origins
from headgate.config.section import UNIX, Address, Format
from headgate.config.toml_reader import convert_document
from headgate.config.tree import Bus, Configuration, Gate, ListenerSection, Router, Sidecar
from headgate.errors import ConfigurationError, fail_any, fail_if, naming
from headgate.http.conditions import as_tuple
from headgate.limit import Domain

_MIN_SHARDED_MASTERS = 2
_SOCKET_MODE = ListenerSection(address="").mode
_SERVER_NAME = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")


def check(tree: Configuration) -> None:
    """Check a tree from a file or from flags; raises `ConfigurationError` for the first invalid value."""
    convert_document(msgspec.to_builtins(tree))  # values from flags have not been through msgspec
    check_texts(tree)
    if tree.gate.master != "embedded":
        _check_text("gate.master", _check_masters, *as_tuple(tree.gate.master))
    for name, section in (("master", tree.master), ("router", tree.router)):
        _check_text(f"{name}.listen", _check_bus, section.listen)
        _check_admin(name, section)
    _check_text("router.master", _check_routed, *tree.router.masters)
    fail_any(*_rules(tree))
    check_origins(tree.origins)
    _check_listeners(tree)
    _check_names(tree)
    _check_domains(tree)
    _check_charges(tree)
    check_advice(tree.advice, tuple(section.name for section in tree.domain))
    _check_sidecar(tree.sidecar)


def _rules(tree: Configuration) -> Iterator[tuple[object, str]]:
    """Yield what must not hold for keys of several tables, each with the message if it does."""
    gate, master, router, limit = tree.gate, tree.master, tree.router, tree.limit.concurrency
    for path, cert, key, prefix in (
        ("gate.tls", gate.tls.cert, gate.tls.key, ""),
        ("master", master.rlqs_cert, master.rlqs_key, "rlqs_"),
        ("proxy", tree.proxy.cert, tree.proxy.key, ""),
    ):
        message = f"{path}: a certificate needs its key; set both `{prefix}cert` and `{prefix}key`"
        yield bool(cert) != bool(key), message
    for path, table, names in (
        ("proxy", tree.proxy, ("cert", "self_signed", "plaintext")),
        ("sidecar", tree.sidecar, ("nginx_lua", "auth_request", "haproxy")),
    ):
        given = [f"`{name}`" for name in names if getattr(table, name)]
        yield len(given) > 1, f"{path}: {' and '.join(given)} exclude each other; set only one of them"
    for path, several in (("gate", gate), ("sidecar", tree.sidecar)):
        yield (
            several.shard == "identifier" and len(several.masters) < _MIN_SHARDED_MASTERS,
            (
                f"{path}.shard: 'identifier' spreads a domain over several masters, got {len(several.masters)}; "
                "list them in `master`, or leave `shard` out"
            ),
        )
    yield from (
        (
            tree.origin and gate.origin,
            f"gate.origin: {gate.origin!r} is set beside [[origin]]; list all origins in one of them",
        ),
        (
            router.listen in [address.removeprefix("tcp://") for address in router.masters],
            f"router.master: {router.listen!r} is the address of this router; list the addresses of masters",
        ),
        (
            master.snapshot and master.store != "memory",
            "master: a `store` keeps the histories that a `snapshot` would; set only one of them",
        ),
        (
            limit.max == "learned" and limit.is_on and not limit.healthy_latency,
            (
                "limit.concurrency.healthy_latency: missing; a learned limit needs the mean seconds of a healthy "
                "response, such as twice the usual latency: expected a line such as healthy_latency = 0.2"
            ),
        ),
        (
            limit.max != "learned" and 0 < limit.max < gate.workers,
            (
                f"limit.concurrency.max: each of {gate.workers} workers needs a permit, got {limit.max}; set it to "
                f"{gate.workers} or more, or use fewer workers"
            ),
        ),
        (
            tree.advice.learns and limit.is_on and limit.max != "learned",
            (
                f"advice.capacity: 'learned' needs limit.concurrency.max 'learned', got {limit.max}; expected a rate "
                "such as '500/s', or a learned limit"
            ),
        ),
    )


def _check_domains(tree: Configuration) -> None:
    names: set[str] = set()
    for index, section in enumerate(tree.domain):
        where = f"domain[{index}]"
        _check_text(where, section.domain)
        fail_any(
            (
                section.algorithm == "smockron" and (tree.master.store != "memory" or tree.master.rlqs),
                f"{where}.algorithm: 'smockron' is for a master without `store` and `rlqs`; use 'gcra'",
            ),
            (section.name in names, f"{where}.name: {section.name!r} is already used; domain names must be unique"),
        )
        names.add(section.name)


def _check_charges(tree: Configuration) -> None:
    """Check `also`, which names other domains and is reached, and `cost`, which is at most a burst."""
    domains, takes_all = {section.name: section.domain() for section in tree.domain}, ""
    for index, section in enumerate(tree.domain):
        for name in section.also:
            others = [repr(other) for other in domains if other != section.name]
            fail_if(
                name == section.name or name not in domains or section.also.count(name) > 1,
                f"domain[{index}].also: invalid domain {name!r}; expected others, each once: {', '.join(others)}",
            )
        fail_if(
            bool(section.also and takes_all),
            f"domain[{index}]: {takes_all!r} before it matches all requests, so {section.name!r} gets none; put "
            f"{takes_all!r} at the end",
        )
        takes_all = takes_all or (section.name if section.takes_all else "")
        for name in (section.name, *section.also):
            for rule in domains[name].rules:
                fail_if(
                    section.cost > rule.burst,
                    f"domain[{index}].cost: {section.cost} is more than the burst of {str(rule)!r} in domain {name!r}; "
                    "expected at most the burst of each rule",
                )


def check_texts(tree: Configuration) -> None:
    """Check each text for itself; raises `ConfigurationError` for the first invalid one."""
    for path, parse, text in _texts(tree, ""):
        _check_text(path, parse, text)


def log_warnings(tree: Configuration, log: Callable[[str], None], *, shared: bool = False) -> None:
    """Log a warning for each domain whose rules need much memory, or cannot be shared by several gatekeepers.

    `shared` is for a master; a gate shares its rules with others through workers, a master elsewhere or a store.
    """
    gate = tree.gate
    for origin in () if shared else tree.origins:
        if not origin.verify:
            log(f"warning: the certificate of origin {origin.url} is not checked (verify = false); use `ca` instead")
    shared = shared or gate.workers > 1 or gate.master != "embedded" or tree.master.store != "memory"
    for section in tree.domain:
        for sentence in section.domain().warnings(shared=shared):
            log(f"warning: {sentence}")


def _texts(table: msgspec.Struct, path: str) -> Iterator[tuple[str, Callable[[str], object], str]]:
    """Yield each text that a `Format` checks: its path, the parser, and the text."""
    for field in msgspec.structs.fields(table):
        value, where = getattr(table, field.name), f"{path}.{field.name}" if path else field.name
        if isinstance(value, msgspec.Struct):
            yield from _texts(value, where)
        elif parse := _parser(field.type):
            for text in as_tuple(value):
                yield where, parse, text
        elif isinstance(value, tuple):
            (kind, *_) = get_args(field.type) if get_origin(field.type) is tuple else (None,)
            for index, member in enumerate(value):
                if isinstance(member, msgspec.Struct):
                    yield from _texts(member, f"{where}[{index}]")
                elif parse := _parser(kind):
                    yield f"{where}[{index}]", parse, member


def _parser(kind: Any) -> Callable[[str], object] | None:
    if get_origin(kind) is not Annotated:
        return None
    return next((extra.parse for extra in get_args(kind) if isinstance(extra, Format)), None)


def _check_text(path: str, parse: Callable[..., object], *text: str) -> None:
    with naming(path):
        parse(*text)


def _check_sidecar(sidecar: Sidecar) -> None:
    _check_text("sidecar.master", _check_routed, *sidecar.masters)
    fail_if(
        sidecar.haproxy and len(sidecar.domains) > 1,
        f"sidecar: HAProxy has one domain, got {len(sidecar.domains)}; run a sidecar for each `domain`",
    )
    for index, name in enumerate(sidecar.domains):
        _check_text("sidecar.domain", Domain, name)
        fail_if(name in sidecar.domains[:index], f"sidecar.domain: {name!r} is listed twice; list each domain once")


def _check_listeners(tree: Configuration) -> None:
    fail_any(
        (
            tree.listener and tree.gate.listen != Gate().listen,
            "gate.listen: it is short for [[listener]] tables; leave it out, or the tables",
        ),
        (not tree.listeners, "gate.listen: no address is listed; expected one such as '127.0.0.1:8080'"),
        (
            tree.certificates and not any(one.tls for one in tree.listeners),
            "tls: no listener uses the certificates; add tls = true to a [[listener]]",
        ),
    )
    seen: set[str] = set()
    for index, one in enumerate(tree.listeners):
        where, is_unix = f"listener[{index}]" if tree.listener else "gate.listen", one.address.startswith(UNIX)
        is_free = not is_unix and not Address.parse(one.address).port
        fail_any(
            (one.address in seen and not is_free, f"{where}: {one.address!r} is listed twice; list each address once"),
            (one.mode != _SOCKET_MODE and not is_unix, f"{where}.mode: {one.mode!r} is for a unix socket, unix:PATH"),
            (one.tls and not tree.certificates, f"{where}.tls: a listener with TLS needs a certificate; add [[tls]]"),
            (one.client_ca and not one.tls, f"{where}.client_ca: only TLS has certificates of clients; add tls = true"),
            (one.redirect and one.tls, f"{where}.redirect: redirects to HTTPS are for a listener without `tls`"),
            (
                one.proxy_protocol and not tree.gate.trusted_proxies,
                f"{where}.proxy_protocol: it is accepted from gate.trusted_proxies only, and none is listed",
            ),
        )
        seen.add(one.address)


def _check_names(tree: Configuration) -> None:
    seen: set[str] = set()
    for index, one in enumerate(tree.tls):
        fail_if(
            not one.names and one is not tree.certificates[0],
            f"tls[{index}].names: missing; only the first certificate is for all names: expected such as "
            "['www.example.org']",
        )
        for name in map(str.lower, one.names):
            fail_if(
                _SERVER_NAME.fullmatch(name) is None,
                f"tls[{index}].names: invalid name {name!r:.80}; expected one such as 'www.example.org' or "
                "'*.example.org', international names as xn--…",
            )
            fail_if(name in seen, f"tls[{index}].names: {name!r} has a certificate already; list each name once")
            seen.add(name)


def _check_masters(*addresses: str) -> None:
    fail_if(not addresses, "no master is listed; expected 'embedded' or the addresses of masters")
    fail_if("embedded" in addresses, "the embedded master cannot be listed with others; list only masters elsewhere")
    for address in addresses:
        fail_if(":" not in address, f"invalid master {address!r}; expected 'embedded' or HOST:PORT")
    _check_routed(*addresses)


def _check_routed(*addresses: str) -> None:
    seen: set[str] = set()
    for address in addresses:
        name = address.removeprefix("tcp://")  # both forms name one master
        if not address.startswith("ipc://"):
            _check_master(name)
        fail_if(name in seen, f"{address!r} is listed twice; list each master once")
        seen.add(name)


def _check_bus(text: str) -> None:
    fail_if(
        Address.parse(text).port == 65_535,
        f"invalid address {text!r}: control uses the next port; choose a port below 65535",
    )


def _check_admin(name: str, section: Bus | Router) -> None:
    """Raise `ConfigurationError` if the admin listener has one of the two ports of the bus."""
    if not section.admin:
        return
    admin, bus = Address.parse(section.admin), Address.parse(section.listen)
    if bus.port and admin.host == bus.host and admin.port in {bus.port, bus.port + 1}:
        purpose = "accounting" if admin.port == bus.port else "control messages, the port after that of listen"
        raise ConfigurationError(
            f"{name}.admin: {section.admin!r} is the address of this {name} for {purpose}; choose another port"
        )


def _check_master(text: str) -> None:
    _check_bus(text)
    fail_if(
        not Address.parse(text).port, f"invalid master {text!r}: port 0 is for listeners; expected the port of a master"
    )
