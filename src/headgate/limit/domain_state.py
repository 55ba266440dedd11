"""What a master stores of one domain.

This module knows neither messages nor clocks.
"""

from array import array
from collections.abc import Callable
from operator import itemgetter

from headgate.limit.allowance import Allowance, allowance
from headgate.limit.domain import Domain
from headgate.limit.history import ALGORITHMS, PUBLISHED, Algorithm, new_history
from headgate.limit.messages import Totals
from headgate.limit.table import Table

_TICKS_PER_WINDOW = 64
"""Resolution of the order in which the histories of a domain expire."""


class DomainState:
    """The histories of one domain by identifier, and its totals."""

    __slots__ = (
        "algorithm",
        "counts",
        "domain",
        "enforced",
        "histories",
        "record",
        "replay",
        "selective",
        "totals",
        "window",
    )

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        # These are set if the domain has rules, and does more than count requests.
        self.histories: Table[array[float]] | None = None
        self.algorithm: Algorithm
        self.record: Callable[[array[float], float, float], float]
        self.replay: Callable[[array[float], float, float, float], float]
        self.window = domain.window
        if domain.rules and domain.mode != "off":
            self.algorithm = algorithm = ALGORITHMS[domain.algorithm](domain.rules)
            held_until = itemgetter(PUBLISHED) if domain.mode == "enforce" else None
            self.histories = Table(algorithm.expiry, self.window / _TICKS_PER_WINDOW, held_until)
            self.record, self.replay = algorithm.record, algorithm.replay
        self.enforced = domain.mode == "enforce"
        self.selective = bool(domain.exempt)
        self.totals = Totals()
        self.counts: dict[bytes, int] = {}

    def allowance(self, identifier: bytes, instant: float) -> Allowance | None:
        """Return what the rules permit to `identifier`; None if they do not limit it."""
        if self.histories is None or not self.enforced or (self.selective and self.domain.exempts(identifier)):
            return None
        history = self.histories.get(identifier) or new_history()
        available = self.algorithm.available(history, instant)
        return allowance(self.domain.rules, available, max(0.0, history[PUBLISHED] - instant))
