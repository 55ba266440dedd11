"""Clients, identified by address, and the limits of one client. A client is never identified by its token.

Of IPv6 addresses the first 64 bits count, which one subscriber has.
"""

from functools import lru_cache
from ipaddress import ip_address
from typing import Final

from headgate.limit import Domain, Gatekeeper, Rule
from headgate.proxy.refusal import Refusal

_DOMAIN: Final = "clients"
_MAX_CLIENTS: Final = 100_000
"""Clients whose rate is stored at a time: 60 MiB, if each has sent a burst of 50."""
_MAX_FORGOTTEN: Final = 4
"""Clients checked per CONNECT for expiry; at least 2, so that the table shrinks faster than it grows."""


@lru_cache(maxsize=4096)  # a client usually sends several requests
def client_of(host: str) -> bytes:
    """Return the identifier of the client at an address: 4 bytes of IPv4, 8 of IPv6."""
    address = ip_address(host.partition("%")[0])
    if address.version == 6 and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.packed[:8]


class Clients:
    """Limits each client to `tunnels` at a time, and to the CONNECT requests that `rule` allows; for one worker."""

    def __init__(self, *, tunnels: int, rule: Rule | None = None) -> None:
        self._max_tunnels = tunnels
        self._open: dict[bytes, int] = {}
        self._gate = None if rule is None else _gate(rule)

    def admit(self, client: bytes, *, now: float) -> None:
        """Count a CONNECT of a client; raises `Refusal` if a limit is reached. Call `leave` when it is over.

        `now` comes from a clock that is never set.
        """
        if self._gate is not None:
            self._gate.forget(now=now, most=_MAX_FORGOTTEN)
            if self._gate.master is not None:
                self._gate.master.forget(now=now, most=_MAX_FORGOTTEN)
            outcome = self._gate.admit(_DOMAIN, client, now=now)
            if outcome.release > now:
                raise Refusal("client_rate", retry_after=outcome.release - now)
        if self._open.get(client, 0) >= self._max_tunnels:
            raise Refusal("client_tunnels")
        self._open[client] = self._open.get(client, 0) + 1

    def leave(self, client: bytes) -> None:
        """Count a CONNECT that is over: refused, or its tunnel closed."""
        left = self._open[client] - 1
        if left:
            self._open[client] = left
        else:
            del self._open[client]


def _gate(rule: Rule) -> Gatekeeper:
    return Gatekeeper.embedded([Domain(_DOMAIN, (rule,))], max_delay=0.0, max_identifiers=_MAX_CLIENTS)
