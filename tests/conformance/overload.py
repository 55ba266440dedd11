"""A simulation of an overloaded server and of agents that send a request each second."""

import random
from typing import NamedTuple

from headgate.throttle import Throttle

URL = "http://www.example.com/x"
START = 1_763_683_200.0


class Second(NamedTuple):
    """The requests that reach the server in one second."""

    sent: int
    refused: int
    """How many of them get a 503."""


def overload(*, capacity: int, polite: int = 200, agents: int = 200, seconds: int = 180) -> list[Second]:
    """Simulate agents that want one request per second; the first `polite` of them obey a throttle."""
    chance = random.Random(1)
    history: list[Second] = []
    throttles = [Throttle(draw=random.Random(number).random) for number in range(agents)]
    for second in range(seconds):
        now = START + second
        senders = [
            throttle
            for number, throttle in enumerate(throttles)
            if number >= polite or throttle.release_time(URL, now=now) <= now
        ]
        chance.shuffle(senders)
        for rank, throttle in enumerate(senders):
            throttle.response_received(URL, 200 if rank < capacity else 503, {}, now=now)
        history.append(Second(len(senders), max(0, len(senders) - capacity)))
    return history
