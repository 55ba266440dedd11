"""Traffic advice: how much automated traffic an origin wants (traffic-advice.txt).

Both ends of it. An origin's: `Entry` is what its operator writes, `document` the bytes it serves at `PATH` as
`MEDIA_TYPE`. An agent's: `AgentIdentity` is who it is, `parse_advice` reads a document for it, `AdviceCache` knows what
each origin advises and says when to fetch, `permits` decides. Nothing here opens a socket or reads a clock.
"""

from headgate.advice.cache import AdviceCache
from headgate.advice.draw import permits
from headgate.advice.entry import Entry
from headgate.advice.identity import AgentIdentity
from headgate.advice.parsing import parse_advice
from headgate.advice.publisher import document
from headgate.advice.resource import MEDIA_TYPE, PATH

__all__ = ["MEDIA_TYPE", "PATH", "AdviceCache", "AgentIdentity", "Entry", "document", "parse_advice", "permits"]
