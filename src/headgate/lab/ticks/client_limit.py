"""A gate that limits each client of an origin by a rule, with a real `Gatekeeper` and `Master`."""

import math
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final

from headgate.lab.policies import Admission, AgentView, Answer, Draw, OriginPolicy, OriginView
from headgate.limit import Domain, Gatekeeper, Rule
from headgate.release import Status

REJECTED: Final = 503
"""The status of a rejection, as the gate answers by default."""
_DOMAIN: Final = "site"


class ClientLimit(OriginPolicy):
    """Accepts, delays or rejects each request by the rule, as the gate does with the address as the identifier."""

    def __init__(self, origin: OriginView, draw: Draw, rule: Rule) -> None:
        super().__init__(origin, draw)
        self.gatekeeper = Gatekeeper.embedded([Domain(_DOMAIN, (rule,))])
        """The gatekeeper; its master is embedded."""
        self._delayed: list[tuple[float, int, AgentView]] = []
        self._order = 0

    def admit(self, arrivals: Sequence[AgentView], *, now: float) -> Admission:
        """Decide on the requests of a tick; delayed ones are admitted in the first tick after their release."""
        admitted: list[AgentView] = []
        refused: list[Answer] = []
        while self._delayed and self._delayed[0][0] <= now:
            admitted.append(heappop(self._delayed)[2])
        for agent in arrivals:
            verdict = self.gatekeeper.admit(_DOMAIN, b"%d" % agent.client, now=now)
            if verdict.status is Status.ACCEPTED:
                admitted.append(agent)
            elif verdict.status is Status.DELAYED:
                self._order += 1  # orders requests with the same release
                heappush(self._delayed, (verdict.release, self._order, agent))
            else:
                refused.append((agent, REJECTED, (("Retry-After", str(math.ceil(verdict.release - now))),)))
        return Admission(admitted, refused)
