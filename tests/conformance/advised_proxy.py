"""The decision of the prefetch proxy with a real origin over TLS on loopback; tunnels are closed once they are open."""

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from ipaddress import ip_address, ip_network
from typing import Any

import trustme

from headgate.fetch.destinations import AddressRules
from headgate.proxy.admission.advice_service import AdviceService
from headgate.proxy.admission.authority import HostRules
from headgate.proxy.admission.decide import Admission, ProxyPolicy
from headgate.proxy.admission.destinations import Resolver
from headgate.proxy.admission.limits import Clients, TunnelSlots, create_slots
from headgate.proxy.connect import AcceptedConnect, ConnectRequest

AUTHORITY = trustme.CA()
NAMES = ("www.example.org", "other.example.org")
HERE = ip_address("127.0.0.1")


def advice_response(text: str, *fields: str, status: str = "200 OK") -> bytes:
    """Return a response with this document."""
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/trafficadvice+json", f"Content-Length: {len(text)}"]
    return "\r\n".join([*lines, *fields, "", text]).encode()


class Origin:
    """Sends `response` to each request for advice; other connections are those of tunnels."""

    def __init__(self) -> None:
        self.response = advice_response("[]")
        self.requests: list[bytes] = []
        """The heads of the requests for advice."""
        self.port = 0
        self._serving: set[asyncio.Task[Any]] = set()
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        AUTHORITY.issue_cert(*NAMES).configure_cert(self._tls)

    async def wait_until_idle(self) -> None:
        """Wait until all connections are closed."""
        if self._serving:
            await asyncio.wait(self._serving, timeout=1)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        with suppress(OSError, asyncio.IncompleteReadError):
            await writer.start_tls(self._tls)
            self.requests.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(self.response)
            await writer.drain()
        writer.close()


class AdvisedProxy:
    """Decides on CONNECTs for its origin; `now` is its clock."""

    def __init__(self, origin: Origin) -> None:
        tls = ssl.create_default_context()
        AUTHORITY.configure_trust(tls)
        self.now = 1_700_000_000.0
        self.slots = TunnelSlots(10_000, create_slots(1))
        self._port = origin.port
        self.decision = Admission(
            ProxyPolicy(key=b"k" * 32),
            tokens=None,
            clients=Clients(tunnels=100),
            slots=self.slots,
            hosts=HostRules(ports=[origin.port]),
            resolver=Resolver(
                AddressRules([ip_network("127.0.0.0/8")], is_local_address=lambda _: False), self._lookup
            ),
            advice=self,
            log=self,  # type: ignore[arg-type]  # logs nothing
            clock=lambda: self.now,
        )
        self.counts = self.decision.counts
        self._advice = AdviceService("PollyPrefetchProxy", tls=tls, counts=self.counts, clock=lambda: self.now)
        self.known, self.advice = self._advice.known, self._advice.advice
        self.pending_fetch = self._advice.pending_fetch

    async def _lookup(self, host: str, _client: bytes) -> list[Any]:
        return [HERE]

    def refused(self, *_: Any) -> None:
        """Log nothing."""

    async def connect(
        self, client: str = "192.0.2.1", *, host: str = NAMES[0], fields: Sequence[tuple[str, str]] = ()
    ) -> str | tuple[int, str]:
        """Send a CONNECT; return "tunnel", or the status and the reason of the refusal."""
        authority = f"{host}:{self._port}"
        head = f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n"
        request = ConnectRequest(authority=authority, peer=(client, 1234), fields=fields, head_bytes=len(head))
        verdict = await self.decision.decide(request)
        if not isinstance(verdict, AcceptedConnect):
            return verdict.status, verdict.reason
        # A reset frees the port at once; there are thousands of connections.
        verdict.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        verdict.socket.close()
        verdict.on_closed(0, 0, "ended")
        return "tunnel"

    async def clients_with_a_tunnel(self, count: int, **options: Any) -> set[str]:
        """Return the clients, out of `count`, that get a tunnel."""
        clients = [f"198.{18 + number // 65_536}.{number // 256 % 256}.{number % 256}" for number in range(count)]
        return {client for client in clients if await self.connect(client, **options) == "tunnel"}


def run(scenario: Callable[[Origin, AdvisedProxy], Awaitable[None]]) -> None:
    """Run `scenario(origin, proxy)` with a listening origin."""

    async def whole() -> None:
        origin = Origin()
        server = await asyncio.start_server(origin.serve, "127.0.0.1", 0, backlog=1024)
        async with server:
            origin.port = server.sockets[0].getsockname()[1]
            proxy = AdvisedProxy(origin)
            try:
                await scenario(origin, proxy)
            finally:
                await origin.wait_until_idle()
                proxy.slots.close()

    asyncio.run(whole())
