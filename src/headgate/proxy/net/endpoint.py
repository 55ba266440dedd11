"""IP addresses, networks and the endpoints that connections are made to."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import TypeAlias

import msgspec

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network


class Endpoint(msgspec.Struct, frozen=True):
    """An address and a port to connect to."""

    address: Address
    port: int
    host: str = ""
    """The address as text, which is what the socket calls take; computed once, since it is used for each attempt."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "host", str(self.address))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
