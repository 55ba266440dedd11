"""How far sending to a peer has got: distinguishes a slow peer from one that does not read.

The size of a transport's buffer is not enough: it stays as it is while the system's own buffer drains, and with TLS the
transport beneath has another one. Linux counts the bytes that the peer has acknowledged.
"""

import asyncio
import socket
import struct
import sys

_TCP_INFO = struct.Struct("=24xI92xQ16xI")
"""Of Linux's `struct tcp_info`: segments sent and not acknowledged, bytes acknowledged, bytes not sent yet."""


def send_progress(transport: asyncio.Transport) -> int | None:
    """Return a number that changes as the peer takes what it is sent; None when it has taken everything.

    Elsewhere than on Linux, and where the socket is not TCP, it is the number of bytes in the transport's buffer.
    """
    waiting = transport.get_write_buffer_size()
    sock = transport.get_extra_info("socket")
    if sys.platform != "linux" or sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return waiting or None
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
    except OSError:
        return waiting or None
    if len(info) < _TCP_INFO.size:
        return waiting or None
    unacknowledged, acknowledged, unsent = _TCP_INFO.unpack(info)
    return int(acknowledged) if waiting or unacknowledged or unsent else None
