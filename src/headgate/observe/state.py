"""The state of a gate as a value: read in one step, summed over workers, written as JSON.

This file does not know how a state is shown. Totals only grow; holds are those at the time of reading.
"""

import hashlib
import ipaddress
from collections.abc import Iterable
from heapq import nlargest

import msgspec

_MOST_HELD = 10
_DIGITS = 16


class HeldIdentifier(msgspec.Struct, frozen=True):
    """One identifier that is held."""

    identifier: str
    """As text, bytes that are not UTF-8 escaped with a backslash; or as a digest, `sha256:` and 16 digits."""
    release: float
    """Its release time, seconds since 1970."""
    seconds: float
    """Seconds from the reading to the release."""


class DomainState(msgspec.Struct, frozen=True):
    """One domain: its rules, its totals and its longest holds."""

    name: str
    rules: tuple[str, ...] = ()
    """Empty where only a master elsewhere knows the rules."""
    algorithm: str = "log"
    mode: str = "enforce"
    accepted: int = 0
    delayed: int = 0
    rejected: int = 0
    held: tuple[HeldIdentifier, ...] = ()
    """The identifiers that are held longest, at most 10."""


class State(msgspec.Struct, frozen=True):
    """One gate, or the sum of its workers."""

    domains: tuple[DomainState, ...] = ()
    delayed_now: int = 0
    """Requests that are delayed now."""
    connections: int = 0
    """Open connections of clients."""
    workers: int = 1
    """Processes that accept connections."""
    master: str = "embedded"
    """Where the rules are applied: "embedded", or the address of a master elsewhere."""
    counters: dict[str, int] = {}
    """Further totals by the name of their metric, such as those of the link."""


def identifier_text(identifier: bytes) -> str:
    """Return an identifier as text; bytes that are not UTF-8 are escaped with a backslash."""
    return identifier.decode("utf-8", "backslashreplace")


def identifier_digest(identifier: bytes) -> str:
    """Return an address as text, anything else as the first 16 hexadecimal digits of its SHA-256."""
    text = identifier_text(identifier)
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return f"sha256:{hashlib.sha256(identifier).hexdigest()[:_DIGITS]}"
    return text


def merge_states(states: Iterable[State]) -> State:
    """Return the sum of the states of one gate's workers; of several holds of an identifier, the longest."""
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
    # Rules and modes are those of the last state, the one read last after a reload.
    held = {one.identifier: one for one in sorted((one for domain in same for one in domain.held), key=_release)}
    return msgspec.structs.replace(
        same[-1],
        accepted=sum(domain.accepted for domain in same),
        delayed=sum(domain.delayed for domain in same),
        rejected=sum(domain.rejected for domain in same),
        held=tuple(nlargest(_MOST_HELD, held.values(), key=_release)),
    )


def _release(held: HeldIdentifier) -> float:
    return held.release
