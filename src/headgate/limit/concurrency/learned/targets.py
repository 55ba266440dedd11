"""The limits that measurements ask for."""

from typing import Final

from headgate.limit.concurrency.learned.measurement import Measurement
from headgate.limit.concurrency.learned.trial import Trial

REDUCTION: Final = 0.9
"""The factor of a limit that is lowered without a trial.

0.8 and 0.95 tried: no effect within chance on a step; the limit is 0.59 and 0.84 of the knee while the event loop lags
for ten seconds, with 0.9 0.7.
"""
_HEADROOM: Final = 1.1
"""The target is this multiple of the requests that the origin works on, and one more, so that it never idles.

With 1.0, a baseline that is a twentieth too low costs goodput: 0.92 instead of 0.97 at the worst of 32 steps.
"""
_MANY_SLOW: Final = 0.1
"""From this share of responses above the healthy latency on, the limit is lowered, and no higher one stays.

0.05 is what 20 places with exponential times of 0.1 s have above 0.3 s without a queue: the limit falls to 0.3 of the
knee. With 0.2 it is 1.09 instead of 1.03 times the knee.
"""


def target(measurement: Measurement) -> float:
    """Return the limit that the origin needs: what it works on, some more, and what hangs until it times out."""
    return _HEADROOM * measurement.busy + 1.0 + (measurement.in_flight - measurement.responding)


def many_are_slow(measurement: Measurement) -> bool:
    """Return whether too many responses took longer than the healthy latency."""
    return measurement.slow > _MANY_SLOW * measurement.requests


def limit_after_search(trial: Trial, after: Measurement, limit: float) -> float:
    """Return the limit that the throughput before a trial needs at the latency after it, at least the present one."""
    return max(limit, min(trial.limit, _HEADROOM * trial.before.rate * after.in_flight / after.rate + 1.0))
