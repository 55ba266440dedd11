"""What fetching traffic advice can result in (traffic-advice.txt, section 3)."""

import enum
from typing import Final, Literal, TypeAlias

import msgspec


class AdviceEntry(msgspec.Struct, frozen=True):
    """A traffic advice entry: what an origin advises the agent that read it.

    Not to be taken for `Entry`, which is what an operator writes, for any agent.
    """

    disallowed: bool = False
    """Whether traffic is discouraged at this time, altogether."""

    fraction: float = 1.0
    """How much of the possible traffic is wanted, from 0 to 1, and never -0."""

    @property
    def wants_all(self) -> bool:
        """Whether nothing is asked of the agent: it is as welcome as can be."""
        return not self.disallowed and self.fraction >= 1


class Unreachable(enum.Enum):
    """The type of `UNREACHABLE`, which is its only member."""

    UNREACHABLE = "unreachable"


UNREACHABLE: Final[Literal[Unreachable.UNREACHABLE]] = Unreachable.UNREACHABLE
"""The server was not able to serve a request for its traffic advice (section 7)."""

AdviceResult: TypeAlias = AdviceEntry | Unreachable | None
"""A traffic advice result: an entry, `UNREACHABLE`, or None where no advice was received."""


def result_to_json(result: AdviceResult) -> dict[str, bool | float] | str | None:
    """Return a result as JSON shows it: an object with `disallowed` and `fraction`, "unreachable", or null."""
    if isinstance(result, AdviceEntry):
        return {"disallowed": result.disallowed, "fraction": result.fraction}
    return result and result.value
