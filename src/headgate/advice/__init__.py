"""Traffic advice: how much automated traffic an origin wants (traffic-advice.txt).

This room knows the entries and the document they make. It opens no socket and reads no clock; whoever serves the
document takes its bytes, its media type and its well-known path from here.
"""

from headgate.advice.entry import Entry
from headgate.advice.publisher import MEDIA_TYPE, PATH, document

__all__ = ["MEDIA_TYPE", "PATH", "Entry", "document"]
