"""What a benchmark is made of: rows, rounds in which the peers take turns, and two ways to say that there is no figure.

Both sides of a comparison run in the same round, one directly after the other and in turns first, so that whatever else
the machine does falls on both. The ratio is the median over the rounds of each round's own ratio.
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Literal


class Void(Exception):
    """A benchmark's own result was wrong, so its times mean nothing."""


class Absent(Exception):
    """A peer is not installed on this machine, so there is nothing to compare with."""


@dataclass(frozen=True)
class Row:
    """One line of the table: a ratio, and the bound it is to reach."""

    what: str
    peer: str
    ratio: float
    bound: Literal["≤", "≥"]
    target: float
    context: str  # the absolute figures, with their units

    @property
    def reached(self) -> bool:
        """Whether the ratio is on the right side of its bound."""
        return self.ratio <= self.target if self.bound == "≤" else self.ratio >= self.target


@dataclass(frozen=True)
class Comparison:
    """Medians over all rounds, each in the unit of the figures compared."""

    ours: float
    peer: float
    ratio: float  # ours / peer


def compare(ours: Callable[[], float], peer: Callable[[], float], *, rounds: int) -> Comparison:
    """Take both figures once per round, each first in every other round; each callable returns its own figure."""
    pairs = []
    for turn in range(rounds):
        if turn % 2:
            theirs = peer()
            pairs.append((ours(), theirs))
        else:
            pairs.append((ours(), peer()))
    return Comparison(
        ours=median(mine for mine, _ in pairs),
        peer=median(theirs for _, theirs in pairs),
        ratio=median(mine / theirs for mine, theirs in pairs),
    )


def verify(claim: str, *, right: bool) -> None:
    """Raise Void, quoting the claim, unless it is right."""
    if not right:
        raise Void(f"this does not hold: {claim}")
