"""What a gatekeeper sends again, to which master, and when.

This module knows neither sockets nor clocks. A master that starts without a history announces itself by a subscription.
It gets each verdict at most once: those accounted for before its connection are sent again, later ones are sent as they
are made. If its connection ends and it connects again, it gets those made meanwhile.

One connection can lead to several masters, through a router. Then verdicts were sent there before the announcement
arrived, and the last of them may have reached the new master. So those of the last `IN_TRANSIT` seconds are left out: a
lost record admits a request, a repeated one could hold a client wrongly.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from headgate.limit.messages import Accounting
from headgate.link.announcement import resent_topic
from headgate.link.batch import MAX_RECORDS, encode_batch, to_record
from headgate.link.recent_accounting import Positions, RecentAccounting

IN_TRANSIT: Final = 0.1
"""Seconds in which a verdict reaches a master through a router."""

_MAX_MASTERS: Final = 16
"""Announcements that are remembered; later ones replace those that no connection has."""


class _AnnouncedMaster:
    """A master that has announced itself, and what it still has to get."""

    __slots__ = ("connections", "left_at", "pieces")

    def __init__(self) -> None:
        self.connections: list[str] = []
        """The connections on which it is announced now."""
        self.left_at: Positions = {}
        """The verdicts that it had got when its last connection ended."""
        self.pieces: deque[tuple[str, list[Accounting]]] = deque()
        """Domains with at most `MAX_RECORDS` verdicts each, the oldest first."""


class Resender:
    """Decides which verdicts of `recent` are sent again. Connections have names."""

    def __init__(self, recent: RecentAccounting) -> None:
        self._recent = recent
        self._masters: dict[bytes, _AnnouncedMaster] = {}
        self._live_from: dict[str, Positions] = {}

    def connected(self, connection: str) -> None:
        """Record that a peer has subscribed to accounting: verdicts made from now on are sent to it."""
        self._live_from[connection] = self._recent.positions()

    def set_announcements(self, connection: str, announcements: Iterable[bytes], *, now: float) -> None:
        """Record the announcements in force on a connection."""
        in_force = set(announcements)
        for announced, master in self._masters.items():
            if connection in master.connections and announced not in in_force:
                master.connections.remove(connection)
                if not master.connections:
                    master.left_at = self._recent.positions()
        for announced in in_force:
            self._announce(announced, connection, now)

    def _announce(self, announced: bytes, connection: str, now: float) -> None:
        master = self._masters.get(announced)
        if master is None:
            if not self._has_room():
                return
            master = self._masters[announced] = _AnnouncedMaster()
        if connection in master.connections:
            return
        if not master.connections:
            master.pieces.extend(self._pieces(master.left_at, connection, now))
        master.connections.append(connection)

    def _has_room(self) -> bool:
        """Return whether another master can be remembered; forget the oldest that is not connected."""
        if len(self._masters) >= _MAX_MASTERS:
            unconnected = [announced for announced, master in self._masters.items() if not master.connections]
            for announced in unconnected[:1]:
                del self._masters[announced]
        return len(self._masters) < _MAX_MASTERS

    def _pieces(self, start: Positions, connection: str, now: float) -> Iterator[tuple[str, list[Accounting]]]:
        """Yield what a master gets that is announced now, and has got the verdicts up to `start`."""
        recent, end = self._recent, self._recent.positions()
        live_from = self._live_from.get(connection, end)
        unsent = recent.between(start, live_from, now=now)
        sent = recent.between({name: max(at, start.get(name, 0)) for name, at in live_from.items()}, end, now=now)
        for name, verdicts in unsent.items():
            verdicts += [accounting for accounting in sent[name] if accounting.received <= now - IN_TRANSIT]
            for at in range(0, len(verdicts), MAX_RECORDS):
                yield name, verdicts[at : at + MAX_RECORDS]

    def batches(self, connection: str) -> int:
        """Return the number of batches that wait to be sent on a connection."""
        return sum(len(master.pieces) for master in self._masters.values() if connection in master.connections[:1])

    def next_batch(self) -> tuple[str, list[bytes], int] | None:
        """Return the connection, the frames and the number of records of the next batch; None if there is none.

        It stays the next one until `sent` is called.
        """
        for announced, master in self._masters.items():
            if master.connections and master.pieces:
                name, verdicts = master.pieces[0]
                frames = [resent_topic(announced, name), encode_batch(map(to_record, verdicts))]
                return master.connections[0], frames, len(verdicts)
        return None

    def sent(self) -> None:
        """Remove the batch that `next_batch` returned."""
        for master in self._masters.values():
            if master.connections and master.pieces:
                master.pieces.popleft()
                return
