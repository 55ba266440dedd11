"""Transports that answer out of a bundle: both libraries, both kinds of client."""

import asyncio
import io
import threading
import time

import httpx2
import pytest

from headgate.agent.bundle import AsyncBundleTransport, BundleTransport, transport
from headgate.agent.bundle.transport import make_response, parse_request
from headgate.bundle.api import open_bundle
from headgate.bundle.files.writer import BundleWriter
from headgate.errors import ConfigurationError, FormatError, RetryLater
from tests import signers
from tests.bundle_site import LARGE, PAGE, SERVED, SITE

FROM = "headgate-source"
CDN = "https://cdn.example/x.wbn"
NOW = 1_800_000_000.0
FIRST, SECOND = 0.7 * 1.4, 0.7 * 1.4**2
"""Seconds of the first two pauses of the backoff, of which a draw of 0 takes nothing off."""


class TestAnswers:
    def test_response_comes_from_the_bundle(self, agent, content):
        response = agent.get(content, f"{SITE}/")
        assert (response.status_code, response.content) == (200, b"<p>home")
        assert dict(response.headers) == {
            "content-type": "text/html", "etag": '"page"', "x-content-type-options": "nosniff", FROM: "bundle",
            "content-length": "7",
        }  # fmt: skip
        assert agent.network_requests == []

    @pytest.mark.parametrize(
        "url", [f"{SITE}/?", f"{SITE}/other", "http://site.example/", "https://me:pw@site.example/"]
    )
    def test_missing_url_comes_from_the_network(self, agent, content, url):
        response = agent.get(content, url)
        assert (response.status_code, response.content) == (299, b"from the network")
        assert FROM not in response.headers
        assert len(agent.network_requests) == 1

    def test_accept_encoding_chooses_the_variant(self, agent, content):
        coded = agent.get(content, f"{SITE}/page")
        assert (coded.headers["content-encoding"], coded.content) == ("gzip", PAGE)
        plain = agent.get(content, f"{SITE}/page", fields={"Accept-Encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert plain.content == PAGE

    def test_malformed_response_is_reported_and_left_to_the_network(self, agent, content):
        messages = []
        assert agent.get(content, f"{SITE}/broken", tell=messages.append).status_code == 299
        (sentence,) = messages
        assert sentence.startswith(
            f"{SITE}/broken: the response in the bundle cannot be used: the response begins with 0x83"
        )

    def test_head_conditions_and_ranges_are_answered(self, agent, content):
        head = agent.get(content, f"{SITE}/large", method="HEAD")
        assert (head.status_code, head.headers["content-length"], head.content) == (200, str(len(LARGE)), b"")
        same = agent.get(content, f"{SITE}/", fields={"If-None-Match": '"page"'})
        assert (same.status_code, same.content) == (304, b"")
        part = agent.get(content, f"{SITE}/large", fields={"Range": "bytes=70000-140000"})
        assert (part.status_code, part.content) == (206, LARGE[70000:140001])
        assert part.headers["content-range"] == f"bytes 70000-140000/{len(LARGE)}"
        assert agent.network_requests == []

    def test_post_goes_to_the_network(self, agent, content):
        assert agent.get(content, f"{SITE}/", method="POST", content=b"x").status_code == 299

    def test_only_if_cached_never_uses_the_network(self, agent, content):
        for control in ("only-if-cached", "only-if-cached, max-stale"):
            assert agent.get(content, f"{SITE}/", fields={"Cache-Control": control}).content == b"<p>home"
        for url, control, options in [
            (f"{SITE}/other", "only-if-cached", {}),
            (f"{SITE}/", "only-if-cached, max-age=60", {}),
            (f"{SITE}/", "only-if-cached", {"origins": ["https://other.example"]}),
        ]:
            missing = agent.get(content, url, fields={"Cache-Control": control}, **options)
            assert (missing.status_code, missing.content) == (504, b"")
        assert agent.get(CDN, f"{SITE}/", origins="*", fields={"Cache-Control": control}).status_code == 504
        assert agent.network_requests == []

    def test_origins_limit_what_is_answered(self, agent, content):
        for origins in ([SITE], SITE, [f"{SITE}:443/path"], ["https://other.example", "*"], "*", None):
            assert agent.get(content, f"{SITE}/", origins=origins).status_code == 200
        for origins in (["http://site.example"], ["https://site.example:8443"], []):
            assert agent.get(content, f"{SITE}/", origins=origins).status_code == 299
        with pytest.raises(ConfigurationError, match="invalid origin 'site'; expected a URL such as"):
            agent.get(content, f"{SITE}/", origins=["site"])

    def test_bundle_may_be_a_path_an_open_one_or_bytes(self, agent, content, tmp_path):
        path = tmp_path / "site.wbn"
        path.write_bytes(content)
        for source in (path, str(path), content):
            assert agent.get(source, f"{SITE}/last").content == b"the last"
        with open_bundle(path) as bundle:
            assert agent.get(bundle, f"{SITE}/last").content == b"the last"
            assert bundle.response(f"{SITE}/last").payload == b"the last", "a bundle that was given stays open"

    def test_invalid_content_is_refused_at_once(self):
        with pytest.raises(FormatError):
            BundleTransport(b"no bundle")
        with pytest.raises(FileNotFoundError):
            BundleTransport("missing.wbn")

    def test_overwritten_file_is_an_error_of_the_library(self, agent, content, tmp_path):
        path = tmp_path / "site.wbn"
        path.write_bytes(content)
        with open_bundle(path) as whole:
            assert whole.response(f"{SITE}/last")

        def overwrite(request):
            path.write_bytes(content[:300])
            return agent.library.Response(301, headers={"location": f"{SITE}/large"})

        with pytest.raises(agent.library.ReadError, match="the file has been written to since it was opened"):
            agent.get(path, f"{SITE}/elsewhere", network=overwrite)

    def test_inner_transport_is_closed(self, content):
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


STORED = {
    "content-type": "text/html",
    "etag": '"page"',
    "last-modified": "Sun, 06 Nov 1994 08:49:37 GMT",
    "vary": "Accept-Encoding",
    "x-content-type-options": "nosniff",
}
LENGTH = 1000


def answer(method="GET", *, status=200, stored=STORED, **fields):
    """Return the response to a request with these fields from a stored one."""
    request = parse_request(method, SITE, {name.replace("_", "-"): value for name, value in fields.items()})
    assert request.is_answerable
    found = make_response(request, status, stored, LENGTH)
    if found is None:
        return None
    headers = {name.decode(): value.decode("latin-1") for name, value in found.fields}
    return found.status, headers, found.start, found.stop


class TestRequests:
    def test_requests_that_need_the_origin_are_not_answered(self):
        for method, fields in (
            ("POST", {}),
            ("OPTIONS", {}),
            ("get", {}),
            ("GET", {"Content-Length": "3"}),
            ("GET", {"transfer-encoding": "chunked"}),
            ("GET", {"if-match": '"page"'}),
            ("GET", {"if-unmodified-since": "Sun, 06 Nov 1994 08:49:37 GMT"}),
            ("GET", {"cache-control": "no-cache"}),
            ("GET", {"cache-control": "max-stale, No-Store"}),
            ("HEAD", {"cache-control": "max-age=0"}),
            ("GET", {"cache-control": "max-age = 60"}),
            ("GET", {"cache-control": "min-fresh=1"}),
            ("GET", {"pragma": "no-cache"}),
        ):
            assert not parse_request(method, SITE, fields).is_answerable, method

    def test_plain_requests_are_answered(self):
        for fields in (
            {},
            {"content-length": "0"},
            {"cache-control": "max-stale"},
            {"pragma": "no-cache", "cache-control": "no-transform"},
        ):
            for method in ("GET", "HEAD"):
                request = parse_request(method, SITE, fields)
                assert (request.is_answerable, request.only_stored) == (True, False), fields

    def test_fields_of_the_recorded_message_are_dropped(self):
        stored = {
            **STORED, "transfer-encoding": "chunked", "connection": "close, x-hop", "content-length": "7", "x-hop": "1",
            "set-cookie": "session=recorded", "date": "Sun, 06 Nov 1994 08:49:37 GMT", "age": "9",
        }  # fmt: skip
        assert answer(stored=stored) == answer()

    def test_unaccepted_coding_is_left_to_the_network(self):
        for coding, accepted, is_readable in (
            (None, "br", True),
            ("identity", "br", True),
            ("gzip", None, True),
            ("gzip", "gzip, br", True),
            ("x-gzip", "gzip", False),  # neither library knows the old name
            ("GZIP", "Gzip;q=0.5", True),
            ("gzip", "*", True),
            ("br", "", False),
            ("br", "gzip, br;q=0", False),
            ("br", "*, br;q=0", False),
            ("gzip, br", "gzip", False),
            ("gzip, br", "br, gzip", True),
        ):
            stored = STORED if coding is None else {**STORED, "content-encoding": coding}
            fields = {} if accepted is None else {"accept_encoding": accepted}
            assert (answer(stored=stored, **fields) is not None) == is_readable, coding


@pytest.mark.parametrize("status", [100, 206, 304, 600])
def test_status_that_needs_another_request_is_left_to_the_network(agent, status):
    target, messages = io.BytesIO(), []
    with BundleWriter(target) as writer:
        writer.add(f"{SITE}/", status=status, headers={"content-type": "text/plain"}, payload=b"part")
    assert agent.get(target.getvalue(), f"{SITE}/", tell=messages.append).status_code == 299
    assert f"its status {status} is" in messages[0]


def served(library, content, **changed):
    """A network that has the bundle at one URL, and what it was asked for."""
    fetched = []

    def network(request):
        fetched.append(str(request.url))
        if str(request.url) == CDN:
            return library.Response(301, headers={"Location": "/y.wbn"})
        if not fetched[-1].endswith(".wbn"):
            return library.Response(299, content=b"from the network")
        fields = {name: value for name, value in {**SERVED, **changed}.items() if value}
        return library.Response(200, headers=fields, stream=library.ByteStream(content))

    return network, fetched


class TestFetching:
    def test_bundle_is_fetched_with_the_first_request_that_it_may_answer(self, agent, content):
        network, fetched = served(agent.library, content)
        assert agent.get(CDN, f"{SITE}/", origins="*", network=network).content == b"<p>home"
        assert fetched == [CDN, "https://cdn.example/y.wbn"]
        fetched.clear()
        agent.get(CDN, f"{SITE}/", origins="*", network=network, method="POST")
        assert fetched == [f"{SITE}/"]

    def test_fetched_bundle_answers_for_its_own_origin_only(self, agent, content):
        network, fetched = served(agent.library, content)
        own = f"{SITE}:443/below/site.wbn"
        assert agent.get(own, f"{SITE}/last", network=network).content == b"the last"
        fetched.clear()
        for source in (CDN, "http://site.example/site.wbn", "https://site.example:8443/site.wbn"):
            agent.get(source, f"{SITE}/last", network=network)
        assert fetched == [f"{SITE}/last"] * 3, "what it may not answer for is no reason to fetch it"
        for origins in ([SITE], "*"):
            assert agent.get(CDN, f"{SITE}/last", network=network, origins=origins).content == b"the last"

    def test_sections_of_a_fetched_bundle_are_limited(self, agent, content, monkeypatch):
        """An index takes ten times its bytes in memory; a file was chosen by the caller."""
        monkeypatch.setattr(transport, "MAX_UNTRUSTED_SECTION", 100)
        network, fetched = served(agent.library, content)
        messages = []
        agent.get(f"{SITE}/below/site.wbn", f"{SITE}/last", network=network, tell=messages.append)
        assert "the section 'index' of" in messages[0]
        assert "exceeds the limit of 100" in messages[0]
        assert fetched[-1] == f"{SITE}/last"
        assert agent.get(content, f"{SITE}/last").content == b"the last"

    def test_redirected_bundle_needs_origins(self, agent, content):
        """The first server says where the bundle is; whose responses are in it only the user can say."""

        def network(request):
            if request.url.host == "site.example":
                return agent.library.Response(302, headers={"Location": "https://cdn.example/y.wbn"})
            return agent.library.Response(200, headers=SERVED, content=content)

        messages = []
        source = f"{SITE}/site.wbn"
        found = agent.get(
            source, f"{SITE}/last", network=network, client={"follow_redirects": False}, tell=messages.append
        )
        assert found.status_code == 302
        assert "redirected to https://cdn.example/y.wbn, which is another origin" in messages[0]
        assert agent.get(source, f"{SITE}/last", network=network, origins=[SITE]).content == b"the last"

    @pytest.mark.parametrize(
        ("changed", "options", "why"),
        [
            ({"X-Content-Type-Options": ""}, {}, "expected X-Content-Type-Options: nosniff"),
            ({"Content-Type": "text/plain"}, {}, "expected Content-Type application/webbundle, got 'text/plain'"),
            ({}, {"max_bytes": 1000}, "longer than the limit of 1000 bytes"),
        ],
    )
    def test_bundle_that_cannot_be_used_leaves_requests_to_the_network(self, agent, content, changed, options, why):
        network, fetched = served(agent.library, content, **changed)
        messages = []
        found = agent.get(CDN, f"{SITE}/", origins="*", network=network, tell=messages.append, **options)
        assert found.status_code == 299
        assert why in messages[0]
        assert fetched[-1] == f"{SITE}/"
        if "expected" in why:
            lax = agent.get(CDN, f"{SITE}/", origins="*", network=network, require_nosniff=False)
            assert lax.content == b"<p>home"

    def test_redirect_to_http_is_refused(self, agent, content):
        def network(request):
            if request.url.scheme == "https" and request.url.path == "/x.wbn":
                return agent.library.Response(302, headers={"Location": "http://cdn.example/x.wbn"})
            return served(agent.library, content)[0](request)

        messages = []
        assert agent.get(CDN, f"{SITE}/", origins="*", network=network, tell=messages.append).status_code == 299
        assert "redirected from https to http" in messages[0]

    def test_hold_of_the_inner_transport_is_not_a_failure(self, agent, content):
        network, _ = served(agent.library, content)
        held, messages = [True], []

        def polite(request):
            if str(request.url) == CDN and held:
                held.clear()
                raise RetryLater(NOW, "backoff", CDN, NOW)
            return network(request)

        results = ask_twice(agent, polite, tell=messages.append)
        assert [found.content for found in results] == [b"from the network", b"<p>home"]
        assert messages == []


def ask_twice(agent, network, source=CDN, between=lambda: None, times=2, **options):
    """Send requests for the home page through one transport, one after another; return the responses."""
    options = {"origins": "*", **options}
    inner = agent.library.MockTransport(network)
    if not agent.is_async:
        with agent.library.Client(transport=BundleTransport(source, inner, **options)) as client:
            found = []
            for _ in range(times):
                found.append(client.get(f"{SITE}/"))
                between()
            return found

    async def ask():
        found = []
        async with agent.library.AsyncClient(transport=AsyncBundleTransport(source, inner, **options)) as client:
            for _ in range(times):
                found.append(await client.get(f"{SITE}/"))
                between()
        return found

    return asyncio.run(ask())


class TestFailures:
    def failing(self, agent, fields, *, steps, draw=0.0):
        """Return how many fetches each request caused; the clock moves by `steps` between requests."""
        now, fetches, seen = [NOW], [], []

        def network(request):
            if str(request.url) != CDN:
                return agent.library.Response(299)
            fetches.append(1)
            return agent.library.Response(503, headers=fields)

        moves = iter([*steps, 0.0])

        def between():
            seen.append(len(fetches))
            now[0] += next(moves)

        found = ask_twice(
            agent, network, between=between, times=len(steps) + 1, clock=lambda: now[0], draw=lambda: draw
        )
        assert {response.status_code for response in found} == {299}
        return seen

    def test_failed_bundle_is_fetched_again_after_the_backoff(self, agent):
        steps = [0.0, FIRST * 0.999, FIRST * 0.002, SECOND * 0.999, SECOND * 0.002]
        assert self.failing(agent, {}, steps=steps) == [1, 1, 1, 2, 2, 3]

    def test_retry_after_lengthens_the_pause(self, agent):
        assert self.failing(agent, {"retry-after": "120"}, steps=[119.0, 1.1]) == [1, 1, 2]
        assert self.failing(agent, {"retry-after": "0"}, steps=[FIRST * 0.99, FIRST * 0.02]) == [1, 1, 2]

    def test_fetch_that_takes_too_long_is_given_up(self, agent):
        """The client's own timeout is for each byte, so it limits neither a head nor a body that comes byte by byte."""
        released, messages = threading.Event(), []

        def network(request):
            if str(request.url) == CDN:
                released.wait(30)
            return agent.library.Response(299)

        async def slow(request):
            if str(request.url) == CDN:
                await asyncio.sleep(30)
            return agent.library.Response(299)

        hanging = slow if agent.is_async else network
        (found,) = ask_twice(agent, hanging, times=1, timeout=0.05, tell=messages.append)
        released.set()
        assert found.status_code == 299
        assert messages == [f"{CDN}: not fetched within 0.05 s"]


def test_requests_to_other_origins_do_not_wait_for_the_bundle(content):
    released, results = threading.Event(), []

    def network(request):
        if str(request.url) == f"{SITE}/x.wbn":
            released.wait(30)
            return httpx2.Response(200, headers=SERVED, content=content)
        return httpx2.Response(299)

    with httpx2.Client(transport=BundleTransport(f"{SITE}/x.wbn", httpx2.MockTransport(network))) as client:
        waiting = [
            threading.Thread(target=lambda: results.append(client.get(f"{SITE}/last").content)) for _ in range(4)
        ]
        for thread in waiting:
            thread.start()
        time.sleep(0.05)
        assert client.get("https://unrelated.example/").status_code == 299
        assert client.post(f"{SITE}/last").status_code == 299
        assert results == []
        released.set()
        for thread in waiting:
            thread.join(30)
    assert results == [b"the last"] * 4


def test_concurrent_tasks_fetch_one_bundle(content):
    fetched = []

    async def network(request):
        fetched.append(str(request.url))
        await asyncio.sleep(0.01)
        return httpx2.Response(200, headers=SERVED, content=content)

    async def ask_all():
        transport = AsyncBundleTransport(f"{SITE}/x.wbn", httpx2.MockTransport(network))
        async with httpx2.AsyncClient(transport=transport) as client:
            return await asyncio.gather(*(client.get(f"{SITE}/last") for _ in range(8)))

    assert [response.content for response in asyncio.run(ask_all())] == [b"the last"] * 8
    assert fetched == [f"{SITE}/x.wbn"]


def test_signed_response_is_decoded_and_a_changed_one_left_to_the_network(agent):
    target, long = io.BytesIO(), b"".join(b"%07d\n" % number for number in range(40_000))
    with BundleWriter(target, version="b1", primary_url=f"{SITE}/", manifest_url=f"{SITE}/") as writer:
        writer.add(f"{SITE}/", headers={"content-type": "text/plain", "etag": '"long"'}, payload=long)
    signed = signers.vouched(target.getvalue(), "site.example")
    messages = []
    for fields in ({}, {"Range": "bytes=4000-200000"}, {"Range": "bytes=-5"}, {"If-None-Match": '"long"'}):
        before, after = (agent.get(source, f"{SITE}/", fields=fields) for source in (target.getvalue(), signed))
        assert before.headers[FROM] == "bundle"
        assert (after.status_code, after.headers, after.content) == (before.status_code, before.headers, before.content)
        broken = agent.get(signers.tampered(signed, f"{SITE}/"), f"{SITE}/", fields=fields, tell=messages.append)
        assert broken.status_code == 299
    record = len(long) // 4096
    assert all(f"record {record} is not what its digest says at byte " in message for message in messages)
    assert len(messages) == 4
