"""What a master reads from its accounting socket, and what becomes of each message.

This file knows nothing of event loops, and publishes nothing itself. Everything a stranger can send is either one of
the document's messages, or one of its batches, or counted by kind and dropped; at most so many frames are kept and so
many read a turn.
"""

from collections.abc import Callable, Mapping, Sequence

import zmq

from headgate.errors import WireError
from headgate.limit.master import Master
from headgate.limit.wire import MAX_CONTROL_FRAME, STATUSES, decode_accounting, domain_of, topic
from headgate.link.batch import BATCH, STATUS_OF, decode_batch
from headgate.link.counters import MasterCounters
from headgate.link.frames import messages_in
from headgate.link.sockets import NOBLOCK, Socket
from headgate.release import Status

__all__ = ["Intake", "domains_by_frame"]

_DELAYED = Status.DELAYED
_LONGEST_RUN = 64
_MOST_DIGITS = 15
_LONGEST = MAX_CONTROL_FRAME
_DISCARDED_A_TURN = 256
_WHOLE_TURN = 1_000_000


class Intake:
    """Reads accounting from `socket` and gives it to `master`, whose answers go to `publish`.

    `publish` takes a domain, an identifier of at most `MAX_CONTROL_FRAME` bytes and a release time.
    """

    def __init__(
        self, socket: Socket, master: Master, publish: Callable[[str, bytes, float], None], counters: MasterCounters
    ) -> None:
        self._socket = socket
        self._publish = publish
        self._counters = counters
        self._discarding = False
        self.change(master)

    def change(self, master: Master) -> None:
        """Give what comes from now on to another master."""
        self._master = master
        self._names = domains_by_frame(master.domains)

    def receive(self, most: int, now: float) -> bool:
        """Take up to `most` messages or records, which arrive at `now`; say whether more may wait."""
        if self._discarding and not self._discard():
            return True
        recv, names, statuses, master = self._socket.recv, self._names, STATUSES, self._master
        weigh, instant, behind = master.weigh, master.clock.read(now), master.clock.behind
        accounted = at = 0
        domain = word = identifier = received = delayed = b""
        try:
            while most > 0:
                most -= 1
                at = 0
                domain = recv(NOBLOCK)
                name = names.get(domain)
                if name is None:
                    most -= self._take_run([domain], now, more=self._more())
                    continue
                at = 1
                word = recv(NOBLOCK)
                at = 2
                identifier = recv(NOBLOCK)
                at = 3
                fourth = recv(NOBLOCK, copy=False)
                status, received = statuses.get(word), fourth.bytes
                if status is None or not fourth.more or not received.isdigit():
                    most -= self._take_run([domain, word, identifier, received], now, more=fourth.more)
                    continue
                delayed = recv(NOBLOCK)
                at = 5
                sixth = recv(NOBLOCK, copy=False)
                counted = delayed if status is _DELAYED else received
                digits = max(len(received), len(counted))
                if sixth.more or not counted.isdigit() or digits > _MOST_DIGITS or len(identifier) > _LONGEST:
                    run = [domain, word, identifier, received, delayed, sixth.bytes]
                    most -= self._take_run(run, now, whole=5, more=sixth.more)
                    continue
                accounted += 1
                moment = int(counted) / 1_000.0
                if moment > now:
                    moment = master.moment(int(received) / 1_000.0, moment, now)
                release = weigh(name, status, identifier, moment + behind, instant)
                if release > instant:
                    self._publish(name, identifier, release - behind)
        except zmq.Again:
            # Messages arrive whole: what was read of the next is one or more that end before their sixth frame.
            if at:
                run = [domain, word, identifier, received, delayed][:at]
                self._take_run(run, now, whole=5 if at == 5 else 1, more=False)
            return False
        finally:
            self._counters.accounted += accounted
        return True

    def _take_run(self, run: list[bytes], now: float, *, whole: int = 1, more: bool) -> int:
        """Read a run of frames on to its end, and take the messages in it; give what that takes off a turn's bound."""
        while more and len(run) < _LONGEST_RUN:
            run.append(self._socket.recv(NOBLOCK))
            more = self._more()
        records = sum(self._take(message, now) for message in messages_in(run, self._names, whole=whole))
        # A turn ends where a message goes on and on: the rest of it is read past in the next ones.
        return _WHOLE_TURN if more and not self._discard() else records

    def _take(self, message: Sequence[bytes], now: float) -> int:
        """Take one message of any shape, and count what is wrong with it by kind; give how many records it brought."""
        if len(message) > 1 and message[0].startswith(BATCH):
            self._counters.excess_frames += len(message) - 2
            return self._take_batch(domain_of(message[0][len(BATCH) :]), message[1], now)
        if len(message) < 5:
            self._counters.too_short += 1
        elif message[1] not in STATUSES:
            self._counters.unknown_status += 1
        else:
            self._take_frames(message, now)
        return 0

    def _take_frames(self, message: Sequence[bytes], now: float) -> None:
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

    def _take_batch(self, name: str, payload: bytes, now: float) -> int:
        counters, master = self._counters, self._master
        weigh, instant, behind = master.weigh, master.clock.read(now), master.clock.behind
        try:
            records, bad = decode_batch(payload)
        except WireError:
            counters.bad_batch += 1
            return 0
        counters.batches += 1
        counters.bad_record += bad
        counters.accounted += len(records)
        for word, identifier, received, delayed, _ in records:
            moment = (delayed if word == 1 else received) / 1_000.0
            if len(identifier) > _LONGEST:
                counters.too_long += 1
            elif word == 1 and not delayed:
                counters.bad_timestamp += 1
            else:
                if moment > now:
                    moment = master.moment(received / 1_000.0, moment, now)
                release = weigh(name, STATUS_OF[word], identifier, moment + behind, instant)
                if release > instant:
                    self._publish(name, identifier, release - behind)
        return len(records)

    def _more(self) -> bool:
        return bool(self._socket.getsockopt(zmq.RCVMORE))

    def _discard(self) -> bool:
        """Read past the rest of a message without keeping it, a bounded piece a turn; say whether it ended."""
        for _ in range(_DISCARDED_A_TURN):
            self._discarding = self._socket.recv(NOBLOCK, copy=False).more
            self._counters.excess_frames += 1
            if not self._discarding:
                return True
        return False


def domains_by_frame(domains: Mapping[str, object]) -> dict[bytes, str]:
    """Give domains by frame 0: with its NUL and, as original gatekeepers send it, without.

    A bare name that looks like another frame of a message is left to the slow path, which takes its time.
    """
    names = {topic(name): name for name in domains}
    bare = {frame[:-1]: name for frame, name in names.items()}
    return names | {frame: name for frame, name in bare.items() if frame not in STATUSES and not frame.isdigit()}
