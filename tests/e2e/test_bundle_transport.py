"""Bundles over real sockets: read by ranges from nginx, and answering clients of both libraries."""

import asyncio
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import httpx2
import pytest

from headgate.agent import Courtesy
from headgate.agent.bundle import AsyncBundleTransport, AsyncRangeBundle, BundleTransport, RangeBundle, collect
from headgate.errors import FetchError, FormatError
from tests.bundle_site import (
    LARGE,
    PAGE,
    SITE,
    Reading,
    Request,
    assert_same,
    head,
    honest,
    make_bundle,
    read_file,
    serving,
)
from tests.e2e.programs import headgate
from tests.servers import Server as Program
from tests.servers import free_port

BUNDLE = make_bundle()
NGINX = """
root FOLDER;
location / { types { application/webbundle wbn; } add_header X-Content-Type-Options nosniff; }
location /moved/ { return 302 /site.wbn; }
location /whole/ {
    alias FOLDER/; types { application/webbundle wbn; } add_header X-Content-Type-Options nosniff; max_ranges 0;
}
"""


@pytest.fixture(params=[httpx2, httpx], ids=["httpx2", "httpx"])
def library(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def reading(request, library):
    return Reading(library, request.param)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that nginx's worker, which is another user when this runs as root, may always read.

    pytest closes its own folders to others whenever it starts anew.
    """
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def site(folder: Path, nginx: Callable[..., Program]) -> Program:
    (folder / "site.wbn").write_bytes(BUNDLE)
    (folder / "behind.wbn").write_bytes(b"#!/bin/sh\nexit\n" * 999 + BUNDLE)
    (folder / "empty.wbn").write_bytes(b"")
    return nginx(server=NGINX.replace("FOLDER", str(folder)))


@pytest.mark.needs("nginx")
@pytest.mark.parametrize("path", ["/site.wbn", "/moved/", "/whole/site.wbn"])
def test_every_response_is_read_by_ranges_from_nginx(site, reading, path):
    assert_same(reading.all(site.url + path), read_file(BUNDLE))


@pytest.mark.needs("nginx")
def test_a_bundle_is_found_behind_other_data(site, reading):
    whole = b"#!/bin/sh\nexit\n" * 999 + BUNDLE
    for path in ("/behind.wbn", "/whole/behind.wbn"):
        assert_same(reading.all(site.url + path, from_end=True), read_file(whole, from_end=True))
        with pytest.raises(FormatError, match=r"3\.3 step 2"):
            reading.open(site.url + path)


@pytest.mark.needs("nginx")
def test_an_empty_and_a_missing_file_are_errors(site, reading):
    for path in ("/empty.wbn", "/whole/empty.wbn"):
        with pytest.raises(FormatError, match=r"3\.3 step 2"):
            reading.open(site.url + path)
        with pytest.raises(FormatError, match=r"3\.3\.6 step 1"):
            reading.open(site.url + path, from_end=True)
    with pytest.raises(FetchError, match="answered 404"):
        reading.open(site.url + "/missing.wbn")


@pytest.mark.needs("nginx")
def test_a_bundle_that_is_replaced_during_reading_is_an_error(site, folder):
    with RangeBundle.open(site.url + "/site.wbn") as bundle:
        other = folder / "other"
        other.write_bytes(make_bundle(large=LARGE[::-1]))
        os.utime(other, (1, 1))  # nginx tells files of one length apart by the second they are of
        other.replace(folder / "site.wbn")
        with pytest.raises(FetchError, match="was replaced while it was being read"):
            bundle.response(f"{SITE}/large")


@pytest.mark.needs("nginx")
def test_transports_read_ranges_and_fall_back_to_the_network(site, library):
    with (
        RangeBundle.open(site.url + "/site.wbn") as bundle,
        library.Client(transport=BundleTransport(bundle, origins=[SITE]), follow_redirects=True) as client,
    ):
        assert client.get(f"{SITE}/moved").content == b"<p>home"
        assert client.get(f"{SITE}/page").content == PAGE
        assert client.get(f"{SITE}/large").content == LARGE
        part = client.get(f"{SITE}/large", headers={"Range": "bytes=100000-200000"})
        assert (part.status_code, part.content) == (206, LARGE[100000:200001])
        assert client.head(f"{SITE}/large").headers["content-length"] == str(len(LARGE))
        behind = client.get(site.url + "/site.wbn")
        assert behind.content == BUNDLE
        assert "headgate-source" not in behind.headers


@pytest.mark.needs("nginx")
def test_asynchronous_transports_answer_from_the_bundle(site, library):
    async def check():
        async with (
            await AsyncRangeBundle.open(site.url + "/site.wbn") as bundle,
            library.AsyncClient(
                transport=AsyncBundleTransport(bundle, origins=[SITE]), follow_redirects=True
            ) as client,
        ):
            many = await asyncio.gather(*(client.get(f"{SITE}/{name}") for name in ("moved", "page", "large", "last")))
            assert [response.content for response in many] == [b"<p>home", PAGE, LARGE, b"the last"]
            part = await client.get(f"{SITE}/large", headers={"Range": "bytes=-5"})
            assert part.content == LARGE[-5:]
            assert (await client.get(site.url + "/site.wbn")).content == BUNDLE
        async with library.AsyncClient(transport=AsyncBundleTransport(site.url + "/moved/", origins=[SITE])) as client:
            assert (await client.get(f"{SITE}/last")).content == b"the last"

    asyncio.run(check())


def test_every_response_is_read_by_ranges_from_our_server(tmp_path, reading):
    (tmp_path / "site.wbn").write_bytes(BUNDLE)
    with headgate(tmp_path, "bundle", "serve", "site.wbn", "--listen", "127.0.0.1:0") as running:
        assert_same(reading.all(running.wait_for(r"^ready (\S+)$")[1]), read_file(BUNDLE))


def test_every_response_is_read_by_ranges_from_our_application(tmp_path, reading, start, monkeypatch):
    (tmp_path / "site.wbn").write_bytes(BUNDLE)
    (tmp_path / "served.py").write_text("from headgate.origin.bundle import BundleApp\napp = BundleApp('site.wbn')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    port = free_port()
    program = Path(sys.executable).parent / "uvicorn"
    running = start([program, "--log-level", "warning", "--port", str(port), "served:app"], port)
    assert_same(reading.all(running.url), read_file(BUNDLE))


def test_several_threads_read_one_bundle(tmp_path):
    path = tmp_path / "site.wbn"
    path.write_bytes(BUNDLE)
    wrong: list[str] = []
    with serving(honest(BUNDLE)) as server, RangeBundle.open(server.url) as remote:
        for bundle in (remote, path):
            with httpx2.Client(transport=BundleTransport(bundle, origins=[SITE]), follow_redirects=True) as client:

                def ask(client=client) -> None:
                    for name, content in [("moved", b"<p>home"), ("large", LARGE), ("last", b"the last")] * 5:
                        if client.get(f"{SITE}/{name}").content != content:
                            wrong.append(name)

                threads = [threading.Thread(target=ask) for _ in range(4)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
    assert wrong == []


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
