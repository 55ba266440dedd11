"""Which addresses are this machine's own, as the system itself says, at this moment."""

import socket

from headgate.proxy.net.endpoint import Address

__all__ = ["is_local"]

_PORT = 9
"""Any port: nothing is sent to it."""


def is_local(address: Address) -> bool:
    """Say whether a connection to an address would end on this machine.

    A UDP socket is connected to it, which sends no packet and has the system choose the address to send from: towards
    itself a machine sends from where it sends to.
    """
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), _PORT))
            return bool(probe.getsockname()[0] == str(address))
    except OSError:
        return False  # there is no way to it
