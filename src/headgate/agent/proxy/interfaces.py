"""Which addresses are this machine's own, as the system itself says, at this moment.

Linux is asked for the route: what it would deliver here is of type local, be it an interface's address, all of
127.0.0.0/8, or a prefix that was routed here. Binding to an address tells nearly the same, and is what other systems
are asked; it tells nothing where binding to foreign addresses is allowed, as it is on machines that stand in for each
other. No packet is sent by either.
"""

import socket
import struct
from typing import Final

from headgate.agent.proxy.prefixes import Address

__all__ = ["can_bind", "is_local", "route_is_local"]

# rtnetlink(7), netlink(7): a header, then what a message of that type is about, then attributes.
_HEADER: Final = struct.Struct("=IHHII")
_ROUTE: Final = struct.Struct("=BBBBBBBBI")
_ATTRIBUTE: Final = struct.Struct("=HH")
_RTM_NEWROUTE: Final = 24
_RTM_GETROUTE: Final = 26
_NLM_F_REQUEST: Final = 1
_RTA_DST: Final = 1
_RTN_LOCAL: Final = 2
_PATIENCE: Final = 1.0
"""Seconds; the system answers within the call that asks it."""


def is_local(address: Address) -> bool:
    """Say whether a connection to an address would end on this machine."""
    local = route_is_local(address)
    return can_bind(address) if local is None else local


def route_is_local(address: Address) -> bool | None:
    """Say what the routing tables say; None where they cannot be asked, or have no answer."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    destination = address.packed
    body = _ROUTE.pack(family, 8 * len(destination), 0, 0, 0, 0, 0, 0, 0)
    body += _ATTRIBUTE.pack(_ATTRIBUTE.size + len(destination), _RTA_DST) + destination
    try:
        # Neither other systems nor a unit that is forbidden the family have such sockets.
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as asking:
            asking.settimeout(_PATIENCE)
            asking.send(_HEADER.pack(_HEADER.size + len(body), _RTM_GETROUTE, _NLM_F_REQUEST, 0, 0) + body)
            answer = asking.recv(4096)
    except (OSError, AttributeError):
        return None
    if len(answer) < _HEADER.size + _ROUTE.size or _HEADER.unpack_from(answer)[1] != _RTM_NEWROUTE:
        return None  # an error, such as that there is no route
    return int(_ROUTE.unpack_from(answer, _HEADER.size)[7]) == _RTN_LOCAL


def can_bind(address: Address) -> bool:
    """Say whether a socket can be bound to an address."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as bound:
            bound.bind((str(address), 0))
    except OSError:
        return False
    return True
