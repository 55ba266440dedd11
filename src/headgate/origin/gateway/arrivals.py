"""Counting requests by class of agents, before any is delayed or rejected: what the controller of advice needs.

A request belongs to the first of these classes:

1. that of its domain, if an entry lists the domain;
2. that of a brand name that an entry has and the User-Agent contains as a whole word;
3. the brand of a prefetch proxy at its address, else `prefetch-proxy`, if Sec-Purpose says that a proxy hides the
   client's address (`prefetch;anonymous-client-ip`);
4. that of the agent at its address that has fetched the advice lately, if the User-Agent contains the brand with which
   it fetched as a whole word, or is not one of a browser;
5. people: all others. Their fraction cannot be controlled.

An address alone is not enough in 4: people and agents can share one. A brand alone is not enough either, except for one
that the operator has listed: a client could fetch the advice with the brand of a browser.
"""

import re
from collections import OrderedDict
from collections.abc import Container, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from headgate.advice.identity import EVERY_AGENT, PREFETCH_PROXY
from headgate.http.h1 import RequestHead

MAX_COUNTED: Final = 10_000
"""Maximum pairs of class and agent that are counted apart between two reports; further agents count together."""
MAX_AGENTS: Final = 10_000
"""Maximum addresses of agents that are known at a time."""
MAX_BRANDS: Final = 4
"""Maximum brands of agents at one address."""
UNKNOWN_AGENT: Final = b""
"""The agent of a request from an address that has not fetched the advice."""

_ANONYMOUS: Final = b"anonymous-client-ip"
_BROWSER: Final = b"Mozilla/"
_USER_AGENT: Final = b"\r\nUser-Agent: "
_NAME: Final = rb"[\w-]"


def brand_of(user_agent: bytes) -> bytes:
    """Return the brand name in the User-Agent of a fetch: all of it, without the version of its only product.

    Agents of this project send the brand alone. A User-Agent that begins as that of a browser is kept whole, so that it
    does not stand for all browsers.
    """
    if user_agent.startswith(_BROWSER):
        return user_agent
    return user_agent.partition(b"/")[0].strip() or user_agent


class KnownAgent(NamedTuple):
    """An agent that has fetched the advice."""

    address: bytes
    brand: bytes

    @property
    def key(self) -> bytes:
        """The agent, for a log of fetches."""
        return b"%b %b" % self


class KnownAgents:
    """The agents that have fetched the advice within `seconds`, by address; at most `MAX_AGENTS` addresses."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._brands: OrderedDict[bytes, tuple[float, tuple[bytes, ...]]] = OrderedDict()
        self.addresses: Container[bytes] = self._brands
        """The addresses."""

    def __len__(self) -> int:
        """Return the number of addresses."""
        return len(self._brands)

    def brands(self, address: bytes) -> tuple[bytes, ...]:
        """Return the brands of the agents at an address, the latest first."""
        found = self._brands.get(address)
        return found[1] if found is not None else ()

    def add(self, agent: KnownAgent, *, now: float) -> None:
        """Add an agent that fetches at `now`."""
        others = tuple(brand for brand in self.brands(agent.address) if brand != agent.brand)
        self._brands[agent.address] = now + self.seconds, (agent.brand, *others)[:MAX_BRANDS]
        self._brands.move_to_end(agent.address)
        if len(self._brands) > MAX_AGENTS:
            self._brands.popitem(last=False)

    def forget(self, *, now: float) -> None:
        """Drop the agents that have not fetched for `seconds`; those that fetched first are first."""
        while self._brands:
            address, (until, _) = next(iter(self._brands.items()))
            if now < until:
                return
            del self._brands[address]

    def all(self) -> list[KnownAgent]:
        """Return all agents, those that fetched first, first."""
        return [
            KnownAgent(address, brand) for address, (_, brands) in self._brands.items() for brand in reversed(brands)
        ]


class ArrivalClasses(msgspec.Struct, frozen=True):
    """What a request must have to belong to a class."""

    names: tuple[str, ...]
    """The names of the entries, in the order of the document."""
    domains: Mapping[str, str]
    """The name of the entry for the requests of a domain."""

    @property
    def brands(self) -> tuple[str, ...]:
        """The names that are brands."""
        return tuple(name for name in self.names if name not in {PREFETCH_PROXY, EVERY_AGENT})

    def most_specific(self, *names: str) -> str:
        """Return the first of these names that has an entry; an empty text without one."""
        return next((name for name in names if name in self.names), "")


class Arrivals(NamedTuple):
    """The requests since the last report."""

    agents: dict[tuple[str, bytes], int]
    """Requests by class and agent."""
    people: int
    """The other requests."""


class _Counter:
    """The requests of an agent of a class since the last report."""

    __slots__ = ("requests",)

    def __init__(self) -> None:
        self.requests = 0


class ArrivalMeter:
    """Counts requests by class and agent; `learn` names the agents that have fetched the advice."""

    def __init__(self, classes: ArrivalClasses, *, seconds: float) -> None:
        self.agents = KnownAgents(seconds)
        """The agents that have fetched the advice."""
        self._classes = classes
        self._addresses = self.agents.addresses
        self._domains: Mapping[str | None, str] = {name: classes.domains[name] for name in classes.domains}
        self._listed = tuple(brand.encode() for brand in classes.brands)
        self._brands = [(brand, _whole_word(brand.encode())) for brand in classes.brands]
        self._known: dict[tuple[bytes, bytes, str | None, bool], _Counter] = {}
        """The counter of requests like those seen lately: to classify them takes longer than to count them."""
        self._counters: dict[tuple[str, bytes], _Counter] = {}
        self._other = _Counter()  # requests of people that were classified
        self._people = 0

    def learn(self, agents: Iterable[KnownAgent], *, now: float) -> None:
        """Add agents that have fetched the advice lately, and forget the ones that have not."""
        for agent in agents:
            self.agents.add(agent, now=now)
        self.agents.forget(now=now)
        self._known.clear()  # the counters remain

    def count(self, request: RequestHead, domain: str | None, address: bytes) -> None:
        """Count a request."""
        # A few cheap tests are enough for nearly all requests of people.
        raw = request.raw
        if domain not in self._domains and address not in self._addresses and _ANONYMOUS not in raw:
            user_agent = _user_agent(request) if self._listed else b""
            for brand in self._listed:
                if brand in user_agent:
                    break
            else:
                self._people += 1
                return
        is_prefetch = _ANONYMOUS in raw and _ANONYMOUS in b", ".join(request.values(b"sec-purpose"))
        listed = domain if domain in self._domains else None
        seen = (address, _user_agent(request), listed, is_prefetch)
        counter = self._known.get(seen)
        if counter is None:
            if len(self._known) >= MAX_COUNTED:
                self._known.clear()
            counter = self._known[seen] = self._counter(*self._classify(*seen[:3], is_prefetch=is_prefetch))
        counter.requests += 1

    def take(self) -> Arrivals:
        """Return the counts since the last call."""
        counts = {key: counter.requests for key, counter in self._counters.items() if counter.requests}
        counted = Arrivals(counts, self._people + self._other.requests)
        # Those of agents that have sent nothing are dropped, so that others can be counted apart.
        self._counters = {key: counter for key, counter in self._counters.items() if counter.requests}
        self._known = {seen: counter for seen, counter in self._known.items() if counter.requests}
        for counter in (*self._counters.values(), self._other):
            counter.requests = 0
        self._people = 0
        return counted

    def _counter(self, name: str, agent: bytes) -> "_Counter":
        """Return the counter of an agent of a class; an empty class is that of people."""
        if not name:
            return self._other
        key = (name, agent)
        if key not in self._counters and len(self._counters) >= MAX_COUNTED:
            key = (name, UNKNOWN_AGENT)
        return self._counters.setdefault(key, _Counter())

    def _classify(
        self, address: bytes, user_agent: bytes, domain: str | None, *, is_prefetch: bool
    ) -> tuple[str, bytes]:
        """Return the class and the agent of a request; an empty class for people. The numbers are those above.

        `domain` is None unless its requests belong to a class.
        """
        brands = self.agents.brands(address)
        own = next((brand for brand in brands if _contains(user_agent, brand)), None)
        agent = b"%b %b" % (address, own or brands[0]) if brands else UNKNOWN_AGENT
        if domain is not None:
            return self._domains[domain], agent  # 1
        if listed := self._listed_brand(user_agent):
            return listed, agent  # 2
        if is_prefetch:
            return self._classes.most_specific(*_texts(brands), PREFETCH_PROXY, EVERY_AGENT), agent  # 3
        if own is not None or (brands and not user_agent.startswith(_BROWSER)):
            return self._classes.most_specific(*_texts((own or brands[0],)), EVERY_AGENT), agent  # 4
        return "", UNKNOWN_AGENT  # 5

    def _listed_brand(self, user_agent: bytes) -> str:
        """Return the brand with an entry that a User-Agent contains as a whole word; an empty text without one."""
        return next((name for name, pattern in self._brands if pattern.search(user_agent)), "")


def _user_agent(request: RequestHead) -> bytes:
    """Return the User-Agent: fast if its name is written as usual."""
    raw = request.raw
    begin = raw.find(_USER_AGENT)
    if begin < 0:
        return b", ".join(request.values(b"user-agent"))
    begin += len(_USER_AGENT)
    return raw[begin : raw.find(b"\r\n", begin)]


def _contains(user_agent: bytes, brand: bytes) -> bool:
    """Return whether a User-Agent contains a brand as a whole word; an agent that fetched without one has none."""
    return bool(brand) and brand in user_agent and _whole_word(brand).search(user_agent) is not None


def _whole_word(brand: bytes) -> re.Pattern[bytes]:
    return re.compile(rb"(?<!%b)%b(?!%b)" % (_NAME, re.escape(brand), _NAME))


def _texts(brands: tuple[bytes, ...]) -> list[str]:
    return [brand.decode("utf-8", "replace") for brand in brands]
