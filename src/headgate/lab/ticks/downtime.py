"""Trials of downtime: how long a server that is down for some time seems to be down to one agent.

The trial is that of the simulation named in anti-ddos-throttling.txt, section 6, and its parts are all stated here, so
a scenario file gives only the pairs of downtime and interval.
"""

from headgate.lab.chance import Chance, Purpose
from headgate.lab.policies import Policy
from headgate.lab.ticks.agents import Counts, Requester, Route
from headgate.lab.ticks.engine import START, Engine, Origin
from headgate.lab.ticks.origins import CoolingServer, Pace
from headgate.lab.ticks.settings import Cooling, Requesters, Trial

TICKS_OF_DOWNTIME = 200
"""A tick is the downtime divided by it."""

_CAPACITY = 1e9
"""Requests per second that the server can serve: more than one agent sends."""


def perceived_downtime(trial: Trial, policy: type[Policy], chance: Chance, number: int) -> float:
    """Return the downtime that the agent of a trial perceives, as a share of the downtime; 0 if it perceives none.

    The run is two downtimes long, and the server is down strictly between 1/2 and 3/2 of a downtime. The interval of
    the agent is uniform in `interval` ± `interval`, and drawn anew in every tick. What it perceives is measured at the
    first success after a failure or a refusal of its policy: the time since the last success before. The last such
    time counts. `number` is that of the trial, and of the agent's streams.
    """
    downtime = trial.downtime
    tick = downtime / TICKS_OF_DOWNTIME
    settings = Cooling(capacity=_CAPACITY)
    server = CoolingServer(settings, Pace(_CAPACITY, tick, errors=0.0), chance.stream(Purpose.ORIGIN, number))
    server.outages.append((START + downtime / 2, START + downtime * 3 / 2))
    server.policy = policy.origin_policy(server, chance.stream(Purpose.GATE, number))
    group = Requesters(name="client", count=1, interval=trial.interval, jitter=trial.interval, start=downtime / 3)
    agent = Requester(number, group, Counts(), chance.stream(Purpose.BEHAVIOUR, number), now=START)
    origin = Origin(server, delay=0)
    agent.use([Route(origin, policy(agent, server, chance.stream(Purpose.POLICY, number)))], number)
    Engine([agent], [], [origin], length=tick, ticks=2 * TICKS_OF_DOWNTIME + 1).run(lambda _tick: None, record=False)
    return agent.perceived_downtime / downtime
