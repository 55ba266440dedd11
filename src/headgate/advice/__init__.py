"""Traffic advice: how much automated traffic an origin wants (traffic-advice.txt).

For origins: `document` returns the bytes to serve at `PATH` as `MEDIA_TYPE`, from the `Entry` values that the operator
writes, or that `headgate.advice.controller` computes from the load. For agents: an `AdviceCache` tells when to fetch
and what each origin advises, and `permits` decides. A program with other needs makes the request itself, to
`traffic_advice_url`, and calls `interpret` with the `AdviceResponse`, or `parse_advice` with a document. Nothing here
opens a socket or reads a clock.
"""

from headgate.advice.cache import AdviceCache, Fetch, FetchPending
from headgate.advice.decision import Advice, permits
from headgate.advice.fetching import NETWORK_ERROR, AdviceRequest, AdviceResponse, interpret, traffic_advice_url
from headgate.advice.identity import AgentIdentity
from headgate.advice.parser import UNREACHABLE, AdviceEntry, parse_advice
from headgate.advice.publisher import MEDIA_TYPE, PATH, Entry, document

__all__ = [
    "MEDIA_TYPE", "NETWORK_ERROR", "PATH", "UNREACHABLE", "Advice", "AdviceCache", "AdviceEntry", "AdviceRequest",
    "AdviceResponse", "AgentIdentity", "Entry", "Fetch", "FetchPending", "document", "interpret", "parse_advice",
    "permits", "traffic_advice_url",
]  # fmt: skip
