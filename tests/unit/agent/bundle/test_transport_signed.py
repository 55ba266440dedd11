"""Signed responses are decoded and verified, or left to the network."""

import asyncio
import gzip
import io

import httpx2
import pytest

from headgate.agent.bundle import AsyncBundleTransport, AsyncRangeBundle, BundleTransport, RangeBundle
from headgate.bundle.files.writer import BundleWriter
from tests import signers
from tests.bundle_site import SITE, range_transport

URL = "https://cdn.example/x.wbn"
LONG = b"".join(b"%07d\n" % number for number in range(40_000))
ZIPPED = gzip.compress(LONG, mtime=0)


def make():
    target = io.BytesIO()
    with BundleWriter(target, version="b1", primary_url=f"{SITE}/", manifest_url=f"{SITE}/") as writer:
        typed = {"content-type": "text/plain"}
        writer.add(f"{SITE}/", headers={**typed, "etag": '"home"', "content-length": "4"}, payload=b"home")
        writer.add(f"{SITE}/zipped", headers={**typed, "content-encoding": "gzip"}, payload=ZIPPED)
        writer.add(f"{SITE}/empty", headers=typed, payload=b"")
        writer.add(f"{SITE}/gone", status=410, headers=typed, payload=b"gone")
        writer.add(f"{SITE}/long", headers={**typed, "etag": '"long"'}, payload=LONG)
        for key in ("en", "fr"):
            headers = {**typed, "content-language": key}
            variants = {"variants": "Accept-Language;en;fr", "variant_key": key}
            writer.add(f"{SITE}/page", headers=headers, payload=key.encode(), **variants)
        writer.add(f"{SITE}/last", headers=typed, payload=b"last")
    return target.getvalue()


PLAIN = make()
SIGNED = signers.vouched(PLAIN, "site.example")
BROKEN = signers.tampered(signers.tampered(SIGNED, f"{SITE}/long"), f"{SITE}/page", "fr")


class Asking:
    """Sends one request; `messages` has the reasons why responses were left to the network."""

    def __init__(self, kind, is_async):
        self.kind = kind
        self.is_async = is_async
        self.messages = []

    def __call__(self, content, url, *, method="GET", fields=(), **options):
        options = {"tell": self.messages.append, "origins": [SITE], **options}
        behind = httpx2.MockTransport(lambda request: httpx2.Response(299, content=b"from the network"))
        given = {"method": method, "url": f"{SITE}{url}", "headers": dict(fields)}
        if self.is_async:
            return asyncio.run(self._aask(content, behind, given, options))
        if self.kind == "memory":
            with httpx2.Client(transport=BundleTransport(content, behind, **options)) as client:
                return client.request(**given)
        with (
            httpx2.Client(transport=range_transport(content, ranges=self.kind == "ranges")) as fetching,
            RangeBundle.open(URL, client=fetching) as bundle,
            httpx2.Client(transport=BundleTransport(bundle, behind, **options)) as client,
        ):
            return client.request(**given)

    async def _aask(self, content, behind, given, options):
        if self.kind == "memory":
            async with httpx2.AsyncClient(transport=AsyncBundleTransport(content, behind, **options)) as client:
                return await client.request(**given)
        async with (
            httpx2.AsyncClient(transport=range_transport(content, ranges=self.kind == "ranges")) as fetching,
            await AsyncRangeBundle.open(URL, client=fetching) as bundle,
            httpx2.AsyncClient(transport=AsyncBundleTransport(bundle, behind, **options)) as client,
        ):
            return await client.request(**given)


@pytest.fixture(params=["memory", "ranges", "whole"])
def kind(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def ask(request, kind):
    return Asking(kind, request.param)


ASKED = [
    ("/", "GET", {}), ("/", "HEAD", {}), ("/", "GET", {"If-None-Match": '"home"'}),
    ("/zipped", "GET", {}), ("/empty", "GET", {}), ("/gone", "GET", {}), ("/last", "GET", {}),
    ("/page", "GET", {"Accept-Language": "fr"}),
    ("/long", "GET", {}), ("/long", "HEAD", {}), ("/long", "GET", {"Range": "bytes=4000-200000"}),
    ("/long", "GET", {"Range": "bytes=-5"}), ("/long", "GET", {"Range": "bytes=9999999-"}),
    ("/long", "GET", {"Range": "bytes=0-9", "If-Range": '"long"'}),
]  # fmt: skip


@pytest.mark.parametrize(("url", "method", "fields"), ASKED)
def test_signed_response_is_decoded(ask, url, method, fields):
    before = ask(PLAIN, url, method=method, fields=fields)
    after = ask(SIGNED, url, method=method, fields=fields)
    assert before.headers["headgate-source"] == "bundle"
    assert (after.status_code, after.headers, after.content) == (before.status_code, before.headers, before.content)
    assert ask.messages == []


@pytest.mark.parametrize("fields", [{}, {"Range": "bytes=0-9"}])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_changed_response_is_left_to_the_network(ask, method, fields):
    for url, record in (("/long", len(LONG) // 4096), ("/page", 0)):
        response = ask(BROKEN, url, method=method, fields={"Accept-Language": "fr", **fields})
        assert response.status_code == 299
        message = ask.messages.pop()
        assert message.startswith(f"{SITE}{url}: the response in the bundle cannot be used: ")
        assert f"record {record} is not what its digest says at byte " in message
    assert ask(BROKEN, "/page", fields={"Accept-Language": "en"}).content == b"en"
    assert ask.messages == []


def test_message_has_the_offset(ask):
    ask(BROKEN, "/page", fields={"Accept-Language": "fr"})
    (sentence,) = ask.messages
    place = int(sentence.partition(" at byte ")[2].split()[0])
    assert BROKEN[place - 8 :].startswith((4096).to_bytes(8, "big") + b"f")


@pytest.mark.parametrize("ranges", [True, False])
def test_offset_counts_what_precedes_the_bundle(ranges):
    messages = []
    # A block without signatures: array of 4, magic, version, attributes, an empty list.
    block = bytes.fromhex("8448f09f968bf09f93a644326200 00a16b77656242756e646c654964") + b"\x61x" + b"\x80"
    content = block + BROKEN
    behind = httpx2.MockTransport(lambda request: httpx2.Response(299))
    with (
        httpx2.Client(transport=range_transport(content, ranges=ranges)) as fetching,
        RangeBundle.open(URL, client=fetching) as bundle,
        httpx2.Client(transport=BundleTransport(bundle, behind, origins=[SITE], tell=messages.append)) as client,
    ):
        assert client.get(f"{SITE}/page", headers={"Accept-Language": "fr"}).status_code == 299
    place = int(messages[0].partition(" at byte ")[2].split()[0])
    assert content[place - 8 :].startswith((4096).to_bytes(8, "big") + b"f")


def test_signed_response_over_the_limit_is_left_to_the_network(ask, kind):
    most = len(LONG) + 1_000
    response = ask(SIGNED, "/long", max_bytes=most)
    if kind == "memory":
        assert response.content == LONG
    else:
        assert response.status_code == 299
        assert f"longer than the limit of {most} bytes" in ask.messages[0]
    assert ask(SIGNED, "/last", max_bytes=most).content == b"last"


def test_long_response_is_not_a_failure_of_the_server():
    behind = httpx2.MockTransport(lambda request: httpx2.Response(299))
    with (
        httpx2.Client(transport=range_transport(SIGNED)) as fetching,
        RangeBundle.open(URL, client=fetching) as bundle,
        httpx2.Client(transport=BundleTransport(bundle, behind, origins=[SITE], max_bytes=len(LONG))) as client,
    ):
        assert client.get(f"{SITE}/long").status_code == 299
        assert client.get(f"{SITE}/last").content == b"last"


@pytest.mark.parametrize(("most", "said"), [(1 << 20, ": gone"), (150_000, "longer than the limit of 150000 bytes")])
def test_truncated_signed_response_is_left_to_the_network(most, said):
    """A response over the limit is not requested."""
    messages = []
    honest = range_transport(SIGNED)

    def answer(request):
        response = honest.handle_request(request)
        if not request.headers["range"].startswith("bytes=0-"):

            def stream():
                yield b"".join(response.iter_raw())[:100_000]
                raise httpx2.ReadError("gone")

            return httpx2.Response(206, headers=response.headers, content=stream())
        return response

    behind = httpx2.MockTransport(lambda request: httpx2.Response(299))
    with (
        httpx2.Client(transport=httpx2.MockTransport(answer)) as fetching,
        RangeBundle.open(URL, client=fetching) as bundle,
        httpx2.Client(
            transport=BundleTransport(bundle, behind, origins="*", max_bytes=most, tell=messages.append)
        ) as client,
    ):
        assert client.get(f"{SITE}/long").status_code == 299
    assert said in messages[0]


def test_readers_return_stored_bytes():
    with (
        httpx2.Client(transport=range_transport(SIGNED)) as client,
        RangeBundle.open(URL, client=client) as bundle,
    ):
        response = bundle.response(f"{SITE}/last")
        assert response.headers["content-encoding"] == "mi-sha256-03"
        assert bytes(response.payload) == (4096).to_bytes(8, "big") + b"last"
