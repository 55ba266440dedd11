"""A master whose records are shared with other masters."""

from collections.abc import Iterable
from typing import Protocol

from headgate.limit.domain import Domain
from headgate.limit.gatekeeper import longest_hold
from headgate.limit.history import MAX_LATENESS, spread
from headgate.limit.master import Master
from headgate.release import Status
from headgate.store.library import DomainFunctions

_REJECTED = Status.REJECTED
_MAX_SHARED = 256
"""Requests of a report that are shared."""


class Sink(Protocol):
    """What records are sent to; see `RedisStore.add`."""

    def add(self, functions: DomainFunctions, identifier: bytes, timestamp: float, now: float) -> None:
        """Share a record."""


class SharedMaster(Master):
    """A `Master` that adds each record that counts to a store, after it has applied it to its own memory."""

    def __init__(self, domains: Iterable[Domain], store: Sink, *, max_identifiers: int, max_delay: float) -> None:
        super().__init__(domains, max_identifiers=max_identifiers, max_delay=max_delay)
        self.functions = {
            name: DomainFunctions(domain, longest_hold([domain], max_delay))
            for name, domain in self.domains.items()
            if domain.rules and domain.mode != "off"
        }
        """The domains whose records are shared, by name."""
        self._add = store.add

    def record(self, domain: str, status: Status, identifier: bytes, timestamp: float, now: float) -> float:
        """Record an accounting message, as `Master.record`, and share it; stored instants are wall-clock time.

        A message that is late counts only here, as far as the rule permits: the store counts all that it gets.
        """
        release = Master.record(self, domain, status, identifier, timestamp, now)  # faster than super()
        if status is not _REJECTED and timestamp >= now - MAX_LATENESS:
            functions = self.functions.get(domain)
            if functions is not None and not (functions.selective and functions.domain.exempts(identifier)):
                behind = self.clock.behind
                self._add(functions, identifier, timestamp - behind, now - behind)
        return release

    def record_many(
        self, domain: str, identifier: bytes, *, accepted: int, rejected: int, start: float, now: float, owed: int = 0
    ) -> float:
        """Record the requests of a report, as `Master.record_many`, and share as many of the last as a burst has."""
        release = super().record_many(
            domain, identifier, accepted=accepted, rejected=rejected, start=start, now=now, owed=owed
        )
        functions = self.functions.get(domain)
        if functions is not None and accepted and not (functions.selective and functions.domain.exempts(identifier)):
            behind = self.clock.behind
            burst = max(rule.burst for rule in functions.domain.rules)
            for timestamp in spread(start, now, accepted, min(burst, _MAX_SHARED)):
                self._add(functions, identifier, max(timestamp, now - MAX_LATENESS) - behind, now - behind)
        return release
