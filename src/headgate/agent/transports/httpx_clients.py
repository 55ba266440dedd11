"""Clients of httpx2, or httpx where only that is installed, whose requests go through a `Courtesy`."""

from collections.abc import Callable, Iterable
from typing import Any

from headgate.agent.courtesy import Courtesy
from headgate.agent.transports import httpx_library
from headgate.agent.transports.httpx import AsyncTransport, Transport


def Client(  # noqa: N802 - used like the library's class
    courtesy: Courtesy | Iterable[str] | None = None, **options: Any
) -> httpx_library.Client:
    """Make an `httpx2.Client`, or `httpx.Client`, whose requests go through `courtesy`.

    In its place, an identity such as `"ExampleBot"` stands for `Courtesy("ExampleBot")`, and None for `Courtesy()`. The
    `options` are those of the client: `verify`, `proxy`, `mounts`, `timeout` and so on. It also uses the proxies that
    the environment names, as the library does.
    """
    library = httpx_library.default_library("headgate.agent.httpx.Client")
    client: httpx_library.Client = _with_transports(library.Client(**options), courtesy, Transport)
    return client


def AsyncClient(  # noqa: N802 - used like the library's class
    courtesy: Courtesy | Iterable[str] | None = None, **options: Any
) -> httpx_library.AsyncClient:
    """Make the same for asyncio and trio."""
    library = httpx_library.default_library("headgate.agent.httpx.AsyncClient")
    client: httpx_library.AsyncClient = _with_transports(library.AsyncClient(**options), courtesy, AsyncTransport)
    return client


def _with_transports(
    client: Any, courtesy: Courtesy | Iterable[str] | None, polite: Callable[[Courtesy, Any], Any]
) -> Any:
    """Put a polite transport in front of each one that a client has made of its options and the environment."""
    shared = courtesy if isinstance(courtesy, Courtesy) else Courtesy(courtesy)
    # A client that is given a transport reads no proxies from the environment; and what it has made is private.
    mounts = {pattern: inner and polite(shared, inner) for pattern, inner in client._mounts.items()}  # noqa: SLF001 - as said
    client._transport, client._mounts = polite(shared, client._transport), mounts  # noqa: SLF001 - as said
    return client
