"""The tunnels of the prefetch proxy alone, over TLS: `python -m bench.http2_proxy PORT CERT KEY`.

Whoever asks gets a tunnel, to the port named and this machine: what is decided is measured elsewhere.
"""

import asyncio
import socket
import sys

from headgate.agent.proxy.asked import Asked, Opened, Refused
from headgate.agent.proxy.http2 import Http2
from headgate.agent.proxy.refusal import Refusal
from headgate.agent.proxy.server import TunnelServer
from headgate.agent.proxy.tls import server_context

__all__ = ["main"]


async def decide(asked: Asked) -> Opened | Refused:
    """Dial."""
    sock = socket.socket()
    sock.settimeout(0)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    port = int(asked.authority.rpartition(":")[2])
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    return Opened(socket=sock, closed=lambda _received, _sent, _why: None)


async def main(port: int, cert: str, key: str) -> None:
    """Listen, for ever."""
    upgrades = {"h2": Http2()}
    server = TunnelServer(decide, lambda reason, _peer: Refusal(reason).refused, upgrades=upgrades)
    await server.start("127.0.0.1", port, tls=server_context(cert, key))
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
