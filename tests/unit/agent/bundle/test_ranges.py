import asyncio
import io
from pathlib import Path

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.agent.bundle import AsyncBundleTransport, AsyncRangeBundle, BundleTransport, RangeBundle
from headgate.bundle.api import open_bundle
from headgate.bundle.files.writer import BundleWriter
from headgate.errors import BundleError, ConfigurationError, FetchError, NotInBundle, ResponseError
from tests.bundle_site import SERVED, SITE, make_bundle, range_transport
from tests.malformed import named

VECTORS = sorted((Path(__file__).parents[3] / "vectors" / "bundle").rglob("*.*wbn"))
URL = "https://cdn.example/x.wbn"
LARGE = bytes(range(256)) * 8
SMALL = make_bundle(large=LARGE)


def outline(bundle, load):
    """All that can be read, and all that is refused."""
    found = [bundle.metadata]
    for url, place in bundle.metadata.requests.items():
        for location in getattr(place, "locations", {"": place}).values():
            try:
                response = load(location)
                found.append((url, response.status, response.headers, bytes(response.payload)))
            except ResponseError as error:
                found.append((url, error.reason, error.step, error.offset, error.fallback_url))
    return found


def of_file(content, **options):
    """Return what the reader of files finds."""
    try:
        with open_bundle(content, **options) as bundle:
            return outline(bundle, bundle.load)
    except BundleError as error:
        return type(error), error.reason, error.step, error.offset, error.fallback_url


def of_server(content, *, ranges=True, **options):
    """Return what is found by ranges."""
    try:
        with (
            httpx2.Client(transport=range_transport(content, ranges=ranges)) as client,
            RangeBundle.open(URL, client=client, **options) as bundle,
        ):
            return outline(bundle, bundle.load)
    except BundleError as error:
        return type(error), error.reason, error.step, error.offset, error.fallback_url


@pytest.mark.parametrize("size", [1, 7, 1 << 16])
def test_every_vector_is_read_as_from_a_file(size, monkeypatch):
    monkeypatch.setattr("headgate.agent.bundle.range_core.MIN_RANGE", size)
    for path in VECTORS:
        content = path.read_bytes()
        for options in ({}, {"profile": "compat"}, {"from_end": True}):
            with named(f"{path.name} {options}"):
                expected = of_file(content, base_url=URL, **options)
                assert of_server(content, **options) == expected
                assert of_server(content, ranges=False, **options) == expected


@given(st.integers(0, len(SMALL)), st.sampled_from([1, 50, 1 << 16]))
def test_every_prefix_is_read_as_from_a_file(length, guess):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("headgate.agent.bundle.range_core.MIN_RANGE", guess)
        assert of_server(SMALL[:length]) == of_file(SMALL[:length])


@given(st.integers(0, len(SMALL) - 1), st.integers(0, 255))
def test_changed_bytes_are_read_as_from_a_file(position, byte):
    content = bytearray(SMALL)
    content[position] = byte
    by_range, expected = of_server(bytes(content)), of_file(bytes(content))
    if isinstance(expected, list):
        # Of a response that is longer than its location, a reader of files sees more, and refuses it at a later step.
        by_range, expected = (
            [entry[0] if isinstance(entry, tuple) and len(entry) == 5 else entry for entry in found]
            for found in (by_range, expected)
        )
    assert by_range == expected


def test_range_bundle_uses_the_given_client():
    with httpx2.Client(transport=range_transport(SMALL)) as client:
        with RangeBundle.open(URL, client=client) as bundle:
            assert bundle.url == URL
            assert (
                bundle.select(f"{SITE}/page", {"accept-encoding": "gzip"}).stored_headers["content-encoding"] == "gzip"
            )
            assert "content-encoding" not in bundle.select(f"{SITE}/page", {"accept-encoding": ""}).stored_headers
            with pytest.raises(NotInBundle):
                bundle.response(f"{SITE}/page")
        assert not client.is_closed, "a client that was given stays open"

    async def check():
        async with httpx2.AsyncClient(transport=range_transport(SMALL)) as client:
            async with await AsyncRangeBundle.open(URL, client=client) as bundle:
                selected = await bundle.select(f"{SITE}/page", {"accept-encoding": "gzip"})
                assert selected.stored_headers["content-encoding"] == "gzip"
                assert (await bundle.response(f"{SITE}/page", "identity")).status == 200
            assert not client.is_closed

    asyncio.run(check())


def test_unusable_responses_are_left_to_the_network():
    messages = []
    behind = httpx2.MockTransport(lambda request: httpx2.Response(299, content=b"from the network"))
    with (
        httpx2.Client(transport=range_transport(SMALL)) as client,
        RangeBundle.open(URL, client=client) as bundle,
        httpx2.Client(transport=BundleTransport(bundle, behind, origins=SITE, tell=messages.append)) as asking,
    ):
        assert asking.get(f"{SITE}/broken").status_code == 299
        assert asking.get(f"{SITE}/other").status_code == 299
        assert asking.get(f"{SITE}/coded", headers={"Accept-Encoding": "identity"}).status_code == 299
        assert asking.get(f"{SITE}/coded").status_code == 200

    async def ask():
        async with (
            httpx2.AsyncClient(transport=range_transport(SMALL)) as client,
            await AsyncRangeBundle.open(URL, client=client) as bundle,
            httpx2.AsyncClient(
                transport=AsyncBundleTransport(bundle, behind, origins=SITE, tell=messages.append)
            ) as asking,
        ):
            assert (await asking.get(f"{SITE}/broken")).status_code == 299
            assert (await asking.get(f"{SITE}/other")).status_code == 299
            assert (await asking.get(f"{SITE}/coded", headers={"Accept-Encoding": "identity"})).status_code == 299
            assert (await asking.get(f"{SITE}/coded")).status_code == 200

    asyncio.run(ask())
    assert [sentence.partition(": ")[0] for sentence in messages] == [f"{SITE}/broken"] * 2


def test_relative_urls_are_resolved_against_the_bundles_url():
    target = io.BytesIO()
    with BundleWriter(target, version="b2", relative_urls=True) as writer:
        writer.add("page", headers={"Content-Type": "text/html"}, payload=b"here")
    for options, url in [({}, "https://cdn.example/page"), ({"base_url": f"{SITE}/below/"}, f"{SITE}/below/page")]:
        for ranges in (True, False):
            with (
                httpx2.Client(transport=range_transport(target.getvalue(), ranges=ranges)) as client,
                RangeBundle.open(URL, client=client, **options) as bundle,
            ):
                assert bundle.response(url).payload == b"here"
    with httpx2.Client(transport=BundleTransport(URL, range_transport(target.getvalue()))) as client:
        assert client.get("https://cdn.example/page").content == b"here"


def test_redirects_from_https_to_http_are_refused():
    def answer(request):
        if request.url.scheme == "https":
            return httpx2.Response(302, headers={"Location": "http://cdn.example/x.wbn"})
        return httpx2.Response(200, headers=SERVED, content=SMALL)

    with (
        httpx2.Client(transport=httpx2.MockTransport(answer)) as client,
        pytest.raises(FetchError, match="redirected from https to http"),
    ):
        RangeBundle.open(URL, client=client)


def test_what_is_not_an_http_url_is_refused():
    for url in ("a.wbn", "/tmp/a.wbn", "ftp://example.com/a.wbn", None, 3, b"https://example.com/"):
        with pytest.raises(ConfigurationError, match=r"^expected an http or https URL of a bundle, got .* for files$"):
            RangeBundle.open(url)
