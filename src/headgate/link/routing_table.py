"""The routing table of a router: which master gets the accounting of a domain, or of one identifier of it.

This module sends nothing. Peers choose the names of domains and identifiers, so both tables are bounded; an entry that
was dropped is computed again when it is needed.
"""

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from headgate.errors import WireError
from headgate.limit.messages import domain_of, topic
from headgate.limit.sharding import Sharding
from headgate.link.batch import BATCH, AccountingRecord
from headgate.link.master_connection import MasterConnection
from headgate.link.subscriptions import Encoding

Shard = Literal["domain", "identifier"]
"""What has one master: each domain, or each identifier of a domain."""

_MAX_TOPIC_SIZE = 255
_MAX_DOMAINS = 1_000
_MAX_ITEMS = 100_000


class MasterTraffic(msgspec.Struct):
    """Counters of what passed between a router and one master."""

    sent: int = 0
    """Verdicts sent to it."""
    dropped: int = 0
    """Verdicts dropped because its queue is full."""
    controls: int = 0
    """Controls received from it and passed on."""


class RoutedMaster(msgspec.Struct, frozen=True):
    """One of the masters of a router."""

    connection: MasterConnection
    traffic: MasterTraffic


class DomainRoute:
    """The way of the accounting of one domain to one master."""

    __slots__ = ("batch_topic", "encoding", "master", "records", "topic")

    def __init__(self, domain_topic: bytes, master: RoutedMaster, encoding: Encoding) -> None:
        self.topic = domain_topic
        self.batch_topic = BATCH + domain_topic
        self.master = master
        self.encoding = encoding
        self.records: list[AccountingRecord] = []
        """Records that wait to be sent."""


class RoutingTable:
    """The routes to `masters`, which are named by the endpoints of their accounting."""

    def __init__(self, masters: Mapping[str, RoutedMaster], shard: Shard) -> None:
        self.shard = shard
        """What has one master."""
        self._masters = masters
        self._sharding = Sharding(masters)
        self._readers: dict[bytes, dict[str, DomainRoute]] = {}
        self._routes: dict[bytes, DomainRoute | None] = {}

    def update(self) -> None:
        """Choose all routes again: the subscriptions of a master have changed. No record may wait in a route."""
        self._routes.clear()
        for domain_topic in self._readers:
            self._readers[domain_topic] = self._new_readers(domain_topic)

    def route(self, domain_topic: bytes, identifier: bytes = b"") -> DomainRoute | None:
        """Return the route to the owner of a domain, or of an identifier; None if no master reads the domain.

        Raises `WireError` if `domain_topic` is not the name of a domain and one NUL.
        """
        item = domain_topic + identifier if self.shard == "identifier" else domain_topic
        try:
            return self._routes[item]
        except KeyError:
            return self._new_route(domain_topic, item)

    def owners(self) -> Iterator[tuple[str, str]]:
        """Yield the known domains and the names of the masters that own them.

        The name is empty if no master reads the domain, and if its identifiers have masters of their own.
        """
        for domain_topic, readers in self._readers.items():
            owner = self._sharding.owner(domain_topic, readers) if self.shard == "domain" else None
            yield domain_of(domain_topic), owner or ""

    def _new_route(self, domain_topic: bytes, item: bytes) -> DomainRoute | None:
        readers = self._readers.get(domain_topic)
        if readers is None:
            if topic(domain_of(domain_topic)) != domain_topic or not 1 < len(domain_topic) <= _MAX_TOPIC_SIZE:
                raise WireError(f"invalid topic {domain_topic[:40]!r}; expected the name of a domain and one NUL")
            if len(self._readers) >= _MAX_DOMAINS:
                del self._readers[next(iter(self._readers))]
                self._routes.clear()
            readers = self._readers[domain_topic] = self._new_readers(domain_topic)
        if len(self._routes) >= _MAX_ITEMS:
            self._routes.clear()
        owner = self._sharding.owner(item, readers)
        route = self._routes[item] = None if owner is None else readers[owner]
        return route

    def _new_readers(self, domain_topic: bytes) -> dict[str, DomainRoute]:
        """Return a route to each master that reads the accounting of a domain and is up; if none is, to each reader."""
        domain = domain_of(domain_topic)
        readers = {
            name: DomainRoute(domain_topic, master, encoding)
            for name, master in self._masters.items()
            if (encoding := master.connection.subscriptions.encoding(domain)) != "unheard"
        }
        return {name: route for name, route in readers.items() if route.master.connection.is_up} or readers
