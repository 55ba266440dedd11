"""Traffic advice: how much automated traffic an origin wants (traffic-advice.txt).

Both ends of it. An origin's: `Entry` is what its operator writes, `document` the bytes it serves at `PATH` as
`MEDIA_TYPE`. An agent's: `AgentIdentity` has its names, `traffic_advice_url` is where to ask an origin, `interpret`
returns what its `AdviceResponse` means: an `AdviceEntry`, None or `UNREACHABLE`. `parse_advice` reads a document,
`AdviceCache` knows what each origin advises and says when to fetch, `permits` decides. Nothing here opens a socket or
reads a clock.
"""

from headgate.advice.cache import AdviceCache
from headgate.advice.decision import permits

# A program that fetches by other means takes these from here too; they are no more than what `AdviceCache` does for it.
from headgate.advice.fetching import AdviceResponse as AdviceResponse
from headgate.advice.fetching import interpret as interpret
from headgate.advice.fetching import traffic_advice_url as traffic_advice_url
from headgate.advice.identity import AgentIdentity
from headgate.advice.parser import UNREACHABLE as UNREACHABLE
from headgate.advice.parser import AdviceEntry as AdviceEntry
from headgate.advice.parser import parse_advice
from headgate.advice.publisher import MEDIA_TYPE, PATH, Entry, document

__all__ = ["MEDIA_TYPE", "PATH", "AdviceCache", "AgentIdentity", "Entry", "document", "parse_advice", "permits"]
