"""Counts open connections by client, so that one client cannot take every place.

A client is an IPv4 address or an IPv6 network of 64 bits, as in `client_address`. This file knows nothing of sockets.
"""

from headgate.origin.identify import client_address

__all__ = ["ClientConnections"]


class ClientConnections:
    """The number of connections of each client, at most `most`; 0 sets no bound."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[bytes, int] = {}
        self._client_of = client_address().per_connection

    def enter(self, address: str) -> bytes:
        """Count a connection in; returns the client, for `leave`, or empty bytes when it has as many as it may."""
        client = self._client_of(address) or b""
        count = self._open.get(client, 0)
        if 0 < self._most <= count:
            return b""
        self._open[client] = count + 1
        return client

    def leave(self, client: bytes) -> None:
        """Count a connection out; does nothing for empty bytes."""
        count = self._open.pop(client, 0)
        if count > 1:
            self._open[client] = count - 1
