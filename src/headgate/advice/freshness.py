"""How long a traffic advice result stays fresh (traffic-advice.txt, section 5 step 6, and section 8), and what of it is
stored to renew it (RFC 9111, sections 3 and 4.3).

"Notwithstanding the usual behavior of HTTP caching": at least ten minutes, so that an agent cannot be made to fetch
again and again, and at most 48 hours, so that a temporary mistake of an origin does not last much longer.
"""

from typing import Final, NamedTuple, Self

import msgspec

from headgate.advice.decision import Advice
from headgate.advice.fetching import AdviceResponse
from headgate.advice.parser import UNREACHABLE, AdviceEntry, AdviceResult
from headgate.http.conditional import ENTITY_TAG
from headgate.http.date import parse_http_date, retry_after
from headgate.http.fields import Pairs, lines_of
from headgate.http.freshness import Freshness, freshness
from headgate.release import ASAP

MIN_FRESHNESS: Final = 600.0
"""Minimum freshness in seconds of a result other than `UNREACHABLE`: "10 minutes is suggested"."""

MAX_FRESHNESS: Final = 172_800.0
"""Maximum freshness in seconds of any result: "48 hours is suggested"."""

DEFAULT_FRESHNESS: Final = 1_800.0
"""Freshness in seconds without a lifetime in the response: "30 minutes may be appropriate"."""

UNREACHABLE_FOR: Final = 60.0
"""Seconds before an unreachable origin without Retry-After is asked again."""

_MIN_UNREACHABLE_FOR: Final = 1.0


def fresh_for(
    response: AdviceResponse,
    result: AdviceResult,
    *,
    now: float,
    unreachable_for: float = UNREACHABLE_FOR,
    min_freshness: float = MIN_FRESHNESS,
) -> float:
    """Return the seconds for which the `result` of a response received at `now` stays fresh.

    For `UNREACHABLE` it is the Retry-After, from one second to 48 hours, or else `unreachable_for`.
    """
    if result is UNREACHABLE:
        release = retry_release(response.fields, now=now)
        return unreachable_for if release == ASAP else min(max(release - now, _MIN_UNREACHABLE_FOR), MAX_FRESHNESS)
    return _remaining(freshness(response.fields, now=now), min_freshness)


def _remaining(given: Freshness, min_freshness: float) -> float:
    """Return the seconds left of a lifetime, with the suggested minimum, maximum and default."""
    if given.lifetime is None:
        return DEFAULT_FRESHNESS
    # The age reduces the lifetime, not the minimum.
    return max(min(given.lifetime, MAX_FRESHNESS) - given.age, min_freshness)


def retry_release(fields: Pairs, *, now: float) -> float:
    """Return the latest release time among the lines of Retry-After; `ASAP` without a valid one."""
    return max((retry_after(line, now=now) for line in lines_of(fields, "retry-after")), default=ASAP)


MAX_STALENESS: Final = MAX_FRESHNESS
"""Seconds for which advice is stored after its freshness."""

_MAX_TAG_SIZE: Final = 256
_MAX_FIELDS_SIZE: Final = 1_024
"""Maximum characters of the fields stored for one origin: five times the usual size."""
_STORED_FIELDS: Final = frozenset({"cache-control", "date", "etag", "expires", "last-modified"})


class StoredAdvice(NamedTuple):
    """Advice, and the fields of its response that are needed to renew it."""

    advice: Advice
    fields: Pairs

    @classmethod
    def of(cls, advice: Advice, response: AdviceResponse, *, now: float) -> Self | None:
        """Return what to store of a complete response received at `now`; None if it must not be stored."""
        fields = _fields_to_store(response.fields)
        if fields is None or not freshness(fields, now=now).allows_storing:
            return None
        return cls(advice, fields)

    def renewed(self, fields: Pairs, *, now: float, min_freshness: float = MIN_FRESHNESS) -> Self:
        """Return what to store after a 304 with these fields, received at `now` (4.3.4)."""
        given = {name.lower() for name, _ in fields}
        # 3.2: each field of the 304 replaces the stored fields of its name.
        fields = [*(pair for pair in self.fields if pair[0] not in given), *fields]
        fresh_until = now + _remaining(freshness(fields, now=now), min_freshness)
        advice = msgspec.structs.replace(self.advice, fresh_until=fresh_until)
        return type(self)(advice, _fields_to_store(fields) or self.fields)

    @property
    def kept_until(self) -> float:
        """The instant from which it is not used any more."""
        return self.advice.fresh_until + MAX_STALENESS

    @property
    def last_known(self) -> AdviceEntry | None:
        """The entry that applies, although stale, while the origin is unreachable; None if its fields forbid that."""
        # Only directives decide, no date does, so `now` does not matter.
        return self.advice.entry if freshness(self.fields, now=0.0).allows_stale else None

    @property
    def validators(self) -> tuple[tuple[str, str], ...]:
        """The fields of a conditional request (4.3.1).

        Malformed validators are left out, and long ones: section 8.3 of traffic-advice.txt requires small requests.
        """
        fields = []
        tags, dates = lines_of(self.fields, "etag"), lines_of(self.fields, "last-modified")
        if tags and len(tags[0]) <= _MAX_TAG_SIZE and ENTITY_TAG.fullmatch(tags[0].encode("latin-1", "replace")):
            fields.append(("If-None-Match", tags[0]))
        if dates and parse_http_date(dates[0].encode("latin-1", "replace")) is not None:
            fields.append(("If-Modified-Since", dates[0]))
        return tuple(fields)


def _fields_to_store(fields: Pairs) -> Pairs | None:
    """Return the fields to store, with names in lower case; None if they are too long."""
    kept = [(name.lower(), value) for name, value in fields if name.lower() in _STORED_FIELDS]
    return kept if sum(len(name) + len(value) for name, value in kept) <= _MAX_FIELDS_SIZE else None
