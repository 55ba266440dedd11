"""A failing bundle URL is not fetched for every request: the requests that a real server receives."""

import asyncio
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import httpx2
import pytest

from headgate.agent.bundle import AsyncBundleTransport, AsyncRangeBundle, BundleTransport, RangeBundle
from headgate.bundle import BundleWriter
from headgate.errors import BundleError, FetchError
from tests.bundle_site import SERVED, Answer, Request, Server, head, honest, make_bundle, serving

BUNDLE = make_bundle()
FIRST, SECOND = 0.7 * 1.4, 0.7 * 1.4**2
"""Seconds of the first two pauses of the backoff policy, of which a draw of 0 takes nothing off."""


class BundleClient:
    """A client of either library and kind with one bundle transport and a clock."""

    def __init__(self, library: Any, *, is_async: bool) -> None:
        self.library = library
        self.now = 1_800_000_000.0
        self.messages: list[str] = []
        self._is_async = is_async
        self._runner = asyncio.Runner()
        self._client: Any = None

    def use(self, source: str, **options: Any) -> None:
        """Begin with the bundle at a URL, or by ranges with `ranges=True`."""
        by_ranges = options.pop("ranges", False)
        if by_ranges and self._is_async:
            source = self._runner.run(AsyncRangeBundle.open(source))
        elif by_ranges:
            source = RangeBundle.open(source)
        kind, client = (
            (AsyncBundleTransport, self.library.AsyncClient)
            if self._is_async
            else (BundleTransport, self.library.Client)
        )
        given = {"clock": lambda: self.now, "draw": lambda: 0.0, "tell": self.messages.append}
        self._client = client(transport=kind(source, **given, **options))

    def get(self, url: str) -> Any:
        """Send one GET."""
        got = self._client.get(url)
        return self._runner.run(got) if self._is_async else got

    def close(self) -> None:
        if self._client is not None and self._is_async:
            self._runner.run(self._client.aclose())
        elif self._client is not None:
            self._client.close()
        self._runner.close()


@pytest.fixture(
    params=[(httpx2, False), (httpx2, True), (httpx, False), (httpx, True)],
    ids=["httpx2", "httpx2-async", "httpx", "httpx-async"],
)
def agent(request: pytest.FixtureRequest) -> Iterator[BundleClient]:
    library, is_async = request.param
    client = BundleClient(library, is_async=is_async)
    yield client
    client.close()


def site_of(server: Server) -> bytes:
    """Write a bundle for the server's own origin."""
    target = io.BytesIO()
    with BundleWriter(target, version="b2", primary_url=f"{server.url}/page") as writer:
        writer.add(f"{server.url}/page", headers={"Content-Type": "text/plain"}, payload=b"out of the bundle")
    return target.getvalue()


async def refuse(_request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(head(503, {"Content-Length": "0"}))


async def ask_to_wait(_request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(head(503, {"Content-Length": "0", "Retry-After": "120"}))


async def hang_up(_request: Request, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def cut(_request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(head(200, {**SERVED, "Content-Length": str(len(BUNDLE))}) + BUNDLE[:100])
    writer.close()


FAILURES: dict[str, Answer] = {
    "503": refuse,
    "no answer": hang_up,
    "cut": cut,
    "no bundle": honest(b"no bundle"),
    "bare": honest(BUNDLE, X_Content_Type_Options=""),
}


@contextmanager
def changing(first: Answer) -> Iterator[tuple[Server, Callable[[Answer], None]]]:
    """Run a server whose answer can be changed."""
    answers = [first]

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.path == "/site.wbn":
            await answers[-1](request, writer)
        else:
            writer.write(head(299, {"Content-Length": "7"}) + b"network")

    with serving(answer) as server:
        yield server, answers.append


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_a_failed_bundle_is_fetched_again_after_the_backoff(agent: BundleClient, failure: Answer) -> None:
    with changing(failure) as (server, becomes):
        agent.use(f"{server.url}/site.wbn")
        with pytest.raises((FetchError, BundleError)) as first:
            agent.get(f"{server.url}/page")
        for _ in range(5):
            with pytest.raises(FetchError) as held:
                agent.get(f"{server.url}/page")
            assert str(first.value) in str(held.value)
            assert str(held.value).endswith("; it may be fetched again in 1.0 s")
        assert len(server.requests) == 1

        agent.now += FIRST * 0.999
        with pytest.raises(FetchError):
            agent.get(f"{server.url}/page")
        assert len(server.requests) == 1
        agent.now += FIRST * 0.002
        with pytest.raises((FetchError, BundleError)):
            agent.get(f"{server.url}/page")
        assert len(server.requests) == 2
        agent.now += SECOND * 0.999
        with pytest.raises(FetchError):
            agent.get(f"{server.url}/page")
        assert len(server.requests) == 2

        becomes(honest(site_of(server)))
        agent.now += SECOND * 0.002
        for _ in range(3):
            assert agent.get(f"{server.url}/page").content == b"out of the bundle"
        assert len(server.requests) == 3


def test_failed_ranges_are_repeated_later_and_requests_go_to_the_network(agent: BundleClient) -> None:
    with changing(honest(BUNDLE)) as (server, becomes):
        agent.use(f"{server.url}/site.wbn", ranges=True, origins=["https://site.example"], inner=_network(agent))
        assert agent.get("https://site.example/last").content == b"the last"
        becomes(ask_to_wait)
        before = len(server.requests)
        for wait, seen in [(0.0, 1), (119.0, 1), (1.1, 2), (119.0, 2)]:
            agent.now += wait
            assert agent.get("https://site.example/last").status_code == 299
            assert len(server.requests) - before == seen
        assert all("answered 503" in sentence for sentence in agent.messages)
        becomes(honest(BUNDLE))
        agent.now += 1.1
        assert agent.get("https://site.example/last").content == b"the last"


def _network(agent: BundleClient) -> Any:
    return agent.library.MockTransport(lambda request: agent.library.Response(299, content=b"from the network"))


def coded_without_end(coding: str, piece: bytes) -> Answer:
    """Send what decodes to nothing, for as long as it is read; an honest client would read 64 MiB of it."""

    async def answer(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head(200, {**SERVED, "Content-Encoding": coding}))
        if coding == "gzip":
            writer.write(b"\x1f\x8b\x08\0\0\0\0\0\0\xff")
        for _ in range(1024):
            writer.write(piece * (65536 // len(piece)))
            await writer.drain()
        writer.close()

    return answer


EMPTY_BLOCK = b"\0\0\0\xff\xff"
"""A stored block of deflate with nothing in it."""


@pytest.mark.parametrize(
    "answer",
    [coded_without_end("gzip", EMPTY_BLOCK), honest(BUNDLE, Content_Encoding="br")],
    ids=["without end", "not even coded"],
)
def test_bundles_are_requested_uncoded_and_rejected_with_a_content_coding(agent: BundleClient, answer: Answer) -> None:
    """The length of a coded body does not limit the decoded one, nor the other way round."""
    with changing(answer) as (server, becomes):
        agent.use(f"{server.url}/site.wbn")
        with pytest.raises(FetchError, match=r"content coding '(gzip|br)', expected none"):
            agent.get(f"{server.url}/page")
        becomes(honest(site_of(server), Content_Encoding="identity"))
        agent.now += FIRST + 0.1
        assert agent.get(f"{server.url}/page").content == b"out of the bundle"
        assert [request.fields["accept-encoding"] for request in server.requests] == ["identity"] * 2
