"""Bundles over real sockets: fetched, and answering clients of both libraries."""

import asyncio

import httpx
import httpx2
import pytest

from headgate.agent.bundle import AsyncBundleTransport, BundleTransport
from tests.bundle_site import LARGE, PAGE, SITE, make_bundle
from tests.e2e.programs import headgate

BUNDLE = make_bundle()


@pytest.fixture(params=[httpx2, httpx], ids=["httpx2", "httpx"])
def library(request):
    return request.param


def test_transports_answer_from_a_fetched_bundle(library, tmp_path):
    (tmp_path / "site.wbn").write_bytes(BUNDLE)
    with headgate(tmp_path, "bundle", "serve", "site.wbn", "--listen", "127.0.0.1:0") as running:
        url = running.wait_for(r"^ready (\S+)$")[1]
        transport = BundleTransport(url, origins=[SITE])
        with library.Client(transport=transport, follow_redirects=True) as client:
            assert client.get(f"{SITE}/moved").content == b"<p>home"
            assert client.get(f"{SITE}/page").content == PAGE
            part = client.get(f"{SITE}/large", headers={"Range": "bytes=100000-200000"})
            assert (part.status_code, part.content) == (206, LARGE[100000:200001])
            behind = client.get(url)
            assert behind.content == BUNDLE
            assert "headgate-source" not in behind.headers

        async def check():
            transport = AsyncBundleTransport(url, origins=[SITE])
            async with library.AsyncClient(transport=transport, follow_redirects=True) as client:
                many = await asyncio.gather(*(client.get(f"{SITE}/{name}") for name in ("moved", "page", "large")))
                assert [response.content for response in many] == [b"<p>home", PAGE, LARGE]
                assert (await client.get(url)).content == BUNDLE

        asyncio.run(check())
