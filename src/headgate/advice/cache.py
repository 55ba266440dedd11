"""What each origin advises, as far as it is known, and when it has to be asked (traffic-advice.txt, section 7).

The cache sends nothing. A question about an origin returns what is known, an order to fetch, or a wait for the fetch
that another caller makes; and the caller that fetched reports the response. So an origin is asked once, however many
callers ask at once. It is not for several threads: a shell that has some locks it.
"""

from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice
from typing import Final

from headgate.advice.answer import Advice, Answer, Fetch
from headgate.advice.fetching import AdviceResponse, advice_request
from headgate.advice.freshness import UNREACHABLE_FOR
from headgate.advice.identity import AgentIdentity
from headgate.advice.record import OriginRecord
from headgate.errors import ConfigurationError
from headgate.http.origin import serialised_origin
from headgate.release import ASAP, NEVER

MAX_ORIGINS: Final = 10_000
"""Origins that are known at most, unless more are allowed."""

_LOOKS: Final = 2
"""Origins looked at for each fetch that was made: more are dropped than come."""

_LONGEST_ORIGIN: Final = 300
"""Characters: a name of DNS has 253, and with scheme and port no origin has more than this."""


class AdviceCache:
    """The advice of at most `most_origins` origins; of more, those that were asked about least recently are dropped.

    Each report of a fetch also looks at the two that were asked about least recently, and drops those of no more use.

    `unreachable_for` is how many seconds an origin that was not reached is left alone, unless it says how many.
    Raises `ConfigurationError` for a bound that leaves no room.
    """

    def __init__(
        self,
        identity: Iterable[str],
        *,
        most_origins: int = MAX_ORIGINS,
        unreachable_for: float = UNREACHABLE_FOR,
    ) -> None:
        if most_origins < 1:
            raise ConfigurationError(f"most_origins must be at least 1, got {most_origins}")
        self.identity = AgentIdentity(identity)
        self.evicted = 0
        """Origins that were dropped to make room."""
        self._most_origins = most_origins
        self._unreachable_for = unreachable_for
        self._records: OrderedDict[str, OriginRecord] = OrderedDict()

    @property
    def origins(self) -> int:
        """How many origins are known, or are being asked."""
        return len(self._records)

    def ask(self, origin: str, *, now: float) -> Answer:
        """Return what is known of an origin's advice, or say what to do to know it.

        `origin` is any URL, of which its origin alone counts; a serialised origin is the fastest.
        """
        if (record := self._records.get(origin)) is not None:
            self._records.move_to_end(origin)
            return record.ask(now)
        serialised = serialised_origin(origin)
        record = None if serialised is None else self._record(serialised)
        if record is None:
            return Advice(origin[:_LONGEST_ORIGIN], None, "the origin may not be asked", NEVER)
        return record.ask(now)

    def known(self, origin: str, *, now: float) -> Advice | None:
        """Return the fresh advice of a serialised origin, and None where there is none; no fetch is ordered."""
        record = self._records.get(origin)
        return None if record is None else record.fresh(now)

    def received(self, fetch: Fetch, response: AdviceResponse, *, now: float) -> Advice:
        """OriginRecord the response to a fetch, `NETWORK_ERROR` where none came, and return what is known by it.

        A late report counts as one in time does, unless it is that no response came.
        """
        self._forget_oldest(now)
        record = self._record(fetch.origin)
        assert record is not None  # it could be asked
        return record.received(fetch, response, now)

    def abandoned(self, fetch: Fetch, *, retry_at: float = ASAP) -> None:
        """OriginRecord that a fetch was not completed for a reason that is not the origin's, such as a full queue.

        The next question orders it again; one before `retry_at`, a few seconds from now at most, is answered with a
        wait.
        """
        if (record := self._records.get(fetch.origin)) is not None:
            record.abandoned(fetch, retry_at)

    def forget(self, *, now: float) -> None:
        """Drop every origin of which nothing known can bear on a decision any more."""
        for origin in [origin for origin, record in self._records.items() if not record.is_of_use(now)]:
            del self._records[origin]

    def _forget_oldest(self, now: float) -> None:
        """Look at the origins that were asked about least recently, and drop those of no more use."""
        for origin in list(islice(self._records, _LOOKS)):
            if not self._records[origin].is_of_use(now):
                del self._records[origin]

    def _record(self, origin: str) -> OriginRecord | None:
        """Return the record of a serialised origin, a new one if need be; None where it may not be asked."""
        record = self._records.get(origin)
        if record is None:
            request = advice_request(origin, self.identity)
            if request is None or len(origin) > _LONGEST_ORIGIN:
                return None
            record = OriginRecord(origin, request, self.identity, unreachable_for=self._unreachable_for)
            while len(self._records) >= self._most_origins:
                self._records.popitem(last=False)
                self.evicted += 1
            self._records[origin] = record
        self._records.move_to_end(origin)
        return record
