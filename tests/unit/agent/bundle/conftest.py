"""Fixtures for both libraries, and one interface for both kinds of client."""

import asyncio
from typing import Any

import httpx
import httpx2
import pytest

from headgate.agent.bundle import AsyncBundleTransport, BundleTransport
from tests.bundle_site import make_bundle


@pytest.fixture(scope="session")
def content() -> bytes:
    return make_bundle()


@pytest.fixture(params=[httpx2, httpx], ids=["httpx2", "httpx"])
def library(request: pytest.FixtureRequest) -> Any:
    return request.param


class BundleClient:
    """A client with a bundle transport over a simulated network; `network_requests` has what reached the network."""

    def __init__(self, library: Any, is_async: bool) -> None:
        self.library = library
        self.is_async = is_async
        self.network_requests: list[str] = []

    def network(self, request: Any) -> Any:
        self.network_requests.append(f"{request.method} {request.url}")
        return self.library.Response(299, content=b"from the network")

    def get(
        self, bundle: Any, url: str, *, network: Any = None, method: str = "GET", client: Any = None, **options: Any
    ) -> Any:
        """Send one request with a new client; return the response, read."""
        fields = options.pop("fields", {})
        content = options.pop("content", None)
        inner = self.library.MockTransport(network or self.network)
        settings = {"follow_redirects": True, **(client or {})}
        if self.is_async:

            async def ask() -> Any:
                transport = AsyncBundleTransport(bundle, inner, **options)
                async with self.library.AsyncClient(transport=transport, **settings) as client:
                    return await client.request(method, url, headers=fields, content=content)

            return asyncio.run(ask())
        transport = BundleTransport(bundle, inner, **options)
        with self.library.Client(transport=transport, **settings) as client:
            return client.request(method, url, headers=fields, content=content)


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def agent(request: pytest.FixtureRequest, library: Any) -> BundleClient:
    return BundleClient(library, request.param)
