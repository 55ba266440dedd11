"""A target that sends back what it receives: `python -m bench.echo_target PORT`."""

import asyncio
import resource
import sys
from typing import cast


class Echo(asyncio.Protocol):
    """One connection."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; see `asyncio.Protocol`."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Send it back; see `asyncio.Protocol`."""
        self.transport.write(data)


async def main(port: int) -> None:
    """Serve until killed."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", port, backlog=4096)
    await asyncio.Event().wait()


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:
        asyncio.run(main(int(sys.argv[1])))
    else:
        uvloop.run(main(int(sys.argv[1])))
