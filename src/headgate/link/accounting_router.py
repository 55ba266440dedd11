"""What a router does with accounting: it checks each message, and passes it to the master that owns it.

This module receives nothing. A batch goes to the owner of its domain unopened. The document's messages become records,
and the records that arrive together go to their owner in one batch, or in six frames each to an original master. What
gatekeepers re-send to a master without a history goes to that master only, as far as it is the owner. Malformed
messages are counted by their kind of error and dropped, so masters do not receive them.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from headgate.errors import WireError
from headgate.limit.messages import MAX_CONTROL_FRAME, decode_accounting, topic
from headgate.link.announcement import NEW_MASTER, split_resent_topic
from headgate.link.batch import (
    BATCH,
    MAX_LOGINFO_SIZE,
    MAX_RECORDS,
    AccountingRecord,
    batch_size,
    decode_batch,
    encode_batch,
    record_frames,
    to_record,
)
from headgate.link.routing_table import DomainRoute, RoutedMaster, RoutingTable

_CODES: dict[bytes, Literal[0, 1, 2]] = {b"ACCEPTED": 0, b"DELAYED": 1, b"REJECTED": 2}
_DELAYED = 1
_MAX_DIGITS = 15
_FRAMES = 6


class RouterCounters(msgspec.Struct):
    """Counters of a router since its start."""

    accounted: int = 0
    """Accounting messages and records received."""
    batches: int = 0
    """Batches received."""
    unheard: int = 0
    """Messages and records dropped because no master reads their domain."""
    bad_domain: int = 0
    """Messages whose first frame is not the name of a domain; dropped."""
    too_short: int = 0
    """Messages of fewer than five frames; dropped."""
    unknown_status: int = 0
    """Messages with an unknown status; dropped."""
    bad_timestamp: int = 0
    """Messages with an invalid timestamp; dropped."""
    bad_record: int = 0
    """Malformed records of batches that were opened; dropped."""
    bad_batch: int = 0
    """Malformed batches; dropped."""
    too_long: int = 0
    """Messages whose identifier is too long for a control message; dropped."""
    excess_frames: int = 0
    """Frames that no accounting message has; ignored."""
    malformed: int = 0
    """Malformed control messages; dropped."""
    subscriptions: int = 0
    """Subscriptions of gatekeepers received."""
    resent: int = 0
    """Records passed on that gatekeepers re-sent to a master without a history."""
    unowned: int = 0
    """Re-sent records dropped because that master does not own them."""
    refused_keys: int = 0
    """Connections refused because the key of the gatekeeper is not allowed."""
    failed_handshakes: int = 0
    """Connections to gatekeepers and masters whose handshake failed for another reason."""


class AccountingRouter:
    """Passes accounting on by the routes of `table`, and counts into `counters`."""

    def __init__(self, table: RoutingTable, counters: RouterCounters) -> None:
        self._table = table
        self._counters = counters
        self._waiting: list[DomainRoute] = []
        self.announced: Mapping[bytes, RoutedMaster] = {}
        """The masters without a history, by their announcements."""

    def handle(self, frames: Sequence[bytes]) -> int:
        """Pass on a message of at least one frame; return the number of its records. `flush` completes it."""
        try:
            if frames[0].startswith(BATCH):
                return self._handle_batch(frames)
            if frames[0].startswith(NEW_MASTER):
                return self._handle_resent(frames)
            self._handle_frames(frames)
        except WireError:
            self._counters.bad_domain += 1
        return 1

    def flush(self) -> None:
        """Send the records that wait."""
        for route in self._waiting:
            records, route.records = route.records, []
            for start in range(0, len(records), MAX_RECORDS):
                _send_records(route, records[start : start + MAX_RECORDS])
        self._waiting.clear()

    def _handle_frames(self, frames: Sequence[bytes]) -> None:
        counters = self._counters
        if len(frames) < 5:
            counters.too_short += 1
            return
        counters.excess_frames += max(0, len(frames) - _FRAMES)
        code = _CODES.get(frames[1])
        if code is None:
            counters.unknown_status += 1
            return
        record = _read_record(code, frames)
        if record is None:
            counters.bad_timestamp += 1
            return
        first = frames[0]
        # An original gatekeeper sends the domain without its NUL.
        self._add(first if first.endswith(b"\0") else first + b"\0", record)

    def _handle_batch(self, frames: Sequence[bytes]) -> int:
        counters, payload = self._counters, frames[1] if len(frames) > 1 else b""
        counters.excess_frames += max(0, len(frames) - 2)
        try:
            size = batch_size(payload)
        except WireError:
            counters.bad_batch += 1
            return 1
        domain_topic = frames[0][len(BATCH) :]
        route = self._table.route(domain_topic)
        if self._table.shard == "domain" and (route is None or route.encoding == "batch"):
            counters.batches += 1
            counters.accounted += size
            if route is None:
                counters.unheard += size
            else:
                _send(route.master, [route.batch_topic, payload], size)
        else:
            self._open_batch(domain_topic, payload)
        return size

    def _open_batch(self, domain_topic: bytes, payload: bytes) -> None:
        """Pass on the records of a batch one by one."""
        counters = self._counters
        try:
            records, bad = decode_batch(payload)
        except WireError:
            counters.bad_batch += 1
            return
        counters.batches += 1
        counters.bad_record += bad
        for record in records:
            self._add(domain_topic, record)

    def _handle_resent(self, frames: Sequence[bytes]) -> int:
        """Pass a re-sent batch to the master that it is for, without the records that this master does not own."""
        announced, domain = split_resent_topic(frames[0])
        if not announced:
            raise WireError(f"invalid topic {frames[0][:40]!r}; expected an announcement and the name of a domain")
        domain_topic, master, counters = topic(domain), self.announced.get(announced), self._counters
        try:
            records, bad = decode_batch(frames[1] if len(frames) > 1 else b"")
        except WireError:
            counters.bad_batch += 1
            return 1
        counters.bad_record += bad
        owned = [one for one in records if master is not None and self._owner(domain_topic, one) is master]
        counters.unowned += len(records) - len(owned)
        if owned and master is not None:
            _send(master, [announced + domain_topic, encode_batch(map(_cut, owned))], len(owned))
            counters.resent += len(owned)
        return max(1, len(records))

    def _owner(self, domain_topic: bytes, record: AccountingRecord) -> RoutedMaster | None:
        """Return the owner of a record; None if it has none. Raises `WireError` for an invalid topic."""
        if len(record[1]) > MAX_CONTROL_FRAME:
            return None
        route = self._table.route(domain_topic, record[1])
        return None if route is None else route.master

    def _add(self, domain_topic: bytes, record: AccountingRecord) -> None:
        """Add a record to those that wait for its owner. Raises `WireError` for an invalid topic."""
        if len(record[1]) > MAX_CONTROL_FRAME:
            self._counters.too_long += 1
            return
        route = self._table.route(domain_topic, record[1])
        self._counters.accounted += 1
        if route is None:
            self._counters.unheard += 1
            return
        if not route.records:
            self._waiting.append(route)
        route.records.append(record)


def _read_record(code: Literal[0, 1, 2], frames: Sequence[bytes]) -> AccountingRecord | None:
    """Return the record of an accounting message with that status; None if it has an invalid timestamp."""
    received, delayed = frames[3], frames[4] if code == _DELAYED else b"0"
    if received.isdigit() and delayed.isdigit() and len(received) <= _MAX_DIGITS >= len(delayed):
        return (code, frames[2], int(received), int(delayed), frames[5] if len(frames) > 5 else b"")
    try:
        record = to_record(decode_accounting(frames))
    except WireError:
        return None
    # A number that no array of msgpack can store has more digits than any timestamp.
    return record if max(map(abs, record[2:4])) < 10**_MAX_DIGITS else None


def _send_records(route: DomainRoute, records: list[AccountingRecord]) -> None:
    """Send at most `MAX_RECORDS` records as the master reads them."""
    if route.encoding == "batch":
        _send(route.master, [route.batch_topic, encode_batch(map(_cut, records))], len(records))
    else:
        for record in records:
            _send(route.master, record_frames(route.topic, record), 1)


def _cut(record: AccountingRecord) -> AccountingRecord:
    """Return the record with its log info cut: a batch must be smaller than the longest frame that masters accept."""
    return record if len(record[4]) <= MAX_LOGINFO_SIZE else (*record[:4], record[4][:MAX_LOGINFO_SIZE])


def _send(master: RoutedMaster, frames: Sequence[bytes], records: int) -> None:
    """Send a message, or count its records as dropped if the queue of the master is full."""
    if master.connection.send(frames):
        master.traffic.sent += records
    else:
        master.traffic.dropped += records
