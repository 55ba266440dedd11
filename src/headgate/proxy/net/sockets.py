"""How much a tunnel's sockets receive ahead of what is read.

A receive buffer of Linux grows as long as it is read fast, on newer systems to 32 MiB (tcp(7), tcp_rmem): by so much a
tunnel would be read ahead that stalls all at once, at either end. One of a given size does not grow.
"""

import socket
from typing import Final

__all__ = ["receive_buffer"]

_ENOUGH: Final = 1 << 21
"""Bytes: what 150 Mbit/s bring on a way of 100 ms; Linux takes twice as much, for its own needs."""


def receive_buffer() -> int:
    """Give the value of `SO_RCVBUF` for a socket that is not connected yet; 0 where it is to be left to the system.

    It is, where a process may not have so much (socket(7), rmem_max): such a system's own buffers grow to 6 MiB.
    """
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _ENOUGH)
        return _ENOUGH if tried.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= _ENOUGH else 0
