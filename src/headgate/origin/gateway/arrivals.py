"""Counting requests by class of agents, before any is delayed or rejected: what computed traffic advice needs.

A request belongs to the first of these classes:

1. that of its domain, if an entry lists the domain;
2. that of a brand name that an entry has and the User-Agent contains as a whole word;
3. `prefetch-proxy`, or else `*`, if Sec-Purpose says that a proxy hides the client's address
   (`prefetch;anonymous-client-ip`);
4. `*`, if the User-Agent is not one of a browser, or says that it is compatible with one, as those of crawlers do;
5. people: all others. Their fraction cannot be controlled.
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec

from headgate.advice.identity import EVERY_AGENT, PREFETCH_PROXY
from headgate.http.h1 import RequestHead

PEOPLE: Final = ""
"""The class of all requests that belong to no entry."""
MAX_KNOWN: Final = 1_000
"""User-Agents whose class is remembered."""

_MAX_USER_AGENT: Final = 512
_ANONYMOUS: Final = b"anonymous-client-ip"
_BROWSER: Final = b"Mozilla/"
_COMPATIBLE: Final = b"compatible;"
_USER_AGENT: Final = b"\r\nUser-Agent: "
_LENGTH: Final = len(_USER_AGENT)


class ArrivalClasses(msgspec.Struct, frozen=True):
    """What a request must have to belong to a class."""

    names: tuple[str, ...]
    """The names of the entries, in the order of the document."""
    domains: Mapping[str | None, str]
    """The name of the entry for the requests of a domain."""

    def most_specific(self, *names: str) -> str:
        """Return the first of these names that has an entry, `PEOPLE` without one."""
        return next((name for name in names if name in self.names), PEOPLE)


class ArrivalMeter:
    """Counts requests by class."""

    def __init__(self, classes: ArrivalClasses) -> None:
        self._classes = classes
        brands = [name for name in classes.names if name not in {PREFETCH_PROXY, EVERY_AGENT}]
        self._brands = [(name, re.compile(rb"(?<![\w-])%b(?![\w-])" % re.escape(name.encode()))) for name in brands]
        self._known: dict[bytes, str] = {}
        self._counts: Counter[str] = Counter()

    def count(self, request: RequestHead, domain: str | None) -> None:
        """Count a request."""
        name = self._classes.domains.get(domain)
        if name is None:
            raw = request.raw
            begin = raw.find(_USER_AGENT)  # nearly always written like this
            if begin >= 0:
                user_agent = raw[begin + _LENGTH : raw.find(b"\r\n", begin + _LENGTH)]
            else:
                user_agent = b", ".join(request.values(b"user-agent"))
            if _ANONYMOUS in raw and _ANONYMOUS in b", ".join(request.values(b"sec-purpose")):
                name = self._classify(user_agent, is_prefetch=True)
            else:
                name = self._known.get(user_agent)
                if name is None:
                    name = self._remember(user_agent)
        self._counts[name] += 1

    def take(self) -> dict[str, int]:
        """Return the counts by class since the last call."""
        counts, self._counts = self._counts, Counter()
        return dict(counts)

    def _remember(self, user_agent: bytes) -> str:
        name = self._classify(user_agent, is_prefetch=False)
        if len(user_agent) <= _MAX_USER_AGENT:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[user_agent] = name
        return name

    def _classify(self, user_agent: bytes, *, is_prefetch: bool) -> str:
        """Return the class of a request without a domain of a class; the numbers are those above."""
        listed = next((name for name, pattern in self._brands if pattern.search(user_agent)), None)
        if listed is not None:
            return listed  # 2
        if is_prefetch:
            return self._classes.most_specific(PREFETCH_PROXY, EVERY_AGENT)  # 3
        if not user_agent.startswith(_BROWSER) or _COMPATIBLE in user_agent:
            return self._classes.most_specific(EVERY_AGENT)  # 4
        return PEOPLE  # 5
