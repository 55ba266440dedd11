"""One traffic advice entry, as an operator writes it (traffic-advice.txt, sections 3, 4 and 6)."""

import math

import msgspec

from headgate.errors import ConfigurationError


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one kind of agent is advised; raises `ConfigurationError` when a field cannot be meant."""

    user_agent: str
    """Whom it is for: a brand name, `prefetch-proxy`, or `*` for every agent that respects traffic advice."""

    disallow: bool = False
    """Whether traffic is discouraged altogether at this time."""

    fraction: float = 1.0
    """How much of the possible traffic is wanted, from 0 to 1; 0.1 asks for about a tenth."""

    def __post_init__(self) -> None:
        if not self.user_agent.strip():
            raise ConfigurationError("advice.user_agent is empty; name an agent, 'prefetch-proxy', or '*' for all")
        if not (math.isfinite(self.fraction) and 0 <= self.fraction <= 1):
            # Section 6, step 8.2: a fraction outside 0 to 1 is passed over, so writing one would say nothing.
            raise ConfigurationError(
                f"advice.fraction of {self.user_agent!r} is {self.fraction}, not from 0 to 1; try 0.1 for a tenth"
            )
