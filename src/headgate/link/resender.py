"""What a gatekeeper sends again, to which master, and when.

This module knows neither sockets nor clocks. A master that starts without a history announces itself by a subscription.
It gets each verdict on the domains that it owns at most once: those made before it became the owner are sent again,
later ones are sent as they are made. If it loses a domain, or its connection, and gets it back, it gets the verdicts
made meanwhile.

One connection can lead to several masters, through a router. Then verdicts were sent there before the announcement
arrived, and the last of them may have reached the new master. So those of the last `IN_TRANSIT` seconds are left out: a
lost record admits a request, a repeated one could hold a client wrongly.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Final, Generic, TypeVar

from headgate.limit.messages import Accounting, to_milliseconds
from headgate.link.announcement import resent_topic
from headgate.link.batch import MAX_RECORDS, AccountingRecord, encode_batch, to_record
from headgate.link.recent_accounting import RecentAccounting
from headgate.release import ASAP, NEVER

IN_TRANSIT: Final = 0.1
"""Seconds in which a verdict reaches a master through a router."""

_MAX_MASTERS: Final = 64
"""Announcements that are remembered; later ones replace those that no connection has."""

Connection = TypeVar("Connection", bound=Hashable)


class _AnnouncedMaster:
    """A master that has announced itself, and what it still has to get."""

    __slots__ = ("got", "is_connected", "owned", "pieces")

    def __init__(self) -> None:
        self.is_connected = False
        self.owned: set[str] = set()
        """The domains whose verdicts are sent to it as they are made."""
        self.got: dict[str, int] = {}
        """For a domain that it does not own now, the position up to which it has got the verdicts."""
        self.pieces: dict[str, deque[list[Accounting]]] = {}
        """For each domain, lists of at most `MAX_RECORDS` verdicts, the oldest first."""


class Resender(Generic[Connection]):
    """Decides which verdicts of `recent` are sent again."""

    def __init__(self, recent: RecentAccounting) -> None:
        self._recent = recent
        self._routes: Mapping[str, Connection | None] = {}
        self._live_from: dict[str, int] = {}
        """For each domain, the position from which its verdicts are sent to its present connection."""
        self._masters: dict[bytes, _AnnouncedMaster] = {}

    def update(
        self,
        routes: Mapping[str, Connection | None],
        announcements: Mapping[Connection, Iterable[bytes]],
        *,
        arrived: Connection | None = None,
        now: float,
    ) -> None:
        """Record the connection to which the verdicts on each domain go, and the announcements on each connection.

        `arrived` is a connection on which a master has just subscribed to accounting.
        """
        recent = self._recent
        for domain, connection in routes.items():
            is_known = domain in self._routes and self._routes[domain] == connection
            if not is_known or (arrived is not None and connection == arrived):
                self._live_from[domain] = recent.position(domain)
        self._routes = dict(routes)
        connections: dict[bytes, list[Connection]] = {}
        for connection, announced in announcements.items():
            for prefix in announced:
                connections.setdefault(prefix, []).append(connection)
        for prefix in connections:
            if prefix not in self._masters and self._has_room():
                self._masters[prefix] = _AnnouncedMaster()
        for prefix, master in self._masters.items():
            self._set_connections(master, connections.get(prefix, []), now)

    def _set_connections(self, master: _AnnouncedMaster, connections: list[Connection], now: float) -> None:
        recent = self._recent
        owned = {domain for domain, connection in self._routes.items() if connection in connections}
        for domain in master.owned - owned:
            master.got[domain] = recent.position(domain)
        for domain in (name for name in self._routes if name in owned - master.owned):
            master.pieces.setdefault(domain, deque()).extend(self._pieces(domain, master.got.get(domain, 0), now))
        master.pieces = {name: pieces for name, pieces in master.pieces.items() if pieces and name in self._routes}
        master.owned, master.is_connected = owned, bool(connections)

    def _has_room(self) -> bool:
        """Return whether another master can be remembered; forget the oldest that is not connected."""
        if len(self._masters) >= _MAX_MASTERS:
            unconnected = [announced for announced, master in self._masters.items() if not master.is_connected]
            for announced in unconnected[:1]:
                del self._masters[announced]
        return len(self._masters) < _MAX_MASTERS

    def _pieces(self, domain: str, start: int, now: float) -> Iterator[list[Accounting]]:
        """Yield what a master gets that becomes the owner of a domain, and has got the verdicts up to `start`."""
        recent, live_from = self._recent, self._live_from[domain]
        verdicts = recent.between(domain, start, live_from, now=now)
        sent = recent.between(domain, max(start, live_from), recent.position(domain), now=now)
        verdicts += [accounting for accounting in sent if accounting.received <= now - IN_TRANSIT]
        for at in range(0, len(verdicts), MAX_RECORDS):
            yield verdicts[at : at + MAX_RECORDS]

    def batches(self, connection: Connection) -> int:
        """Return the number of batches that wait to be sent on a connection."""
        return sum(len(pieces) for _, name, pieces in self._waiting() if self._routes[name] == connection)

    def next_batch(self, held: Callable[[str, bytes], float]) -> tuple[Connection, list[bytes], int] | None:
        """Return the connection, the frames and the number of records of the next batch; None if there is none.

        `held` returns the end of the hold of an identifier, `ASAP` if it is not held. The batch stays the next one
        until `sent` is called.
        """
        for announced, name, pieces in self._waiting():
            connection = self._routes[name]
            assert connection is not None
            frames = [resent_topic(announced, name), encode_batch(_with_holds(pieces[0], held))]
            return connection, frames, len(pieces[0])
        return None

    def sent(self) -> None:
        """Remove the batch that `next_batch` returned."""
        for _, _, pieces in self._waiting():
            pieces.popleft()
            return

    def _waiting(self) -> Iterator[tuple[bytes, str, deque[list[Accounting]]]]:
        """Yield the announcements, the domains and the verdicts that can be sent now."""
        for announced, master in self._masters.items():
            for name, pieces in master.pieces.items():
                if pieces and name in master.owned:
                    yield announced, name, pieces


def _with_holds(verdicts: Iterable[Accounting], held: Callable[[str, bytes], float]) -> list[AccountingRecord]:
    """Return the records of these verdicts. The log info of the last one of each identifier is the end of its hold."""
    holds: dict[bytes, bytes] = {}
    for accounting in verdicts:
        identifier = accounting.identifier
        if identifier not in holds:
            release = held(accounting.domain, identifier)
            holds[identifier] = b"%d" % to_milliseconds(release) if ASAP < release < NEVER else b""
    records = [to_record(accounting) for accounting in verdicts]
    for at in range(len(records) - 1, -1, -1):
        status, identifier, received, delayed, _ = records[at]
        records[at] = (status, identifier, received, delayed, holds.pop(identifier, b""))
    return records
