"""Bundles over real sockets: fetched, and answering clients of both libraries."""

import asyncio
import io

import httpx
import httpx2
import pytest

from headgate.agent import Courtesy
from headgate.agent.bundle import AsyncBundleTransport, BundleTransport, collect
from headgate.bundle import BundleWriter
from tests.bundle_site import LARGE, PAGE, SITE, Request, head, honest, make_bundle, serving
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


def test_bundle_is_requested_uncoded(library):
    """The length of a coded body does not limit that of the decoded one."""
    content = io.BytesIO()
    with serving(lambda request, writer: honest(content.getvalue())(request, writer)) as server:
        with BundleWriter(content) as writer:
            writer.add(f"{server.url}/page", headers={"Content-Type": "text/plain"}, payload=b"out of the bundle")
        with library.Client(transport=BundleTransport(f"{server.url}/site.wbn")) as client:
            assert client.get(f"{server.url}/page").content == b"out of the bundle"
        assert [request.fields["accept-encoding"] for request in server.requests] == ["identity"]


def test_urls_are_fetched_one_after_another_over_one_connection(library):
    at_once = 0

    async def pages(request: Request, writer: asyncio.StreamWriter) -> None:
        nonlocal at_once
        at_once += 1
        assert at_once == 1
        await asyncio.sleep(0.001)
        body = request.path.encode() * 1000
        writer.write(head(200, {"Content-Type": "text/plain", "Content-Length": str(len(body))}) + body)
        at_once -= 1

    with serving(pages) as server, library.Client() as client:
        urls = [f"{server.url}/{number}" for number in range(20)]
        found = list(collect(urls, client=client, courtesy=Courtesy()))
        assert [exchange.payload for exchange in found] == [f"/{number}".encode() * 1000 for number in range(20)]
        assert server.connections == 1
        assert server.requests[0].fields["accept-encoding"] == "identity"
