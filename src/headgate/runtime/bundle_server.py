"""A bundle served on its own: the gate's protocol without an origin, and a life from the first request to a signal."""

import asyncio
import os
from collections.abc import Callable
from urllib.parse import quote

from headgate.bundle.model import Profile
from headgate.config import Address
from headgate.errors import ConfigurationError
from headgate.http.h1 import RequestHead
from headgate.limit import Gatekeeper
from headgate.origin import Rejections, Routes, client_address
from headgate.origin.bundle import Publication, Storefront
from headgate.origin.bundle.storefront import METHODS
from headgate.origin.gateway import Gateway
from headgate.origin.response import Response
from headgate.runtime.event_loop import Signals, run, say
from headgate.runtime.listen import address_sentence

__all__ = ["serve_bundle"]

_LOOK_EVERY = 1.0
_DRAIN = 30.0
_NOBODY = "http://127.0.0.1:9"
"""An origin that is never asked."""


def serve_bundle(
    path: str, *, listen: str, unpack: bool = False, profile: Profile = "strict", ready: Callable[[str], None]
) -> int:
    """Serve the bundle at `path`, or with `unpack` the site inside it, until a signal ends it; returns the exit code.

    `listen` is HOST:PORT; `ready` is called with the bundle's URL once requests are accepted. A file that is replaced
    is noticed within a second, and at once on SIGHUP; one that is no bundle leaves the one before in force and is told
    on stderr. Raises `BundleError` and `OSError` for a file that cannot be served, and `ConfigurationError` for an
    address that cannot be had.
    """
    address = Address.parse(listen)
    publication = Publication(path, profile=profile, complain=lambda sentence: say(f"headgate: {sentence}"))
    return run(lambda: _serve(publication, address, unpack, ready))


async def _serve(publication: Publication, address: Address, unpack: bool, ready: Callable[[str], None]) -> int:  # noqa: FBT001 - passed on
    storefront = Storefront(publication, unpack=unpack)
    gateway = _gateway(storefront)
    looked = asyncio.Event()
    signals = Signals(looked.set)
    try:
        await gateway.start(address.host, address.port)
    except OSError as error:
        raise ConfigurationError(address_sentence("--listen", address, error)) from None
    looking = asyncio.ensure_future(_look(publication, looked))
    ready(f"http://{Address(*gateway.addresses[0])}/{quote(os.fsencode(storefront.name))}")
    await signals.asked.wait()
    looking.cancel()
    await signals.unless_insisted(gateway.drain(_DRAIN))
    await gateway.drain(0)
    return 0


def _gateway(storefront: Storefront) -> Gateway:
    """Give a gateway that answers everything itself."""

    def answer(request: RequestHead) -> Response:
        return storefront.answer(request.method, request.host, request.target, request.fields)

    gateway = Gateway(
        origin=_NOBODY,
        gatekeeper=Gatekeeper(),
        identify=client_address(),
        routes=Routes([]),
        reject=Rejections(),
        local=answer,
    )
    gateway.allow = METHODS
    return gateway


async def _look(publication: Publication, now: asyncio.Event) -> None:
    """Notice when the bundle is replaced: every second, and when somebody says so."""
    while True:
        try:
            async with asyncio.timeout(_LOOK_EVERY):
                await now.wait()
        except TimeoutError:
            pass
        now.clear()
        await publication.renew(at_once=True)
