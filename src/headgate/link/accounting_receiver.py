"""Read the accounting socket of a master: each message is one of the document's or a batch, or is counted as malformed.

This module uses no event loop and does not publish.
"""

from collections.abc import Callable

import msgspec
import zmq

from headgate.errors import WireError
from headgate.limit.master import MAX_LAG, Master
from headgate.limit.messages import MAX_CONTROL_FRAME, decode_accounting, domain_of
from headgate.link.batch import BATCH, STATUS_OF, decode_batch, record_count


class MasterCounters(msgspec.Struct):
    """Counters of a master since its start."""

    accounted: int = 0
    """Accounting messages and records read, including those for unknown domains."""
    batches: int = 0
    """Batches read."""
    dropped: dict[str, int] = msgspec.field(default_factory=lambda: {"malformed": 0, "too_long": 0, "not_permitted": 0})
    """Messages, batches and records dropped: malformed; the identifier is too long for a control message; or the
    list of allowed keys does not list the domain for the key of the sender."""
    controls: int = 0
    """Controls published."""
    resent: int = 0
    """Controls published again for a new subscription."""
    subscriptions: int = 0
    """Subscriptions received."""
    other_lists: int = 0
    """Connections of peers that list other masters than a peer that was connected: a domain may have two masters."""
    refused_keys: int = 0
    """Connections refused: the key of the peer is not allowed."""
    failed_handshakes: int = 0
    """Other connections whose handshake failed: without CURVE, for another server key, or malformed."""


class AccountingReceiver:
    """Passes the accounting that `receive` returns to `master`, and the resulting holds to `publish`.

    `receive` is `BoundPair.receive`. `publish` takes a domain, an identifier of at most `MAX_CONTROL_FRAME` bytes and
    a release time. `on_wrong_clock` takes the first frame of a message whose timestamps are wrong, and how many of them
    are ahead of this machine's clock, and late.
    """

    def __init__(
        self,
        receive: Callable[[], tuple[list[bytes], bool, zmq.Frame]],
        master: Master,
        publish: Callable[[str, bytes, float], None],
        counters: MasterCounters,
        on_wrong_clock: Callable[[zmq.Frame, int, int], None],
    ) -> None:
        self._receive = receive
        self._publish = publish
        self._counters = counters
        self._on_wrong_clock = on_wrong_clock
        self.master = master
        """The master that further accounting is passed to."""

    def receive(self, limit: int, now: float) -> bool:
        """Read up to `limit` messages or records that arrive at `now`; return whether more may be waiting."""
        receive, master = self._receive, self.master
        try:
            while limit > 0:
                frames, is_permitted, first = receive()
                ahead, late = master.ahead, master.late
                limit -= self._process(frames, now, is_permitted=is_permitted)
                if master.ahead > ahead or master.late > late:
                    self._on_wrong_clock(first, master.ahead - ahead, master.late - late)
        except zmq.Again:
            return False
        return True

    def _process(self, frames: list[bytes], now: float, *, is_permitted: bool) -> int:
        """Process a message, or count why it is dropped; return the number of records in it, at least 1."""
        first = frames[0]
        try:
            if not is_permitted:
                records = record_count(frames)
                self._counters.dropped["not_permitted"] += records
                return records
            if first.startswith(BATCH):
                return self._process_batch(domain_of(first[len(BATCH) :]), frames[1] if len(frames) > 1 else b"", now)
            accounting = decode_accounting(frames)
        except WireError:
            self._counters.dropped["malformed"] += 1
            return 1
        self._counters.accounted += 1
        if len(accounting.identifier) > MAX_CONTROL_FRAME:
            self._counters.dropped["too_long"] += 1
        else:
            control = self.master.account(accounting, now)
            if control is not None:
                self._publish(control.domain, control.identifier, control.release)
        return 1

    def _process_batch(self, name: str, payload: bytes, now: float) -> int:
        counters, master = self._counters, self.master
        record, instant, behind = master.record, master.clock.read(now), master.clock.behind
        records = decode_batch(payload)
        counters.batches += 1
        counters.accounted += len(records)
        earliest, latest = now - MAX_LAG, now + master.max_delay
        for code, identifier, received, delayed, _ in records:
            timestamp = until = received / 1_000.0
            if len(identifier) > MAX_CONTROL_FRAME:
                counters.dropped["too_long"] += 1
                continue
            if code == 1:
                if not delayed:
                    counters.dropped["malformed"] += 1
                    continue
                until = delayed / 1_000.0
            if timestamp > now or timestamp < earliest or until < timestamp or until > latest:
                until = master.timestamp(timestamp, until, now)
            release = record(name, STATUS_OF[code], identifier, until + behind, instant)
            if release > instant:
                self._publish(name, identifier, release - behind)
        return len(records) or 1
