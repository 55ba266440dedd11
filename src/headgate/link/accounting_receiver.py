"""Read the accounting socket of a master, split what it reads into messages, and count them.

This module uses no event loop and does not publish. Each message is one of the document's, or a batch, or is counted by
its kind of error and dropped. The frames kept of a message and the messages read per call are limited.

Asking ZeroMQ after each frame whether the message continues costs more than reading the frame (decision 0063). So the
fast path asks only twice for each message, and accepts a message by the values of its frames. Other frames are read on
to a known end of a message and split by `split_messages`: such a run is one message or several, of which at least one
is malformed.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence

import zmq

from headgate.errors import WireError
from headgate.limit.master import MAX_AGE, Master
from headgate.limit.messages import MAX_CONTROL_FRAME, STATUSES, decode_accounting, domain_of, topic
from headgate.link.announcement import NEW_MASTER
from headgate.link.batch import BATCH, STATUS_OF
from headgate.link.master_counters import MasterCounters, decode_counted
from headgate.link.replay_queue import ReplayQueue
from headgate.link.sliding_range import SlidingRange
from headgate.link.sockets import NOBLOCK, Socket
from headgate.release import ASAP, Status

_DELAYED = Status.DELAYED
_MAX_FRAMES = 64
_MAX_DIGITS = 15
_MAX_IDENTIFIER_SIZE = MAX_CONTROL_FRAME
_MAX_DISCARDED = 256
"""Frames discarded per call."""
_REST_OF_CALL = 1_000_000
"""Ends a call of `receive`: more than any limit of messages."""


class AccountingReceiver:
    """Reads accounting from `socket`, passes it to `master`, and passes the resulting holds to `publish`.

    `publish` takes a domain, an identifier of at most `MAX_CONTROL_FRAME` bytes and a release time. Re-sent batches are
    read if their topic has `announced`, the announcement of this master.
    """

    def __init__(
        self,
        socket: Socket,
        master: Master,
        publish: Callable[[str, bytes, float], None],
        counters: MasterCounters,
        *,
        announced: bytes = b"",
        accounted_until: float = ASAP,
    ) -> None:
        self._socket = socket
        self._publish = publish
        self._counters = counters
        self._resent = ReplayQueue(publish, counters, announced, accounted_until=accounted_until)
        self._discarding = False
        self.ages = SlidingRange()
        """Ages of accounting at its arrival, in seconds: of the last message of each call, and of each batch."""
        self._received = b""
        self._earliest = 0.0
        self.set_master(master)

    def set_master(self, master: Master) -> None:
        """Pass further accounting to another master."""
        self._master = master
        self._names = domains_by_frame(master.domains)

    def receive(self, limit: int, now: float) -> bool:
        """Read up to `limit` messages or records that arrive at `now`; return whether more may be waiting.

        Of the batches that were sent again, one is read per call.
        """
        self._resent.replay_next(self._master, now)
        return self._receive(limit, now) or self._resent.is_waiting

    def _receive(self, limit: int, now: float) -> bool:
        if self._discarding and not self._discard():
            return True
        recv, names, record_frames = self._socket.recv, self._names, self._record_frames
        instant = self._master.clock.read(now)
        self._earliest = now - MAX_AGE
        run: list[bytes] = []
        try:
            while limit > 0:
                limit -= 1
                run = []
                run.append(recv(NOBLOCK))
                name = names.get(run[0])
                if name is None:
                    limit -= self._process_run(run, now, more=self._has_more())
                    continue
                run.append(recv(NOBLOCK))
                run.append(recv(NOBLOCK))
                fourth = recv(NOBLOCK, copy=False)
                run.append(fourth.bytes)
                if not fourth.more or run[1] not in STATUSES or not run[3].isdigit():
                    limit -= self._process_run(run, now, more=fourth.more)
                    continue
                run.append(recv(NOBLOCK))
                sixth = recv(NOBLOCK, copy=False)
                if sixth.more or not record_frames(name, run, now, instant):
                    run.append(sixth.bytes)
                    limit -= self._process_run(run, now, whole=5, more=sixth.more)
        except zmq.Again:
            # ZeroMQ delivers whole messages: the frames read are one or more messages of fewer than six frames.
            if run:
                self._process_run(run, now, whole=5 if len(run) == 5 else 1, more=False)
            return False
        finally:
            if self._received:
                self.ages.add(now - int(self._received) / 1_000.0, now)
                self._received = b""
        return True

    def _record_frames(self, name: str, frames: Sequence[bytes], now: float, instant: float) -> bool:
        """Record the first five frames of a usual message; return False for an unusual one, which is not recorded."""
        _, word, identifier, received, delayed = frames
        status, master = STATUSES[word], self._master
        counted = delayed if status is _DELAYED else received
        if (
            not counted.isdigit()
            or len(counted) > _MAX_DIGITS
            or len(received) > _MAX_DIGITS
            or len(identifier) > _MAX_IDENTIFIER_SIZE
        ):
            return False
        self._counters.accounted += 1
        timestamp, behind = int(counted) / 1_000.0, master.clock.behind
        self._received = received
        if timestamp > now or timestamp < self._earliest or delayed:
            timestamp = master.timestamp(int(received) / 1_000.0, timestamp, now)
        release = master.record(name, status, identifier, timestamp + behind, instant)
        if release > instant:
            self._publish(name, identifier, release - behind)
        return True

    def _process_run(self, run: list[bytes], now: float, *, whole: int = 1, more: bool) -> int:
        """Read a run of frames to its end and process its messages; return the reduction of the limit of the call."""
        while more and len(run) < _MAX_FRAMES:
            run.append(self._socket.recv(NOBLOCK))
            more = self._has_more()
        records = sum(self._process_message(message, now) for message in split_messages(run, self._names, whole=whole))
        # An overlong message ends the call; the next calls discard its rest.
        return _REST_OF_CALL if more and not self._discard() else records

    def _process_message(self, message: Sequence[bytes], now: float) -> int:
        """Process a message, or count its error; return the number of records in it."""
        if len(message) > 1 and message[0].startswith(BATCH):
            self._counters.excess_frames += len(message) - 2
            return self._process_batch(domain_of(message[0][len(BATCH) :]), message[1], now)
        if len(message) > 1 and message[0].startswith(NEW_MASTER):
            self._counters.excess_frames += len(message) - 2
            self._resent.add(message[0], message[1])
            return 0
        if len(message) < 5:
            self._counters.too_short += 1
        elif message[1] not in STATUSES:
            self._counters.unknown_status += 1
        else:
            self._process_frames(message, now)
        return 0

    def _process_frames(self, message: Sequence[bytes], now: float) -> None:
        self._counters.excess_frames += max(0, len(message) - 6)
        try:
            accounting = decode_accounting(message)
        except WireError:
            self._counters.bad_timestamp += 1
            return
        self._counters.accounted += 1
        if len(accounting.identifier) > MAX_CONTROL_FRAME:
            self._counters.too_long += 1
            return
        control = self._master.account(accounting, now)
        if control is not None:
            self._publish(control.domain, control.identifier, control.release)

    def _process_batch(self, name: str, payload: bytes, now: float) -> int:
        counters, master = self._counters, self._master
        record, instant, behind = master.record, master.clock.read(now), master.clock.behind
        records = decode_counted(payload, counters)
        counters.accounted += len(records)
        if records:
            self.ages.add(now - records[-1][2] / 1_000.0, now)
        earliest, latest = now - MAX_AGE, now + master.max_delay
        for code, identifier, received, delayed, _ in records:
            timestamp = received / 1_000.0
            if len(identifier) > _MAX_IDENTIFIER_SIZE:
                counters.too_long += 1
                continue
            if code == 1:
                if not delayed:
                    counters.bad_timestamp += 1
                    continue
                until = delayed / 1_000.0
                if timestamp > now or timestamp < earliest or until < timestamp or until > latest:
                    timestamp = master.timestamp(timestamp, until, now)
                else:
                    timestamp = until
            elif timestamp > now or timestamp < earliest:
                timestamp = master.timestamp(timestamp, timestamp, now)
            release = record(name, STATUS_OF[code], identifier, timestamp + behind, instant)
            if release > instant:
                self._publish(name, identifier, release - behind)
        return len(records)

    def _has_more(self) -> bool:
        return bool(self._socket.getsockopt(zmq.RCVMORE))

    def _discard(self) -> bool:
        """Discard the rest of a message, at most `_MAX_DISCARDED` frames per call; return whether it ended."""
        for _ in range(_MAX_DISCARDED):
            self._discarding = self._socket.recv(NOBLOCK, copy=False).more
            self._counters.excess_frames += 1
            if not self._discarding:
                return True
        return False


def domains_by_frame(domains: Mapping[str, object]) -> dict[bytes, str]:
    """Return the domains by frame 0: with its NUL and, as original gatekeepers send it, without.

    A name that could be another frame of a message is left to the slow path.
    """
    names = {topic(name): name for name in domains}
    bare = {frame[:-1]: name for frame, name in names.items()}
    return names | {frame: name for frame, name in bare.items() if frame not in STATUSES and not frame.isdigit()}


def split_messages(run: Sequence[bytes], topics: Container[bytes], *, whole: int = 1) -> Iterator[Sequence[bytes]]:
    """Split a run of frames into messages; the first `whole` frames belong to one message.

    A message starts at the topic of a batch, and at a topic (known, or ending in NUL) that a status follows. So a
    message that is too short never takes a frame of the next message.
    """
    start = 0
    for at in range(whole, len(run) - 1):
        frame = run[at]
        is_topic = frame in topics or frame.endswith(b"\0")
        if frame.startswith((BATCH, NEW_MASTER)) or (run[at + 1] in STATUSES and is_topic):
            yield run[start:at]
            start = at
    yield run[start:]
