"""A bundle served without a gate, by a gateway that answers every request itself."""

import asyncio
from typing import Final

from headgate.bundle.model import Profile
from headgate.config import Address
from headgate.http.h1 import RequestHead
from headgate.limit import Gatekeeper
from headgate.origin import Rejections, Routes, client_address
from headgate.origin.bundle.server import METHODS, BundleServer
from headgate.origin.bundle.snapshot import ReloadingBundle
from headgate.origin.gateway import Gateway, GatewayPolicy
from headgate.origin.response import Response
from headgate.runtime.lifecycle import Backend, Server, run_server
from headgate.runtime.listen import listen_error
from headgate.runtime.log import log, write_line

_CHECK_INTERVAL: Final = 1.0


def run_bundle_server(path: str, *, listen: str, unpack: bool = False, profile: Profile = "strict") -> int:
    """Serve the bundle at `path`, or with `unpack` the site inside it, until a signal; returns the exit code.

    `listen` is HOST:PORT. A file that is replaced is loaded within a second, and at once on SIGHUP; an invalid one
    leaves the previous one in force, with a message on stderr. Raises `BundleError` and `OSError` for a file that
    cannot be served, and `ConfigurationError` for an address that is not available.
    """
    bundle = ReloadingBundle(path, profile=profile, log=log)
    return run_server(_BundleServer(bundle, Address.parse(listen), unpack=unpack))


class _BundleServer(Server):
    """A bundle in its life-cycle."""

    def __init__(self, bundle: ReloadingBundle, address: Address, *, unpack: bool) -> None:
        super().__init__()
        self._bundle = bundle
        self._content = BundleServer(bundle, unpack=unpack)
        self._gateway = _new_gateway(self._content)
        self.backend = _BundleProcess(self._gateway, address)

    async def start(self) -> None:
        self.closing.push_async_callback(self.backend.close)
        await self.backend.start()
        self.start_task(self._check())

    async def _check(self) -> None:
        """Load the file again when it is replaced."""
        while True:
            await asyncio.sleep(_CHECK_INTERVAL)
            await self._bundle.renew(at_once=True)

    def announce(self) -> None:
        write_line(f"ready http://{Address(*self._gateway.addresses[0])}{self._content.home}")

    async def reload(self) -> None:
        await self._bundle.renew(at_once=True)


class _BundleProcess(Backend):
    """The gateway."""

    drain_timeout = 30.0

    def __init__(self, gateway: Gateway, address: Address) -> None:
        self._gateway = gateway
        self._address = address

    async def start(self) -> None:
        try:
            await self._gateway.start(*self._address)
        except OSError as error:
            raise listen_error("--listen", self._address, error) from None

    async def drain(self, seconds: float) -> None:
        await self._gateway.drain(seconds)

    async def close(self) -> None:
        await self.drain(0)


def _new_gateway(content: BundleServer) -> Gateway:
    def respond(request: RequestHead) -> Response:
        return content.answer(request.method, request.host, request.target, request.fields)

    policy = GatewayPolicy(
        gatekeeper=Gatekeeper(), identify=client_address(), routes=Routes([]), reject=Rejections(), local=respond
    )
    return Gateway((), policy, allow=METHODS)
