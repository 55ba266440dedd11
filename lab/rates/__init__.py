"""The world of rates: agents that send many requests in a tick, for hours, and a law that publishes advice for them.

Only numbers of requests are drawn, not single ones, so hours of an origin with thousands of requests per second take a
second. It shows what the discrete-time world is too slow for: how a law behaves over many max-ages.
"""

from lab.rates.settings import RateScenario
from lab.rates.world import run

__all__ = ["RateScenario", "run"]
