"""Upper bounds of the requests that gatekeepers admit beyond the rule, because controls arrive late.

Let `late` be the maximum number of requests offered within one control delay, both ends included. The last request that
is admitted knew of all requests decided one control delay earlier, and these were within the rule; `late` others were
not known. docs/scaling.md derives each bound.
"""

import math

from experiments.bus_simulation import permitted
from headgate.limit import Rule
from headgate.limit.history import AlgorithmName


def most_admitted(rule: Rule, algorithm: AlgorithmName, seconds: float, *, late: int, control_delay: float) -> float:
    """Return the maximum number of requests admitted within `seconds`; infinity where the algorithm sets no limit."""
    paced = seconds / rule.interval
    if algorithm == "gcra":
        return paced + rule.burst - 1 + late
    if algorithm == "smockron":
        # A pause of one window, such as a long hold, ends the history, and up to a burst of the excess with it.
        return paced * (1 + min(1.0, late / rule.burst)) + rule.burst + 1 + late
    # A hold lasts for one interval from the arrival of the accounting message, and is over before it is obeyed.
    if control_delay >= rule.interval:
        return math.inf
    # Timestamps arrive late, so the window shows less of the past.
    visible = 1 - control_delay / rule.window
    return late * (paced * (1 + 1 / rule.burst) / visible + 1) + 2 * rule.burst


def steady_excess(rule: Rule, algorithm: AlgorithmName, seconds: float, *, rate: float, control_delay: float) -> float:
    """Return the maximum excess within `seconds` under a steady load of `rate` requests per second."""
    offered = max(0.0, rate * seconds - permitted(rule, seconds))
    late, paced = rate * control_delay, seconds / rule.interval
    if algorithm == "gcra":
        return min(offered, late)
    if algorithm == "smockron":  # a hold longer than a window ends the history
        return min(offered, late + 1 + (paced if late > rule.burst else 0.0))
    return min(offered, paced * late) if control_delay < rule.interval else offered
