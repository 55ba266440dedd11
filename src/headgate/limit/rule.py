"""Rules: a rate and a burst, kept exact.

This module knows neither identifiers nor clocks. "A formula involving a rate (requests per time period)
and a burst (a number of requests which can be made before the rate takes effect)" (smockron.txt, Definitions).
"""

import math
import re
from dataclasses import dataclass, field
from fractions import Fraction

from headgate.errors import RuleError
from headgate.release import ASAP

_MILLISECONDS = {"ms": 1, "s": 1_000, "sec": 1_000, "second": 1_000, "min": 60_000, "minute": 60_000}
_MILLISECONDS |= {"h": 3_600_000, "hour": 3_600_000, "d": 86_400_000, "day": 86_400_000}
_PLURALS = {"secs": "sec", "seconds": "second", "mins": "min", "minutes": "minute", "hours": "hour", "days": "day"}
_TEXT = re.compile(
    r"\s*+(?P<count>[0-9]{1,9})\s*+(?:/|per\b|per(?=[0-9]))\s*+(?P<periods>[0-9]{1,9})?\s*+(?P<unit>[a-z]+?)"
    r"(?:\s*+burst\s*+(?P<burst>[0-9]{1,9}))?\s*+",
    re.IGNORECASE,
)


_OTHER_NOTATION = re.compile(
    r"\s*+(?:rate\s*+=\s*+)?(?P<count>[0-9]{1,6}(?:\.[0-9]{1,3})?)\s*+(?:r|requests?)?\s*+(?:/|per|p)\s*+(?P<unit>[a-z]{1,7})"
    r"(?:[\s,]++(?:burst\s*+)?=?\s*+(?P<burst>[0-9]{1,9}))?\s*+(?:nodelay\s*+)?",
    re.IGNORECASE,
)
"""What people know from other servers: `10r/s`, `30r/m`, `10 rps`, `0.5/s`, `burst=20`."""


def _example(text: object) -> str:
    """Return how to write a rule: the same one if it is in a notation of other servers, otherwise an example."""
    match = _OTHER_NOTATION.fullmatch(text) if isinstance(text, str) else None
    unit = {"m": "min"}.get(match["unit"].lower(), match["unit"].lower()) if match else ""
    if match is None or _PLURALS.get(unit, unit) not in _MILLISECONDS or not Fraction(match["count"]):
        return "expected a form such as '10/s burst 20'"
    rate = Fraction(match["count"])
    period = f"{rate.denominator if rate.denominator > 1 else ''}{unit}"
    return (
        f"write '{rate.numerator}/{period} burst {match['burst'] or rate.numerator}', in a form such as '10/s burst 20'"
    )


def round_down(value: Fraction) -> float:
    """Return the float at or just below `value`, so that no sum of intervals is later than the exact sum."""
    nearest = float(value)
    return math.nextafter(nearest, ASAP) if Fraction(nearest) > value else nearest


@dataclass(frozen=True, slots=True)
class Rule:
    """`count` requests per `period_ms` milliseconds, after a burst of `burst` requests; all three positive integers.

    `interval` is 1/rate and `window` is burst/rate, in seconds, rounded down to a float; `exact_interval` is exact.
    Raises `RuleError` for a number that is not a positive integer.
    """

    count: int
    period_ms: int
    burst: int
    interval: float = field(init=False, repr=False, compare=False)
    window: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("count", "period_ms", "burst"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise RuleError(f"the {name} of a rule must be a positive integer, got {value!r}")
        object.__setattr__(self, "interval", round_down(self.exact_interval))
        object.__setattr__(self, "window", round_down(self.exact_interval * self.burst))

    @property
    def exact_interval(self) -> Fraction:
        """The exact seconds per request: 1/rate."""
        return Fraction(self.period_ms, 1_000 * self.count)

    @classmethod
    def parse(cls, text: str) -> "Rule":
        """Parse a rule such as ``10/s burst 20``, ``600 per 10min`` or ``1000/h burst 50``.

        Spaces are optional; units are ms, s, sec, min, h, hour, d, day and their plurals; the burst defaults to the
        count of the rate. Raises `RuleError` with the text and an example.
        """
        match = _TEXT.fullmatch(text) if isinstance(text, str) else None
        unit = match["unit"].lower() if match else ""
        milliseconds = _MILLISECONDS.get(_PLURALS.get(unit, unit), 0)
        if match is None or not milliseconds:
            raise RuleError(f"invalid rule {text!r}; {_example(text)}")
        count, periods = int(match["count"]), int(match["periods"] or 1)
        burst = int(match["burst"] or count)
        if not (count and periods and burst):
            raise RuleError(
                f"invalid rule {text!r}: its numbers must be positive; expected a form such as '10/s burst 20'"
            )
        return cls(count, periods * milliseconds, burst)

    def __str__(self) -> str:
        for unit in ("d", "h", "min", "s", "ms"):
            periods, rest = divmod(self.period_ms, _MILLISECONDS[unit])
            if not rest:
                break
        period = unit if periods == 1 else f"{periods}{unit}"
        return f"{self.count}/{period} burst {self.burst}"
