"""A tunnel server of its own process: `python -m tests.e2e.http2_process PORT CERT KEY`; tunnels lead to loopback."""

import asyncio
import socket
import sys

from headgate.proxy.connect import AcceptedConnect, ConnectRequest, RefusedConnect, TunnelTimeouts
from headgate.proxy.refusal import Refusal
from headgate.proxy.server import TunnelServer
from headgate.proxy.sockets import listening_socket, server_context


async def decide(asked: ConnectRequest) -> AcceptedConnect | RefusedConnect:
    """Take as long as a decision takes, and dial."""
    await asyncio.sleep(0.01)
    sock = socket.socket()
    sock.settimeout(0)
    try:
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", int(asked.authority.rpartition(":")[2])))
    except BaseException as error:
        sock.close()
        if not isinstance(error, OSError):
            raise
        return Refusal("dial_refused").refused
    return AcceptedConnect(socket=sock, on_closed=lambda _received, _sent, _why: None)


async def main(port: int, cert: str, key: str) -> None:
    """Listen until the process is killed."""
    server = TunnelServer(
        decide, lambda reason, _peer: Refusal(reason).refused, timeouts=TunnelTimeouts(head=1.0, linger=1.0)
    )
    server.start(listening_socket("127.0.0.1", port), tls=server_context(cert, key))
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
