"""What a benchmark is made of: rows, rounds in which the sides take turns, and two ways to say that there is no figure.

All sides of a comparison run in the same round, one directly after the other and in turns first, so that whatever else
the machine does falls on all. The ratio is the median over the rounds of each round's own ratio.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from tests.servers import find_program


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


def in_turns(sides: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Take a figure of each side in each round, another side first in each."""
    figures: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            figures[name].append(sides[name]())
    return figures


def compared(
    what: str,
    ours: Sequence[float],
    bound: tuple[Literal["≤", "≥"], float],
    peer: tuple[str, Sequence[float]],
    unit: str,
) -> Row:
    """Return the row of our figures and the peer's: the median of each round's own ratio."""
    name, theirs = peer
    ratio = median(mine / other for mine, other in zip(ours, theirs, strict=True))
    context = f"{median(ours):.1f} {unit} against {median(theirs):.1f} {unit}"
    return Row(what, name, ratio, *bound, context)


def verify(claim: str, *, right: bool) -> None:
    """Raise Void, quoting the claim, unless it is right."""
    if not right:
        raise Void(f"this does not hold: {claim}")


def need(*programs: str) -> None:
    """Raise Absent unless all programs are installed."""
    for program in programs:
        if find_program(program) is None:
            raise Absent(f"{program} is not installed; make servers")
