"""Numbers of requests: the Poisson distribution."""

import math
from typing import Final

from lab.chance import Draw

_LARGE: Final = 30.0
"""From this mean on, a normal distribution is used; its third moment is then wrong by a fifth of the deviation."""


def poisson(mean: float, draw: Draw) -> int:
    """Return a number from a Poisson distribution; draws one number below a mean of 30, two from it on."""
    if mean < _LARGE:
        left, number, chance = draw(), 0, math.exp(-mean)
        # The sum of the probabilities is rounded, so the loop has a limit of its own.
        while left >= chance and number < 10 * _LARGE:
            left -= chance
            number += 1
            chance *= mean / number
        return number
    return max(0, math.floor(mean + math.sqrt(mean) * normal(draw) + 0.5))


def normal(draw: Draw) -> float:
    """Return a number from the standard normal distribution; draws two numbers."""
    radius = math.sqrt(-2.0 * math.log(1.0 - draw()))  # Box and Muller
    return radius * math.cos(math.tau * draw())
