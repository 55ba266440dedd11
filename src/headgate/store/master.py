"""A master whose records are shared with other masters."""

from collections.abc import Callable, Iterable
from typing import Final

from headgate.limit.domain import Domain
from headgate.limit.gatekeeper import longest_hold
from headgate.limit.history import MAX_LATENESS, spread
from headgate.limit.master import Master
from headgate.release import Status
from headgate.store.records import SharedDomain

_REJECTED = Status.REJECTED
_MAX_SHARED: Final = 256
"""Requests of a report that are shared."""
Share = Callable[[SharedDomain, bytes, float, float], None]


class SharedMaster(Master):
    """A `Master` that shares each record that counts, after it has applied it to its own memory.

    `share` is called with a domain, an identifier, the timestamp of a request and the time of its arrival.
    """

    def __init__(self, domains: Iterable[Domain], share: Share, *, max_identifiers: int, max_delay: float) -> None:
        super().__init__(domains, max_identifiers=max_identifiers, max_delay=max_delay)
        self.shared = {
            name: SharedDomain(domain, longest_hold([domain], max_delay))
            for name, domain in self.domains.items()
            if domain.rules and domain.mode != "off"
        }
        """The domains whose records are shared, by name."""
        self._add = share

    def record(self, domain: str, status: Status, identifier: bytes, timestamp: float, now: float) -> float:
        """Record an accounting message, as `Master.record`, and share it; stored instants are wall-clock time.

        A message that is late counts only here, as far as the rule permits: the store counts all that it gets.
        """
        release = Master.record(self, domain, status, identifier, timestamp, now)  # faster than super()
        if status is not _REJECTED and timestamp >= now - MAX_LATENESS:
            shared = self.shared.get(domain)
            if shared is not None and not (shared.selective and shared.domain.exempts(identifier)):
                behind = self.clock.behind
                self._add(shared, identifier, timestamp - behind, now - behind)
        return release

    def record_many(
        self, domain: str, identifier: bytes, *, accepted: int, rejected: int, start: float, now: float, owed: int = 0
    ) -> float:
        """Record the requests of a report, as `Master.record_many`, and share as many of the last as a burst has."""
        release = super().record_many(
            domain, identifier, accepted=accepted, rejected=rejected, start=start, now=now, owed=owed
        )
        shared = self.shared.get(domain)
        if shared is not None and accepted and not (shared.selective and shared.domain.exempts(identifier)):
            behind = self.clock.behind
            burst = max(rule.burst for rule in shared.domain.rules)
            for timestamp in spread(start, now, accepted, min(burst, _MAX_SHARED)):
                self._add(shared, identifier, max(timestamp, now - MAX_LATENESS) - behind, now - behind)
        return release
