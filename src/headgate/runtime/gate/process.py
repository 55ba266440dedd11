"""One gate in one process: gateway, gatekeeper and link put together, watched, changed and ended.

It is a gate of its own, or one worker among several; which of the two it does not know.
"""

import asyncio
import gc
import time
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from headgate.config import Address, Configuration
from headgate.errors import ConfigurationError
from headgate.limit import Domain, Gatekeeper, Master
from headgate.link import GatekeeperLink
from headgate.observe import DomainState, HeldIdentifier, State
from headgate.observe.state import identifier_digest, identifier_text
from headgate.origin.gateway import TlsKeys
from headgate.runtime.event_loop import say
from headgate.runtime.gate.build import (
    Composition,
    compose,
    gatekeeper_of,
    gateway_of,
    kept_domains,
    require_gate,
)
from headgate.runtime.gate.bundle_loader import shelf_of
from headgate.runtime.listen import address_sentence

__all__ = ["Gate", "GateOrders", "frozen_changes", "master_counters"]

_FORGET_EVERY = 0.1
_LOOK_EVERY = 1.0
_FORGET_AT_ONCE = 1_000
"""Holds, and histories, examined at a time; it takes a millisecond or two."""
_MOST_HELD = 10
_GREETING = 0.25
_GLANCES = 50
_FROZEN = ("listen", "origin", "admin", "workers", "master", "accounting", "loop", "tls", "timeouts", "bounds")
"""Keys of the gate that only a restart can change."""


class GateOrders(msgspec.Struct, frozen=True):
    """What a worker among several is to be."""

    tree: Configuration
    """The configuration; it listens at the address that the parent has reserved."""
    bus: str = ""
    """The address of the parent's master; empty where the master is where `tree` says."""


class Gate:
    """A gateway with its gatekeeper, link and bundles, as `tree` says.

    `bus` is the address of the parent's master, for a worker among several that share one; empty where the master is
    where `tree` says. Raises `ConfigurationError` for what cannot be composed.
    """

    def __init__(self, tree: Configuration, *, bus: str = "") -> None:
        self.tree = tree
        """The configuration in force."""
        self._bus = bus
        require_gate(tree)
        self._composed = compose(tree)
        self._shelf = shelf_of(tree, complain=_complain)
        self._keys = TlsKeys(tree.gate.tls.cert, tree.gate.tls.key) if tree.gate.tls.cert else None
        self._link = self._linked(tree, self._composed)
        try:
            self.gatekeeper = self._new_gatekeeper(tree, self._composed, self._link)
            """The gatekeeper in force."""
            self._gateway = gateway_of(tree, self._composed, self.gatekeeper, self._shelf)
        except BaseException:
            if self._link is not None:
                self._link.close()
            raise
        self._chores: list[asyncio.Task[None]] = []
        self._accepting = False

    async def start(self, *, reuse_port: bool = False) -> Address:
        """Accept agents from now on; returns the address bound. Raises `ConfigurationError` when it cannot be had."""
        if self._link is not None:
            self._link.start(asyncio.get_running_loop())
            await self._heard(self._link)
        address = Address.parse(self.tree.gate.listen)
        tls = self._keys.context if self._keys is not None else None
        try:
            await self._gateway.start(address.host, address.port, tls=tls, reuse_port=reuse_port)
        except OSError as error:
            raise ConfigurationError(address_sentence("--listen", address, error)) from None
        self._chores = [asyncio.get_running_loop().create_task(chore) for chore in (self._forget(), self._look())]
        self._accepting = True
        # What has been built so far stays for good: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        return Address(*self._gateway.addresses[0])

    async def _heard(self, link: GatekeeperLink) -> None:
        """Wait a moment for a master that is there, so that it hears of the first request; not for one that is not."""
        for _ in range(_GLANCES):
            if link.heard:
                return
            await asyncio.sleep(_GREETING / _GLANCES)

    def unready(self) -> str:
        """Say why no request is accepted; empty when they are."""
        if self._gateway.draining:
            return "draining"
        return "" if self._accepting else "starting"

    async def end(self, seconds: float) -> None:
        """Accept no more, give requests under way `seconds` to finish, and let go of everything."""
        chores, self._chores = self._chores, []
        for chore in chores:
            chore.cancel()
            with suppress(asyncio.CancelledError):
                await chore
        await self._gateway.drain(seconds)
        if self._link is not None:
            self._link.close()

    async def change(self, tree: Configuration) -> list[str]:
        """Put another configuration in force, as far as that can be done while agents are connected; one at a time.

        Returns the keys that need a restart. Raises `ConfigurationError`, and leaves all as it is, for what cannot be
        composed. TLS keys and bundles are read again in any case, bundles by a thread: that may take long.
        """
        frozen = frozen_changes(self.tree, tree)
        tree = _thawed(self.tree, tree)
        require_gate(tree)
        composed = compose(tree)
        shelf = await asyncio.to_thread(shelf_of, tree, self._shelf, complain=_complain)
        if self._keys is not None:
            self._keys.reload()
        gatekeeper = self._new_gatekeeper(tree, composed, self._link)
        gatekeeper.adopt(self.gatekeeper, kept_domains(tree, self._composed, composed))
        if self._link is not None:
            self._link.change(domain.name for domain in composed.domains)
        self.tree, self._composed, self.gatekeeper = tree, composed, gatekeeper
        self._shelf = shelf
        # The gateway stays, with its connections; what it decides by is another's.
        self._gateway.policy = gateway_of(tree, composed, gatekeeper, shelf).policy
        return frozen

    async def whole_state(self) -> State:
        """Read what this gate is doing, with who is held longest: every hold is looked at, with pauses for requests."""
        now = time.time()
        held = {domain.name: await self._longest(domain.name, now) for domain in self._composed.domains}
        return self.state(held)

    async def _longest(self, domain: str, now: float) -> tuple[HeldIdentifier, ...]:
        longest: list[tuple[bytes, float]] = []
        for so_far in self.gatekeeper.top_pieces(domain, now=now, most=_MOST_HELD):
            longest = so_far
            await asyncio.sleep(0)
        gate = self.tree.gate
        is_secret = gate.identify.startswith("header:") and gate.show_identifiers == "digest"
        shown = identifier_digest if is_secret else identifier_text
        return tuple(
            HeldIdentifier(shown(name), round(release, 3), round(release - now, 3)) for name, release in longest
        )

    def state(self, held: Mapping[str, tuple[HeldIdentifier, ...]] | None = None) -> State:
        """Read what this gate is doing; who is held longest comes from `held`, by domain."""
        return State(
            domains=tuple(
                self._domain_state(domain, (held or {}).get(domain.name, ())) for domain in self._composed.domains
            ),
            delayed_now=self.gatekeeper.delayed,
            connections=len(self._gateway.connections),
            master=self.tree.gate.master,
            counters=self._counters(),
        )

    def _domain_state(self, domain: Domain, held: tuple[HeldIdentifier, ...]) -> DomainState:
        totals = self.gatekeeper.totals.get(domain.name)
        return DomainState(
            name=domain.name,
            rules=tuple(map(str, domain.rules)),
            algorithm=domain.algorithm,
            mode=domain.mode,
            accepted=totals.accepted if totals else 0,
            delayed=totals.delayed if totals else 0,
            rejected=totals.rejected if totals else 0,
            held=held,
        )

    def _counters(self) -> dict[str, int]:
        counters = {f"gateway_{event}": count for event, count in self._gateway.counts.items()}
        counters["holds_evicted"] = self.gatekeeper.evicted
        counters["holds_shortened"] = self.gatekeeper.shortened
        counters["clock_steps"] = self.gatekeeper.clock.steps
        if self.gatekeeper.master is not None:
            counters |= master_counters(self.gatekeeper.master)
        if self._link is not None:
            counters |= {f"link_{name}": count for name, count in msgspec.structs.asdict(self._link.counters).items()}
        return counters

    async def _forget(self) -> None:
        """Drop what is over, a piece at a time."""
        while True:
            await asyncio.sleep(_FORGET_EVERY)
            now = time.time()
            self.gatekeeper.forget(now=now, most=_FORGET_AT_ONCE)
            if self.gatekeeper.master is not None:
                self.gatekeeper.master.forget(now=now, most=_FORGET_AT_ONCE)

    async def _look(self) -> None:
        """Notice bundles that were replaced."""
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            if self._shelf is not None:
                self._shelf.look()

    def _linked(self, tree: Configuration, composed: Composition) -> GatekeeperLink | None:
        names = [domain.name for domain in composed.domains]
        if self._bus:
            # Between neighbours what counts is how soon the master knows, not how little is written.
            return GatekeeperLink(self._bus, names, accounting="frames")
        if tree.gate.master == "embedded":
            return None
        return GatekeeperLink(tree.gate.master, names, accounting=tree.gate.accounting)

    def _new_gatekeeper(self, tree: Configuration, composed: Composition, link: GatekeeperLink | None) -> Gatekeeper:
        gatekeeper = gatekeeper_of(tree, composed.domains, link.account if link is not None else None)
        if link is not None:
            link.attach(gatekeeper)
        return gatekeeper


def master_counters(master: Master) -> dict[str, int]:
    """Give what a master in this process has counted, by the names of its metrics."""
    return {
        "histories_evicted": master.evicted,
        "shadowed": master.shadowed,
        "accounting_ahead": master.ahead,
    }


def frozen_changes(old: Configuration, new: Configuration) -> list[str]:
    """List the keys that differ and that only a restart can change."""
    changed = [f"gate.{name}" for name in _FROZEN if getattr(old.gate, name) != getattr(new.gate, name)]
    return changed + (["master.listen"] if old.master.listen != new.master.listen else [])


def _thawed(old: Configuration, new: Configuration) -> Configuration:
    """Give the new configuration with the old values of what only a restart can change."""
    kept = {name: getattr(old.gate, name) for name in _FROZEN}
    return msgspec.structs.replace(new, gate=msgspec.structs.replace(new.gate, **kept))


def _complain(sentence: str) -> None:
    say(f"headgate: {sentence}")
