"""What a gate is doing, as a value: read at once, summed over workers, written as JSON.

This file knows nothing of how it is shown. Totals only grow; what is held is what held at the reading.
"""

import hashlib
import ipaddress
from collections.abc import Iterable
from heapq import nlargest

import msgspec

__all__ = ["DomainState", "Held", "State", "identifier_digest", "identifier_text", "merged"]

_MOST_HELD = 10
_DIGITS = 16


class Held(msgspec.Struct, frozen=True):
    """One identifier that is held."""

    identifier: str
    """As text, bytes that are not UTF-8 escaped with a backslash; or as a digest, `sha256:` and 16 digits."""
    release: float
    """When it may go again, seconds since 1970."""
    seconds: float
    """How long that is from the reading."""


class DomainState(msgspec.Struct, frozen=True):
    """One domain: what holds in it and what became of its requests."""

    name: str
    rules: tuple[str, ...] = ()
    """Empty where the rules are known only to a master elsewhere."""
    algorithm: str = "log"
    mode: str = "enforce"
    accepted: int = 0
    delayed: int = 0
    rejected: int = 0
    held: tuple[Held, ...] = ()
    """Those held longest, at most 10."""


class State(msgspec.Struct, frozen=True):
    """One gate, or all its workers together."""

    domains: tuple[DomainState, ...] = ()
    delayed_now: int = 0
    """Requests that wait for their release."""
    connections: int = 0
    """Connections of agents that are open."""
    workers: int = 1
    """Processes that accept."""
    master: str = "embedded"
    """Where the rules are applied."""
    counters: dict[str, int] = {}
    """Further totals by their metric's name, such as those of the link."""


def identifier_text(identifier: bytes) -> str:
    """Give an identifier as text; what is not UTF-8 is escaped with a backslash."""
    return identifier.decode("utf-8", "backslashreplace")


def identifier_digest(identifier: bytes) -> str:
    """Give an address as text, anything else by the first 16 hexadecimal digits of its SHA-256."""
    text = identifier_text(identifier)
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return f"sha256:{hashlib.sha256(identifier).hexdigest()[:_DIGITS]}"
    return text


def merged(states: Iterable[State]) -> State:
    """Give the sum of what several workers of one gate say; the longest hold of an identifier counts."""
    listed = list(states)
    if len(listed) < 2:
        return listed[0] if listed else State(workers=0)
    domains: dict[str, list[DomainState]] = {}
    counters: dict[str, int] = {}
    for state in listed:
        for domain in state.domains:
            domains.setdefault(domain.name, []).append(domain)
        for name, count in state.counters.items():
            counters[name] = counters.get(name, 0) + count
    return State(
        domains=tuple(_merged_domain(same) for same in domains.values()),
        delayed_now=sum(state.delayed_now for state in listed),
        connections=sum(state.connections for state in listed),
        workers=sum(state.workers for state in listed),
        master=listed[-1].master,
        counters=counters,
    )


def _merged_domain(same: list[DomainState]) -> DomainState:
    # Rules and modes are those of the last: the one read last after a reload.
    held = {one.identifier: one for one in sorted((one for domain in same for one in domain.held), key=_release)}
    return msgspec.structs.replace(
        same[-1],
        accepted=sum(domain.accepted for domain in same),
        delayed=sum(domain.delayed for domain in same),
        rejected=sum(domain.rejected for domain in same),
        held=tuple(nlargest(_MOST_HELD, held.values(), key=_release)),
    )


def _release(held: Held) -> float:
    return held.release
