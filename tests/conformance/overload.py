"""A server that is asked for more than it can take, second by second, by agents that never tire of asking."""

import random
from typing import NamedTuple

from headgate.throttle import Throttle

URL = "http://www.example.com/x"
START = 1_763_683_200.0


class Second(NamedTuple):
    """What reached the server in one second."""

    sent: int
    refused: int
    """Of those, how many got a 503."""


def overload(*, capacity: int, polite: int = 200, agents: int = 200, seconds: int = 180) -> list[Second]:
    """Let each agent want one request a second; the first `polite` of them have a throttle. Give each second."""
    chance = random.Random(1)
    past: list[Second] = []
    throttles = [Throttle(draw=random.Random(number).random) for number in range(agents)]
    for second in range(seconds):
        now = START + second
        asking = [
            throttle
            for number, throttle in enumerate(throttles)
            if number >= polite or throttle.release_time(URL, now=now) <= now
        ]
        chance.shuffle(asking)
        for rank, throttle in enumerate(asking):
            throttle.response_received(URL, 200 if rank < capacity else 503, {}, now=now)
        past.append(Second(len(asking), max(0, len(asking) - capacity)))
    return past
