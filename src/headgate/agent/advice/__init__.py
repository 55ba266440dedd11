"""Fetching an origin's traffic advice: the one request that the core asks for, with nothing in it of anybody's.

No cookie, no credentials, no proxy or `.netrc` of the environment, no redirect followed; at most five seconds and half
a megabyte, whatever answers. It needs no HTTP library, so that a program with any of them can ask.
"""

from headgate.agent.advice.beginning import MOST_AT_ONCE, MOST_WAITING, begin_fetch
from headgate.agent.advice.fetcher import fetch_advice

__all__ = ["MOST_AT_ONCE", "MOST_WAITING", "begin_fetch", "fetch_advice"]
