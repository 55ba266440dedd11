import asyncio
import threading

import httpx2
import pytest

from headgate.agent.bundle import AsyncBundleTransport, AsyncRangeBundle, BundleTransport, RangeBundle
from headgate.bundle.api import open_bundle
from headgate.errors import ConfigurationError, FetchError, FormatError
from tests.bundle_site import LARGE, PAGE, SERVED, SITE

FROM = "headgate-source"
CDN = "https://cdn.example/x.wbn"


def test_response_comes_from_the_bundle(agent, content):
    response = agent.get(content, f"{SITE}/")
    assert (response.status_code, response.content) == (200, b"<p>home")
    assert dict(response.headers) == {
        "content-type": "text/html", "etag": '"page"', "x-content-type-options": "nosniff", FROM: "bundle",
        "content-length": "7",
    }  # fmt: skip
    assert agent.network_requests == []


@pytest.mark.parametrize("url", [f"{SITE}/#part", f"{SITE}:443/", "https://SITE.example", f"{SITE}/x/.."])
def test_url_is_normalized_without_fragment(agent, content, url):
    assert agent.get(content, url).content == b"<p>home"


@pytest.mark.parametrize("url", [f"{SITE}/?", f"{SITE}/other", "http://site.example/", "https://me:pw@site.example/"])
def test_missing_url_comes_from_the_network(agent, content, url):
    response = agent.get(content, url)
    assert (response.status_code, response.content) == (299, b"from the network")
    assert FROM not in response.headers
    assert len(agent.network_requests) == 1


def test_large_payload_is_read_in_chunks(agent, content):
    assert agent.get(content, f"{SITE}/large").content == LARGE
    with open_bundle(content) as bundle, httpx2.Client(transport=BundleTransport(bundle)) as client:
        with client.stream("GET", f"{SITE}/large") as response:
            chunks = list(response.iter_raw())
        assert len(chunks) > 1
        assert max(map(len, chunks)) <= 65536
        assert b"".join(chunks) == LARGE


def test_redirects_within_the_bundle_are_followed(agent, content):
    response = agent.get(content, f"{SITE}/moved")
    assert [hop.status_code for hop in response.history] == [301]
    assert (str(response.url), response.content) == (f"{SITE}/", b"<p>home")
    assert agent.network_requests == []


def test_accept_encoding_chooses_the_variant(agent, content):
    coded = agent.get(content, f"{SITE}/page")
    assert (coded.headers["content-encoding"], coded.content) == ("gzip", PAGE)
    plain = agent.get(content, f"{SITE}/page", fields={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == PAGE


def test_unaccepted_coding_is_left_to_the_network(agent, content):
    assert agent.get(content, f"{SITE}/coded").content == PAGE
    assert agent.network_requests == []
    assert agent.get(content, f"{SITE}/coded", fields={"Accept-Encoding": "identity"}).status_code == 299


def test_malformed_response_is_reported_and_left_to_the_network(agent, content):
    messages = []
    assert agent.get(content, f"{SITE}/broken", tell=messages.append).status_code == 299
    (sentence,) = messages
    assert sentence.startswith(
        f"{SITE}/broken: the response in the bundle cannot be used: the response begins with 0x83"
    )


@pytest.mark.parametrize(
    ("method", "fields", "body"),
    [
        ("POST", {}, b"x"),
        ("GET", {}, b"x"),
        ("DELETE", {}, None),
        ("GET", {"Cache-Control": "no-cache"}, None),
        ("GET", {"If-Match": '"page"'}, None),
    ],
)
def test_requests_that_need_the_origin_go_to_the_network(agent, content, method, fields, body):
    assert agent.get(content, f"{SITE}/", method=method, fields=fields, content=body).status_code == 299


def test_head_conditions_and_ranges_are_answered(agent, content):
    head = agent.get(content, f"{SITE}/large", method="HEAD")
    assert (head.status_code, head.headers["content-length"], head.content) == (200, str(len(LARGE)), b"")
    same = agent.get(content, f"{SITE}/", fields={"If-None-Match": '"page"'})
    assert (same.status_code, same.content) == (304, b"")
    part = agent.get(content, f"{SITE}/large", fields={"Range": "bytes=70000-140000"})
    assert (part.status_code, part.content) == (206, LARGE[70000:140001])
    assert part.headers["content-range"] == f"bytes 70000-140000/{len(LARGE)}"
    assert agent.network_requests == []


def test_only_if_cached_does_not_use_the_network(agent, content):
    fields = {"Cache-Control": "only-if-cached"}
    assert agent.get(content, f"{SITE}/", fields=fields).content == b"<p>home"
    missing = agent.get(content, f"{SITE}/other", fields=fields)
    assert (missing.status_code, missing.content) == (504, b"")
    assert agent.network_requests == []


def test_origins_limit_what_is_answered(agent, content):
    for origins in ([SITE], SITE, [f"{SITE}:443/path"], ["https://other.example", "*"], "*", None):
        assert agent.get(content, f"{SITE}/", origins=origins).status_code == 200
    for origins in (["http://site.example"], ["https://site.example:8443"], []):
        assert agent.get(content, f"{SITE}/", origins=origins).status_code == 299
    with pytest.raises(ConfigurationError, match="invalid origin 'site'; expected a URL such as"):
        agent.get(content, f"{SITE}/", origins=["site"])


def test_fetched_bundle_answers_for_its_own_origin_only(agent, content):
    network, fetched = served(content)
    network = network(agent.library)
    own = f"{SITE}:443/below/site.wbn"
    assert agent.get(own, f"{SITE}/last", network=network).content == b"the last"
    fetched.clear()
    for source in (CDN, "http://site.example/site.wbn", "https://site.example:8443/site.wbn"):
        agent.get(source, f"{SITE}/last", network=network)
    assert fetched == [f"{SITE}/last"] * 3, "what it may not answer for is no reason to fetch it"
    assert agent.get(CDN, f"{SITE}/last", network=network, origins=[SITE]).content == b"the last"
    assert agent.get(CDN, f"{SITE}/last", network=network, origins="*").content == b"the last"


def test_redirected_bundle_needs_origins(agent, content):
    """The first server says where the bundle is; whose responses are in it only the user can say."""

    def network(request):
        if request.url.host == "site.example":
            return agent.library.Response(302, headers={"Location": "https://cdn.example/y.wbn"})
        return agent.library.Response(200, headers=SERVED, content=content)

    source = f"{SITE}/site.wbn"
    with pytest.raises(FetchError, match=r"redirected to https://cdn\.example/y\.wbn, which is another origin"):
        agent.get(source, f"{SITE}/last", network=network)
    assert agent.get(source, f"{SITE}/last", network=network, origins=[SITE]).content == b"the last"


def test_range_bundle_answers_for_its_own_origin_only(agent, content):
    def network(request):
        return agent.library.Response(200, headers=SERVED, content=content)

    def opened(url):
        if not agent.is_async:
            return RangeBundle.open(url, client=agent.library.Client(transport=agent.library.MockTransport(network)))
        client = agent.library.AsyncClient(transport=agent.library.MockTransport(network))
        return asyncio.run(AsyncRangeBundle.open(url, client=client))

    assert agent.get(opened(f"{SITE}/site.wbn"), f"{SITE}/last").content == b"the last"
    assert agent.get(opened(CDN), f"{SITE}/last").status_code == 299
    assert agent.get(opened(CDN), f"{SITE}/last", origins=[SITE]).content == b"the last"


def test_bundle_may_be_a_path_an_open_one_or_bytes(agent, content, tmp_path):
    path = tmp_path / "site.wbn"
    path.write_bytes(content)
    for source in (path, str(path), content):
        assert agent.get(source, f"{SITE}/last").content == b"the last"
    with open_bundle(path) as bundle:
        assert agent.get(bundle, f"{SITE}/last").content == b"the last"
        assert bundle.response(f"{SITE}/last").payload == b"the last", "a bundle that was given stays open"


def test_invalid_content_is_refused_at_once():
    with pytest.raises(FormatError):
        BundleTransport(b"no bundle")
    with pytest.raises(FileNotFoundError):
        BundleTransport("missing.wbn")


def served(content, **changed):
    """A network that has the bundle at one URL."""
    fetched = []

    def network(library):
        def answer(request):
            fetched.append(str(request.url))
            if str(request.url) == "https://cdn.example/x.wbn":
                return library.Response(301, headers={"Location": "/y.wbn"})
            fields = {name: value for name, value in {**SERVED, **changed}.items() if value}
            return library.Response(200, headers=fields, content=content)

        return answer

    return network, fetched


def test_bundle_is_fetched_once_with_the_first_request(agent, content):
    network, fetched = served(content)
    network = network(agent.library)
    assert agent.get(CDN, f"{SITE}/", origins="*", network=network).content == b"<p>home"
    assert fetched == ["https://cdn.example/x.wbn", "https://cdn.example/y.wbn"]
    fetched.clear()
    agent.get(CDN, f"{SITE}/", origins="*", network=network, method="POST")
    assert fetched == [f"{SITE}/"]


@pytest.mark.parametrize(
    "changed", [{"X-Content-Type-Options": ""}, {"Content-Type": "text/plain"}, {"Content-Type": ""}]
)
def test_bundle_served_as_another_type_is_refused_by_default(agent, content, changed):
    network, fetched = served(content, **changed)
    network = network(agent.library)
    with pytest.raises(FetchError, match=r"^https://cdn\.example/y\.wbn: "):
        agent.get(CDN, f"{SITE}/", origins="*", network=network)
    lax = agent.get(CDN, f"{SITE}/", origins="*", network=network, require_nosniff=False)
    assert lax.content == b"<p>home"
    assert f"{SITE}/" not in fetched


def test_failed_fetch_of_a_bundle_is_raised(agent, content):
    def network(request):
        return agent.library.Response(404)

    with pytest.raises(FetchError, match="answered 404, expected a bundle"):
        agent.get(CDN, f"{SITE}/", origins="*", network=network)
    network, _ = served(content)
    with pytest.raises(FetchError, match="longer than the limit of 1000 bytes"):
        agent.get(CDN, f"{SITE}/", origins="*", network=network(agent.library), max_bytes=1000)
    network, _ = served(b"not a bundle at all")
    with pytest.raises(FormatError):
        agent.get(CDN, f"{SITE}/", origins="*", network=network(agent.library))


def test_concurrent_requests_fetch_one_bundle(content):
    network, fetched = served(content)
    answer = network(httpx2)
    slow = threading.Event()

    def waits(request):
        slow.wait(0.05)
        return answer(request)

    results = []
    with httpx2.Client(
        transport=BundleTransport("https://cdn.example/y.wbn", origins=[SITE], inner=httpx2.MockTransport(waits))
    ) as client:
        threads = [
            threading.Thread(target=lambda: results.append(client.get(f"{SITE}/last").content)) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [b"the last"] * 8
    assert fetched == ["https://cdn.example/y.wbn"]

    async def ask_all():
        async def awaits(request):
            await asyncio.sleep(0.01)
            return answer(request)

        transport = AsyncBundleTransport(
            "https://cdn.example/y.wbn", origins=[SITE], inner=httpx2.MockTransport(awaits)
        )
        async with httpx2.AsyncClient(transport=transport) as client:
            return await asyncio.gather(*(client.get(f"{SITE}/last") for _ in range(8)))

    fetched.clear()
    assert [response.content for response in asyncio.run(ask_all())] == [b"the last"] * 8
    assert fetched == ["https://cdn.example/y.wbn"]


def test_range_bundle_of_the_other_kind_is_refused():
    with pytest.raises(ConfigurationError, match="needs an AsyncBundleTransport"):
        BundleTransport(AsyncRangeBundle.__new__(AsyncRangeBundle))
    with pytest.raises(ConfigurationError, match="needs a BundleTransport"):
        AsyncBundleTransport(RangeBundle.__new__(RangeBundle))


def test_inner_transport_is_closed(content):
    class Inner(httpx2.MockTransport):
        closed = 0

        def close(self):
            self.closed += 1

        async def aclose(self):
            self.closed += 1

    inner = Inner(lambda request: httpx2.Response(200))
    with httpx2.Client(transport=BundleTransport(content, inner)):
        pass
    assert inner.closed == 1

    async def ask():
        async with httpx2.AsyncClient(transport=AsyncBundleTransport(content, inner)):
            pass

    asyncio.run(ask())
    assert inner.closed == 2
