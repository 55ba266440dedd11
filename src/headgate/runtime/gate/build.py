"""Configuration to objects: the one place where the rooms below are put together. Nothing here opens a socket."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from headgate import advice
from headgate.config import Configuration, DomainSection
from headgate.errors import ConfigurationError
from headgate.limit import Domain, Gatekeeper, Master
from headgate.limit.gatekeeper import MAX_HOLD, Account, longest_hold, spacing
from headgate.origin import Identify, Rejections, Route, Routes, parse_identify
from headgate.origin.gateway import Gateway, TlsKeys
from headgate.runtime.gate.bundle_loader import shelf_of

if TYPE_CHECKING:
    from headgate.origin.bundle import Shelf

__all__ = [
    "CATCH_ALL",
    "Composition",
    "check_composition",
    "compose",
    "gatekeeper_of",
    "gateway_of",
    "kept_domains",
    "master_of",
    "require_gate",
    "warn",
]

CATCH_ALL = "default"
"""The domain of every request, where rules are given without one."""


class Composition(NamedTuple):
    """What decides on requests, as far as configuration says it."""

    domains: tuple[Domain, ...]
    routes: Routes
    identify: Identify
    reject: Rejections
    advice: bytes | None


def compose(tree: Configuration) -> Composition:
    """Build what decides. Raises `ConfigurationError` for what cannot be meant."""
    gate = tree.gate
    sections = tree.domain or (DomainSection(name=CATCH_ALL),)
    domains = tuple(section.domain() for section in sections)
    routes = Routes(
        Route(section.name, section.path_prefix, section.host, section.method, section.header, section.value)
        for section in sections
    )
    reject = Rejections(
        domains,
        status=gate.rejection_status,
        buckets={section.name: section.bucket for section in sections if section.bucket},
        opted_out=[section.name for section in sections if not section.exponential_throttling],
    )
    identify = parse_identify(
        gate.identify, gate.trusted_proxies, ipv6_prefix=gate.ipv6_prefix, fields=gate.forwarding_fields
    )
    document = advice.document(tree.advice) if tree.advice else None
    return Composition(domains, routes, identify, reject, document)


def check_composition(tree: Configuration) -> None:
    """Check all that can be checked without a socket; a file that names no origin is for a master alone."""
    composed = compose(tree)
    shelf_of(tree)
    if not tree.gate.origin:
        return
    require_gate(tree)
    gateway_of(tree, composed, gatekeeper_of(tree, composed.domains, None))
    if tree.gate.tls.cert:
        TlsKeys(tree.gate.tls.cert, tree.gate.tls.key)


def warn(tree: Configuration, tell: Callable[[str], None]) -> None:
    """Tell of domains whose rules cost much."""
    for section in tree.domain:
        sentence = section.domain().warning
        if sentence:
            tell(f"headgate: warning: {sentence}")


def require_gate(tree: Configuration) -> None:
    """Raise `ConfigurationError` when there is nothing to forward to, or nothing to limit by."""
    gate = tree.gate
    if not gate.origin:
        raise ConfigurationError("no origin: add --origin http://127.0.0.1:8000, or gate.origin to the configuration")
    if gate.master == "embedded" and not any(section.rules for section in tree.domain):
        raise ConfigurationError("no rule: add --rule '10/s burst 20', or a [[domain]] with rules to the configuration")


def gateway_of(
    tree: Configuration, composed: Composition, gatekeeper: Gatekeeper, shelf: "Shelf | None" = None
) -> Gateway:
    """Give the gateway, which listens nowhere yet. Raises `ConfigurationError` for an origin that is none."""
    gate = tree.gate
    return Gateway(
        origin=gate.origin,
        gatekeeper=gatekeeper,
        identify=composed.identify,
        routes=composed.routes,
        reject=composed.reject,
        advice=composed.advice,
        local=shelf.publish if shelf is not None and shelf.published else None,
        lifeboat=shelf.rescue if shelf is not None and shelf.lifeboats else None,
        trusted=gate.trusted_proxies,
        timeouts=gate.timeouts,
        bounds=gate.bounds,
    )


def gatekeeper_of(tree: Configuration, domains: tuple[Domain, ...], account: Account | None) -> Gatekeeper:
    """Give the gatekeeper: with its master inside, unless `account` leads to one in another process."""
    gate, bound = tree.gate, tree.master.max_identifiers
    # A master elsewhere may apply rules that this file does not have.
    rules_are_known = gate.master == "embedded" or all(domain.rules for domain in domains)
    return Gatekeeper(
        account,
        master=master_of(tree, domains) if account is None else None,
        max_delay=gate.max_delay,
        max_delayed=gate.max_delayed,
        spacing=spacing(domains),
        max_holds=bound,
        max_hold=longest_hold(domains, gate.max_delay) if rules_are_known else MAX_HOLD,
    )


def master_of(tree: Configuration, domains: tuple[Domain, ...]) -> Master:
    """Give the master of a gate, in its process or in the parent of its workers."""
    return Master(domains, max_identifiers=tree.master.max_identifiers, max_delay=tree.gate.max_delay)


def kept_domains(tree: Configuration, old: Composition, new: Composition) -> set[str]:
    """Name the domains whose holds outlive the change from `old` to `new`, which `tree` asked for.

    A domain whose rules changed starts afresh: who waits for a rule that was a mistake should not wait it out. Not so
    where a master elsewhere applies the rules: it knows nothing of the change, and would not say a hold again.
    """
    names = {domain.name for domain in new.domains}
    if tree.gate.master != "embedded":
        return names
    return names - {domain.name for domain in set(new.domains) - set(old.domains)}
