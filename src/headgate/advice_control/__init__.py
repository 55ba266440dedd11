"""What an origin publishes as its traffic advice: entries, the document made of them, and fractions from the load.

Nothing here opens a socket or reads a clock.
"""

from headgate.advice_control.law import Explanation, HistoryLaw, LawSettings, Reason, share
from headgate.advice_control.publisher import Entry, document

__all__ = ["Entry", "Explanation", "HistoryLaw", "LawSettings", "Reason", "document", "share"]
