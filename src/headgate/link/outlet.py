"""What a master publishes on its control socket, and who asks for it.

This file knows nothing of event loops. The socket is an XPUB, told of every subscription: "gatekeeper subscribes to
all domains for which it will receive traffic". A new one is answered with the holds in force, since a gatekeeper that
(re)connects knows none of them; however many subscribe however often, a domain's are sent again at most once in
`RESEND_EVERY` seconds, a piece a turn.
"""

import time
from collections.abc import Callable, Iterator

import zmq

from headgate.limit.accounting import DelayUntil
from headgate.limit.master import Master
from headgate.limit.wire import to_milliseconds, topic
from headgate.link.counters import MasterCounters
from headgate.link.sockets import NOBLOCK, SNDMORE, Socket
from headgate.release import NEVER

__all__ = ["RESEND_EVERY", "Outlet"]

RESEND_EVERY = 0.1
"""Seconds from one re-sending of a domain's holds to the next."""

_DELAY_UNTIL = b"DELAY_UNTIL"
_PIECE = 1_000
_PAUSE = 0.01


class Outlet:
    """Publishes controls on `socket` and, when somebody subscribes, the holds in force that `master` has."""

    def __init__(self, socket: Socket, master: Master, counters: MasterCounters, clock: Callable[[], float]) -> None:
        self._socket = socket
        self._counters = counters
        self._clock = clock
        self._due: dict[str, float] = {}
        self._resending: dict[str, Iterator[tuple[list[DelayUntil], bool]]] = {}
        self._resent_at: dict[str, float] = {}
        self._paused_until = 0.0
        self.change(master)
        self._due.clear()  # nobody is here yet

    def change(self, master: Master) -> None:
        """Answer for another master from now on, beginning with the holds it has."""
        self._master = master
        self._topics = {name: topic(name) for name in master.domains}
        self._resending.clear()
        self._due = dict.fromkeys(self._topics, time.monotonic())

    def publish(self, name: str, identifier: bytes, release: float) -> None:
        """Tell every gatekeeper of `name` to hold `identifier`; both must fit their frames."""
        send = self._socket.send
        send(self._topics[name], SNDMORE)
        send(_DELAY_UNTIL, SNDMORE)
        send(identifier, SNDMORE)
        send(b"%d" % to_milliseconds(release), NOBLOCK)
        self._counters.controls += 1

    def hear(self, most: int) -> bool:
        """Take up to `most` subscriptions; say whether more may wait."""
        try:
            for _ in range(most):
                message = self._socket.recv(NOBLOCK)
                if message[:1] == b"\1":
                    self._counters.subscriptions += 1
                    self._on_subscription(message[1:])
        except zmq.Again:
            return False
        return True

    def _on_subscription(self, prefix: bytes) -> None:
        """Note which domains' holds a subscription asks for: a topic, or what topics begin with.

        An original gatekeeper subscribes to the domain without its NUL, which other domains may begin with too.
        """
        for name, frame in self._topics.items():
            if frame.startswith(prefix):
                self._due.setdefault(name, self._resent_at.get(name, 0.0) + RESEND_EVERY)

    def resend(self, moment: float) -> None:
        """Publish the holds in force again for those who are new, a piece at a time; `moment` is monotonic seconds."""
        for name in [name for name, due in self._due.items() if due <= moment and name not in self._resending]:
            del self._due[name]
            self._resent_at[name] = moment
            self._resending[name] = self._master.hold_pieces(name, now=self._clock(), most=_PIECE)
        if moment < self._paused_until:
            return
        for name, pieces in list(self._resending.items()):
            piece, more = next(pieces, ([], False))
            for control in piece:
                self.publish(name, control.identifier, control.release)
            self._counters.resent += len(piece)
            if not more:
                del self._resending[name]
            if piece:
                # A subscriber's queue has to empty meanwhile.
                self._paused_until = moment + _PAUSE

    def due(self) -> float:
        """Give the monotonic seconds at which `resend` has something to do; infinity when it has not."""
        waiting = [due for name, due in self._due.items() if name not in self._resending]
        return min([*waiting, self._paused_until if self._resending else NEVER])
