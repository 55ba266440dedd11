"""What a tunnel's sockets ask of the system's TCP: how much it receives ahead, and that it hurries where it can.

A receive buffer of Linux grows as long as it is read fast, on newer systems to 32 MiB (tcp(7), tcp_rmem): by so much a
tunnel would be read ahead that stalls all at once, at either end. One of a given size does not grow.

And nothing is congested between two ends on one machine, but a congestion control that paces what it sends, as BBR
does, paces there too: a tunnel that comes in bursts then has a third of what it could have.
"""

import socket
from typing import Final

__all__ = ["hurry_on_loopback", "receive_buffer"]

_ENOUGH: Final = 1 << 21
"""Bytes: what 150 Mbit/s bring on a way of 100 ms; Linux takes twice as much, for its own needs."""

_UNPACED: Final = b"reno"
"""The congestion control that every process may have, whatever the system's own is (tcp(7))."""


def receive_buffer() -> int:
    """Give the value of `SO_RCVBUF` for a socket that is not connected yet; 0 where it is to be left to the system.

    It is, where a process may not have so much (socket(7), rmem_max): such a system's own buffers grow to 6 MiB.
    """
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _ENOUGH)
        return _ENOUGH if tried.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= _ENOUGH else 0


def hurry_on_loopback(sock: socket.socket, host: str) -> None:
    """Have a socket send without pacing if `host`, which it is or will be at or listens at, is one of loopback."""
    if host.startswith("127.") or host == "::1":
        try:  # noqa: SIM105 - this costs nothing where nothing is raised
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _UNPACED)
        except (OSError, AttributeError):
            pass  # other systems pace nothing
