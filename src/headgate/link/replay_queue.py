"""Queue of the accounting that gatekeepers send again to a master which has started without a history.

This module opens no socket. Such batches wait here, and the master reads them one by one between the messages that
gatekeepers send as they decide: those determine whether controls are in time. The batches of a hundred gatekeepers are
the work of several seconds.
"""

import math
from collections import deque
from collections.abc import Callable

from headgate.limit.master import Master
from headgate.limit.messages import MAX_CONTROL_FRAME
from headgate.link.announcement import split_resent_topic
from headgate.link.batch import STATUS_OF, AccountingRecord
from headgate.link.master_counters import MasterCounters, decode_counted
from headgate.release import ASAP

MAX_WAITING_SIZE = 64 * 1024 * 1024
"""Bytes of batches that may wait: two million records with addresses as identifiers."""


_MAX_DIGITS = 15


class ReplayQueue:
    """Queues batches whose topic has `announced`, the announcement of this master; ignores others.

    `publish` takes a domain, an identifier and a release time. Requests received until `accounted_until` are ignored.
    """

    def __init__(
        self,
        publish: Callable[[str, bytes, float], None],
        counters: MasterCounters,
        announced: bytes,
        *,
        accounted_until: float = ASAP,
        max_size: int = MAX_WAITING_SIZE,
    ) -> None:
        self.announced = announced
        """The announcement; empty if there is none."""
        self._publish = publish
        self._accounted_until = accounted_until
        self._counters = counters
        self._max_size = max_size
        self._size = 0
        self._waiting: deque[tuple[str, bytes]] = deque()

    @property
    def is_waiting(self) -> bool:
        """Whether a batch waits."""
        return bool(self._waiting)

    def add(self, frame: bytes, payload: bytes) -> None:
        """Add a batch by its two frames; drop it if it is for another master, or if too many wait."""
        announced, name = split_resent_topic(frame)
        if not announced or announced != self.announced:
            return
        if self._size + len(payload) > self._max_size:
            self._counters.resent_dropped += 1
            return
        self._size += len(payload)
        self._waiting.append((name, payload))

    def replay_next(self, master: Master, now: float) -> None:
        """Pass the records of the batch that has waited longest to `master`."""
        if not self._waiting:
            return
        name, payload = self._waiting.popleft()
        self._size -= len(payload)
        counters = self._counters
        records = decode_counted(payload, counters)
        counters.resent_records += len(records)
        for record in records:
            code, identifier, _, delayed, _ = record
            if len(identifier) > MAX_CONTROL_FRAME:
                counters.too_long += 1
            elif code == 1 and not delayed:
                counters.bad_timestamp += 1
            else:
                self._replay(master, name, record, now)

    def _replay(self, master: Master, name: str, record: AccountingRecord, now: float) -> None:
        code, identifier, received_ms, delayed_ms, held = record
        instant, behind = master.clock.read(now), master.clock.behind
        received, release = received_ms / 1_000.0, ASAP
        if received > self._accounted_until:
            counted = delayed_ms / 1_000.0 if code == 1 else received
            timestamp = master.timestamp(received, counted, now, max_age=math.inf) + behind
            release = master.replay(
                name,
                STATUS_OF[code],
                identifier,
                received=min(received, now) + behind,
                timestamp=timestamp,
                now=instant,
            )
        if held.isdigit() and len(held) <= _MAX_DIGITS:
            release = max(release, master.replay_hold(name, identifier, int(held) / 1_000.0 + behind, instant))
        if release > instant:
            self._publish(name, identifier, release - behind)
