"""Who a client is: its address, and what one client may do at a time. Never its token.

Of IPv6 the first 64 bits count, which is what one subscriber has.
"""

from functools import lru_cache
from ipaddress import ip_address
from typing import Final

from headgate.limit import Domain, Gatekeeper, Rule
from headgate.proxy.refusal import Refusal

__all__ = ["Clients", "client_of"]

_DOMAIN: Final = "clients"
_MOST_CLIENTS: Final = 100_000
"""Clients whose rate is remembered at a time: 60 MiB, where each has come as fast as 50 at once."""
_LOOKS: Final = 4
"""Clients looked at with each CONNECT, to forget those whom nothing holds any more: more leave than can come."""


@lru_cache(maxsize=4096)  # who asks once, asks again soon
def client_of(host: str) -> bytes:
    """Give the bytes that stand for the client at an address: 4 of IPv4, 8 of IPv6."""
    address = ip_address(host.partition("%")[0])
    if address.version == 6 and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.packed[:8]


class Clients:
    """At most `tunnels` of each client at a time, and no more CONNECTs than `rule` allows each; for one worker."""

    def __init__(self, *, tunnels: int, rule: Rule | None = None) -> None:
        self._most = tunnels
        self._open: dict[bytes, int] = {}
        self._gate = None if rule is None else _gate(rule)

    def admit(self, client: bytes, *, now: float) -> None:
        """Take a CONNECT of a client in; raises `Refusal` for one too many. `leave` is called once it is over.

        `now` is of a clock that is never set.
        """
        if self._gate is not None:
            self._gate.forget(now=now, most=_LOOKS)
            if self._gate.master is not None:
                self._gate.master.forget(now=now, most=_LOOKS)
            verdict = self._gate.admit(_DOMAIN, client, now=now)
            if verdict.release > now:
                raise Refusal("client_rate", retry_after=verdict.release - now)
        if self._open.get(client, 0) >= self._most:
            raise Refusal("client_tunnels")
        self._open[client] = self._open.get(client, 0) + 1

    def leave(self, client: bytes) -> None:
        """Take note that a CONNECT is over: refused, or its tunnel ended."""
        left = self._open[client] - 1
        if left:
            self._open[client] = left
        else:
            del self._open[client]


def _gate(rule: Rule) -> Gatekeeper:
    return Gatekeeper.embedded([Domain(_DOMAIN, (rule,))], max_delay=0.0, max_identifiers=_MOST_CLIENTS)
