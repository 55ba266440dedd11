"""Traffic advice: how much automated traffic an origin wants (traffic-advice.txt).

This is the agents' side; `headgate.advice_control` has that of origins. An `AdviceCache` tells when to fetch and what
each origin advises, and `permits` decides. A program with other needs makes the request itself, to
`traffic_advice_url`, and calls `interpret` with the `AdviceResponse`, or `parse_advice` with a document. Nothing here
opens a socket or reads a clock.
"""

from headgate.advice.cache import AdviceCache, Fetch, FetchPending, WellKnownCache
from headgate.advice.decision import Advice, permits
from headgate.advice.fetching import (
    MEDIA_TYPE,
    NETWORK_ERROR,
    PATH,
    AdviceRequest,
    AdviceResponse,
    interpret,
    traffic_advice_url,
)
from headgate.advice.identity import AgentIdentity
from headgate.advice.parser import UNREACHABLE, AdviceEntry, parse_advice

__all__ = [
    "MEDIA_TYPE", "NETWORK_ERROR", "PATH", "UNREACHABLE", "Advice", "AdviceCache", "AdviceEntry", "AdviceRequest",
    "AdviceResponse", "AgentIdentity", "Fetch", "FetchPending", "interpret", "parse_advice",
    "permits", "traffic_advice_url", "WellKnownCache",
]  # fmt: skip
