"""How long a traffic advice result stays fresh (traffic-advice.txt, section 5 step 6, and section 8), and what of it is
stored to renew it (RFC 9111, sections 3 and 4.3).

"Notwithstanding the usual behavior of HTTP caching": at least ten minutes, so that an agent cannot be made to fetch
again and again, and at most 48 hours, so that a temporary mistake of an origin does not last much longer.
"""

from typing import Final, NamedTuple, Self

from headgate.advice.decision import Advice
from headgate.advice.fetching import AdviceResponse, needs_body
from headgate.advice.parser import UNREACHABLE, AdviceEntry, AdviceResult
from headgate.http.conditional import ENTITY_TAG
from headgate.http.date import parse_http_date, retry_after
from headgate.http.fields import Pairs, lines_of
from headgate.http.freshness import Freshness, freshness
from headgate.release import ASAP

MIN_FRESHNESS: Final = 600.0
"""Seconds that a result other than `UNREACHABLE` stays fresh, whatever its response says: "10 minutes is suggested"."""

MAX_FRESHNESS: Final = 172_800.0
"""Seconds that any result stays fresh at most: "48 hours is suggested"."""

DEFAULT_FRESHNESS: Final = 1_800.0
"""Seconds, where the response says nothing of its freshness: "30 minutes may be appropriate"."""

UNREACHABLE_FOR: Final = 60.0
"""Seconds before an origin that was not reached is asked again, where it did not say when."""

_MIN_UNREACHABLE_FOR: Final = 1.0


def fresh_for(
    response: AdviceResponse, result: AdviceResult, *, now: float, unreachable_for: float = UNREACHABLE_FOR
) -> float:
    """Return the seconds for which `result`, what a response that came at `now` meant, stays fresh.

    That of `UNREACHABLE` is its Retry-After, from a second to 48 hours, else `unreachable_for`.
    """
    if result is UNREACHABLE:
        release = retry_release(response.fields, now=now)
        return unreachable_for if release == ASAP else min(max(release - now, _MIN_UNREACHABLE_FOR), MAX_FRESHNESS)
    return clamped(freshness(response.fields, now=now))


def clamped(said: Freshness) -> float:
    """Return the seconds that are left of a lifetime, by the suggested minimum, maximum and default."""
    if said.lifetime is None:
        return DEFAULT_FRESHNESS
    # The age counts against the lifetime, not against the minimum.
    return max(min(said.lifetime, MAX_FRESHNESS) - said.age, MIN_FRESHNESS)


def retry_release(fields: Pairs, *, now: float) -> float:
    """Return the latest release time that the lines of Retry-After ask for; `ASAP` where they ask for nothing."""
    return max((retry_after(line, now=now) for line in lines_of(fields, "retry-after")), default=ASAP)


MAX_STALENESS: Final = MAX_FRESHNESS
"""Seconds that advice is kept once it is no longer fresh."""

_LONGEST_TAG: Final = 256
_MOST_KEPT: Final = 1_024
"""Characters of fields that are kept for an origin: five times what is usual, and too few to fill memory with."""
_KEPT: Final = frozenset({"cache-control", "date", "etag", "expires", "last-modified"})


class Stored(NamedTuple):
    """Advice, and what of its response's fields is needed to renew it."""

    advice: Advice
    fields: Pairs

    @classmethod
    def of(cls, advice: Advice, response: AdviceResponse, *, now: float) -> Self | None:
        """Keep `advice`, which a response of `now` gave; None where it is not to be kept.

        Only advice from a complete body is kept: a 304 does not confirm a body that was cut.
        """
        if response.body is None or not needs_body(response.status, response.fields):
            return None
        fields = _kept(response.fields)
        if fields is None or not freshness(fields, now=now).allows_storing:
            return None
        return cls(advice, fields)

    def renewed(self, fields: Pairs, *, now: float) -> Self:
        """Return what is stored after a response of `now`, with these fields, said that it is unchanged (4.3.4)."""
        given = {name.lower() for name, _ in fields}
        # 3.2: each field that is given replaces those of its name.
        fields = [*(pair for pair in self.fields if pair[0] not in given), *fields]
        fresh_until = now + clamped(freshness(fields, now=now))
        advice = Advice(self.advice.origin, self.advice.result, self.advice.reason, fresh_until)
        return type(self)(advice, _kept(fields) or self.fields)

    @property
    def kept_until(self) -> float:
        """The instant from which it is of no use any more."""
        return self.advice.fresh_until + MAX_STALENESS

    @property
    def last_known(self) -> AdviceEntry | None:
        """What is still advised while the origin cannot be asked, though not fresh; None where its fields forbid it."""
        entry = self.advice.entry
        # Neither directive that asks for more is given by a date, so any instant will do.
        return entry if freshness(self.fields, now=0.0).allows_stale else None

    @property
    def validators(self) -> tuple[tuple[str, str], ...]:
        """The fields that make a request conditional on a change (4.3.1); empty where those of the response are
        malformed.

        Nor are they long: section 8.3 of traffic-advice.txt asks for small requests.
        """
        fields = []
        tags, dates = lines_of(self.fields, "etag"), lines_of(self.fields, "last-modified")
        if tags and len(tags[0]) <= _LONGEST_TAG and ENTITY_TAG.fullmatch(tags[0].encode("latin-1", "replace")):
            fields.append(("If-None-Match", tags[0]))
        if dates and parse_http_date(dates[0].encode("latin-1", "replace")) is not None:
            fields.append(("If-Modified-Since", dates[0]))
        return tuple(fields)


def _kept(fields: Pairs) -> Pairs | None:
    """Return what is needed of a response's fields, names in lower case; None where that is too much."""
    kept = [(name.lower(), value) for name, value in fields if name.lower() in _KEPT]
    return kept if sum(len(name) + len(value) for name, value in kept) <= _MOST_KEPT else None
