"""Which addresses may be dialled, for a tunnel and for advice alike.

The table of prefixes says what an address is; the operator may lift that for networks of their own. What nobody lifts
is the rule for the proxy's own listeners: a tunnel back into the proxy, or into its admin listener, is refused whatever
form the address has. This file opens no socket; what is local is asked of a function it is given.
"""

from collections.abc import Callable, Iterable
from ipaddress import ip_network

from headgate.errors import ConfigurationError
from headgate.proxy.admission.special_addresses import possible_destinations, special_purpose
from headgate.proxy.net.endpoint import Address, Network

__all__ = ["AddressRules", "parse_network"]


class AddressRules:
    """Every address but those of the table, those that are `allowed` after all, and none of our own `listeners`.

    `listeners` are what the sockets are bound to, and port 0 is none of theirs; one that is bound to a wildcard listens
    at every address that `is_local_address` says is this machine's, of either family.
    """

    def __init__(
        self,
        allowed: Iterable[Network] = (),
        *,
        listeners: Iterable[tuple[Address, int]] = (),
        is_local_address: Callable[[Address], bool],
    ) -> None:
        self._allowed = tuple(allowed)
        self._own: dict[int, set[Address]] = {}
        self._wildcards: set[int] = set()
        self._is_local = is_local_address
        for address, port in listeners:
            places = possible_destinations(address)
            self._own.setdefault(port, set()).update(places)
            if any(place.is_unspecified for place in places):
                self._wildcards.add(port)

    def forbids(self, address: Address, port: int) -> str | None:
        """Say why an address must not be dialled at this port, a clause that goes on after "is"; None where it may."""
        if port in self._own and any(self._is_own(place, port) for place in possible_destinations(address)):
            return "where the proxy itself listens"
        if any(address in network for network in self._allowed):
            return None
        return special_purpose(address)

    def may_change(self, port: int) -> bool:
        """Say whether what is forbidden at this port is another question each time: which addresses are our own."""
        return port in self._wildcards

    def _is_own(self, place: Address, port: int) -> bool:
        if place.is_unspecified or place in self._own[port]:
            return True  # systems take a connection to the unspecified address for one to themselves
        return port in self._wildcards and self._is_local(place)


def parse_network(text: str) -> Network:
    """Read a CIDR or one address, as `--allow-address` has them; raises `ConfigurationError`.

    Bits behind the prefix are an error: `10.1.2.3/8` may have meant one address, and would lift the rule for millions.
    """
    try:
        network = ip_network(text.strip())
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is no network, which is an address and how many of its bits count, the others being 0; "
            "try '10.0.0.0/8' or '::1'"
        ) from None
    return network
