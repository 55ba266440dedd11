"""Publish controls on the control socket of a master.

This module uses no event loop. The socket is an XPUB, which receives every subscription: "gatekeeper subscribes to
all domains for which it will receive traffic". A new subscription is answered with the holds in force, because a
gatekeeper that (re)connects has none of them. The holds of a domain are sent again at most once per `RESEND_EVERY`
seconds, whatever the number of subscriptions, and in parts.
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

RESEND_EVERY = 0.1
"""Seconds between two transmissions of all holds of a domain."""

_DELAY_UNTIL = b"DELAY_UNTIL"
_CHUNK_SIZE = 1_000
"""Holds sent at once."""
_PAUSE = 0.01
"""Seconds between two chunks, in which a subscriber's queue drains."""


class ControlPublisher:
    """Publishes controls on `socket`, and the holds of `master` for each new subscription."""

    def __init__(self, socket: Socket, master: Master, counters: MasterCounters, clock: Callable[[], float]) -> None:
        self._socket = socket
        self._counters = counters
        self._clock = clock
        self._due: dict[str, float] = {}
        self._resending: dict[str, Iterator[tuple[list[DelayUntil], bool]]] = {}
        self._resent_at: dict[str, float] = {}
        self._paused_until = 0.0
        self.set_master(master)
        self._due.clear()  # no subscriber yet

    def set_master(self, master: Master) -> None:
        """Publish for another master, first the holds that it has."""
        self._master = master
        self._topics = {name: topic(name) for name in master.domains}
        self._resending.clear()
        self._due = dict.fromkeys(self._topics, time.monotonic())

    def publish(self, name: str, identifier: bytes, release: float) -> None:
        """Publish that every gatekeeper of the domain `name` holds `identifier`; both must fit their frames."""
        send = self._socket.send
        send(self._topics[name], SNDMORE)
        send(_DELAY_UNTIL, SNDMORE)
        send(identifier, SNDMORE)
        send(b"%d" % to_milliseconds(release), NOBLOCK)
        self._counters.controls += 1

    def receive_subscriptions(self, limit: int) -> bool:
        """Receive up to `limit` subscriptions; return whether more may be waiting."""
        try:
            for _ in range(limit):
                message = self._socket.recv(NOBLOCK)
                if message[:1] == b"\1":
                    self._counters.subscriptions += 1
                    self._on_subscription(message[1:])
        except zmq.Again:
            return False
        return True

    def _on_subscription(self, prefix: bytes) -> None:
        """Schedule the holds of the domains that a subscription matches: a topic, or a prefix of topics.

        An original gatekeeper subscribes to the domain without its NUL, which can be a prefix of other domains.
        """
        for name, frame in self._topics.items():
            if frame.startswith(prefix):
                self._due.setdefault(name, self._resent_at.get(name, 0.0) + RESEND_EVERY)

    def resend(self, moment: float) -> None:
        """Publish the next chunk of the scheduled holds; `moment` is monotonic seconds."""
        for name in [name for name, due in self._due.items() if due <= moment and name not in self._resending]:
            del self._due[name]
            self._resent_at[name] = moment
            self._resending[name] = self._master.hold_batches(name, now=self._clock(), limit=_CHUNK_SIZE)
        if moment < self._paused_until:
            return
        for name, chunks in list(self._resending.items()):
            chunk, more = next(chunks, ([], False))
            for control in chunk:
                self.publish(name, control.identifier, control.release)
            self._counters.resent += len(chunk)
            if not more:
                del self._resending[name]
            if chunk:
                self._paused_until = moment + _PAUSE

    def due(self) -> float:
        """Return the monotonic seconds at which `resend` has something to send; infinity for never."""
        waiting = [due for name, due in self._due.items() if name not in self._resending]
        return min([*waiting, self._paused_until if self._resending else NEVER])
