import gzip
import zlib

import pytest

from headgate.agent import Courtesy
from headgate.agent.bundle import Limits, collect, read_url_list
from headgate.agent.bundle.fetcher import Fetcher
from headgate.agent.httpx import Transport
from headgate.bundle import Exchange
from headgate.bundle.files.payloads import SpooledPayload
from headgate.errors import ConfigurationError, FetchError
from headgate.fetch.pace import USER_AGENT

HTML = {"Content-Type": "text/html"}


class Web:
    """A network of pages with a clock; records requests, pauses and messages."""

    def __init__(self, library, pages, monkeypatch):
        self.library = library
        monkeypatch.setattr("headgate.agent.wait.time.sleep", self.sleep)
        self.pages = pages
        self.requests = []
        self.slept = []
        self.messages = []
        self.now = 1_000_000.0

    def answer(self, request):
        url = str(request.url)
        self.requests.append(url)
        found = self.pages.get(url, (404, {}, b""))
        if isinstance(found, list):
            found = found.pop(0)
        if isinstance(found, Exception):
            raise found
        status, fields, content = found
        return self.library.Response(status, headers=fields, stream=self.library.ByteStream(content))

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds

    def collect(self, *urls, wait=60.0, **options):
        client = self.library.Client(transport=self.library.MockTransport(self.answer))
        courtesy = Courtesy(wait=wait, retry=2, clock=lambda: self.now, draw=lambda: 0.0)
        return collect(urls, client=client, courtesy=courtesy, tell=self.messages.append, **options)


@pytest.fixture
def web(library, monkeypatch):
    return lambda pages: Web(library, pages, monkeypatch)


def test_each_url_is_fetched_once_in_order(web):
    fields = {**HTML, "Set-Cookie": "a=b", "Transfer-Encoding": "chunked", "Age": "7", "ETag": '"x"'}
    pages = web({"https://a.example/": (200, fields, b"a"), "https://b.example/": (200, {}, b"b")})
    collected = pages.collect("https://b.example", "https://a.example/", "https://B.example:443/#part")
    assert list(collected) == [
        Exchange("https://b.example/", 200, {"content-type": "application/octet-stream"}, b"b"),
        Exchange("https://a.example/", 200, {"content-type": "text/html", "etag": '"x"'}, b"a"),
    ]
    assert (collected.collected, collected.failed, pages.messages) == (2, 0, [])
    assert pages.requests == ["https://b.example/", "https://a.example/"]


def test_redirects_are_collected_with_their_targets(web):
    pages = web({
        "https://a.example/": (301, {"Location": "/b"}, b""),
        "https://a.example/b": (307, {"Location": "https://b.example/#part", **HTML}, b"moved"),
        "https://b.example/": (200, HTML, b"here"),
    })  # fmt: skip
    found = list(pages.collect("https://a.example/", "https://a.example/b"))
    assert [(exchange.url, exchange.status, exchange.headers.get("location")) for exchange in found] == [
        ("https://a.example/", 301, "/b"),
        ("https://a.example/b", 307, "https://b.example/#part"),
        ("https://b.example/", 200, None),
    ]
    assert found[0].headers["content-type"] == "application/octet-stream", "3.4 step 9 asks for one"


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("ftp://b.example/", "not http or https"),
        ("http://b.example/", "redirects from https to http://b.example/"),
        ("https://me:pw@b.example/", "a user name or a password"),
        ("https://:99999/", "not a URL"),
    ],
)
def test_unsafe_redirect_is_kept_and_reported(web, location, why):
    pages = web({"https://a.example/": (302, {"Location": location}, b""), "https://c.example/": (200, HTML, b"c")})
    collected = pages.collect("https://a.example/", "https://c.example/")
    assert [exchange.url for exchange in collected] == ["https://a.example/", "https://c.example/"]
    assert (collected.collected, collected.failed) == (1, 1)
    assert why in pages.messages[0]
    assert pages.requests == ["https://a.example/", "https://c.example/"]


def test_circular_and_endless_redirects_end(web):
    circle = {
        "https://a.example/": (302, {"Location": "/b"}, b""),
        "https://a.example/b": (302, {"Location": "/"}, b""),
    }
    assert len(list(web(circle).collect("https://a.example/"))) == 2
    hops = {f"https://a.example/{n}": (302, {"Location": f"/{n + 1}"}, b"") for n in range(40)}
    endless = web({**hops, "https://b.example/": (200, HTML, b"b")})
    assert len(list(endless.collect("https://a.example/0", "https://b.example/"))) == 12
    assert endless.messages == ["left out https://a.example/0: more than 10 redirects"]


@pytest.mark.parametrize("status", [206, 304, 400, 404, 500])
def test_failed_url_is_reported_and_counted(web, status):
    pages = web({"https://a.example/": (status, HTML, b"x"), "https://b.example/": (200, HTML, b"b")})
    collected = pages.collect("https://a.example/", "https://b.example/")
    assert [exchange.url for exchange in collected] == ["https://b.example/"]
    assert (collected.collected, collected.failed) == (1, 1)
    (sentence,) = pages.messages
    assert sentence.startswith("left out https://a.example/: ")


def test_client_is_renewed_after_a_failed_fetch(web, library, monkeypatch):
    renewed = []
    monkeypatch.setattr(Fetcher, "renew", lambda fetcher: renewed.append(len(pages.requests)))
    pages = web({
        "https://a.example/": library.ReadTimeout(""),
        "https://b.example/": (404, HTML, b""),
        "https://c.example/": (200, HTML, b"c"),
    })  # fmt: skip
    assert len(list(pages.collect("https://a.example/", "https://b.example/", "https://c.example/"))) == 1
    assert len(renewed) == 1
    assert renewed[0] < len(pages.requests) - 1


def test_busy_server_is_given_up_after_growing_pauses(web):
    busy = (503, {}, b"")
    pages = web({"https://a.example/": [busy] * 9, "https://b.example/": (200, HTML, b"b")})
    assert len(list(pages.collect("https://a.example/", "https://b.example/"))) == 1
    assert pages.slept == pytest.approx([0.5, 1.0])
    assert pages.requests == ["https://a.example/"] * 3 + ["https://b.example/"]
    assert pages.messages == ["left out https://a.example/: answered 503"]


def test_other_urls_of_a_busy_origin_are_not_requested(web):
    pages = web({
        "https://a.example/1": [(429, {"Retry-After": "61"}, b"")],
        "https://a.example/2": (200, HTML, b"never asked"),
        "https://b.example/": (200, HTML, b"b"),
    })  # fmt: skip
    collected = pages.collect("https://a.example/1", "https://a.example/2", "https://b.example/", wait=60.0)
    assert [exchange.url for exchange in collected] == ["https://b.example/"]
    assert collected.failed == 2
    assert pages.requests == ["https://a.example/1", "https://b.example/"]
    assert pages.slept == []
    assert pages.messages == [
        "left out https://a.example/1: answered 429",
        "left out https://a.example/2: not requested: its origin is busy and sent a Retry-After",
    ]


def test_held_request_is_left_out_with_the_reason(web):
    pages = web({
        "https://a.example/1": (200, {**HTML, "Retry-After": "61"}, b"a"),
        "https://a.example/2": (200, {**HTML, "DDoS-Bucket-With": "/", "Retry-After": "61"}, b"b"),
    })  # fmt: skip
    collected = pages.collect("https://a.example/2", "https://a.example/1")
    assert [exchange.payload for exchange in collected] == [b"b"]
    assert pages.requests == ["https://a.example/2"]
    (sentence,) = pages.messages
    assert sentence.startswith("left out https://a.example/1: https://a.example/* is held by its Retry-After")


ADVICE = "https://a.example/.well-known/traffic-advice"


@pytest.mark.parametrize("is_polite", [False, True])
@pytest.mark.parametrize("is_disallowed", [False, True])
def test_advice_is_fetched_without_the_clients_credentials(library, is_polite, is_disallowed):
    """Also where the client has the same courtesy itself, and where it raises for statuses."""
    asked = []

    def answer(request):
        asked.append(request)
        if str(request.url) != ADVICE:
            return library.Response(200, headers=HTML, content=b"a")
        if not is_disallowed:
            return library.Response(404)
        advice = b'[{"user_agent":"*","disallow":true}]'
        return library.Response(200, headers={"Content-Type": "application/trafficadvice+json"}, content=advice)

    courtesy, transport = Courtesy("ExampleBot"), library.MockTransport(answer)
    client = library.Client(
        transport=Transport(courtesy, transport) if is_polite else transport,
        auth=("name", "word"),
        cookies={"a": "b"},
        event_hooks={"response": [lambda response: response.raise_for_status()]},
    )
    messages = []
    collected = collect(["https://a.example/1"], client=client, courtesy=courtesy, tell=messages.append)
    if is_disallowed:
        with pytest.raises(FetchError, match="its traffic advice, which disallows all traffic"):
            list(collected)
    else:
        assert [exchange.payload for exchange in collected] == [b"a"]
    assert [str(request.url) for request in asked] == [ADVICE, "https://a.example/1"][: 1 if is_disallowed else 2]
    assert asked[0].headers["User-Agent"] == "ExampleBot"
    assert not asked[0].headers.keys() & {"authorization", "cookie"}


@pytest.mark.parametrize(
    ("coding", "content"),
    [
        ("gzip", gzip.compress(b"x" * 5000)),
        ("deflate", zlib.compress(b"x" * 5000)),
        ("identity", b"x" * 5000),
        ("deflate, gzip", gzip.compress(zlib.compress(b"x" * 5000))),
    ],
)
def test_unrequested_coding_is_decoded(web, coding, content):
    fields = {**HTML, "Content-Encoding": coding, "ETag": '"x"'}
    (found,) = web({"https://a.example/": (200, fields, content)}).collect("https://a.example/")
    assert found.payload == b"x" * 5000
    assert found.headers == {"content-type": "text/html", "etag": 'W/"x"'}


def test_large_bodies_are_spooled_and_limited(web):
    body = bytes(3 << 20)
    pages = web({
        "https://a.example/1": (200, HTML, body),
        "https://a.example/2": (200, HTML, b"small"),
        "https://a.example/bomb": (200, {**HTML, "Content-Encoding": "gzip"}, gzip.compress(bytes(50 << 20))),
    })  # fmt: skip
    first, second = pages.collect(
        "https://a.example/1", "https://a.example/bomb", "https://a.example/2", limits=Limits(max_body=4 << 20)
    )
    assert isinstance(first.payload, SpooledPayload)
    assert b"".join(first.payload) == body
    assert second.payload == b"small"
    assert pages.messages == ["left out https://a.example/bomb: a body of more than 4194304 bytes"]


def test_total_limit_is_an_error(web):
    pages = web({f"https://a.example/{n}": (200, HTML, bytes(3 << 20)) for n in range(3)})
    collected = pages.collect(*pages.pages, limits=Limits(max_total=7 << 20))
    assert [next(collected).url, next(collected).url] == ["https://a.example/0", "https://a.example/1"]
    with pytest.raises(FetchError, match="7340032 bytes"):
        next(collected)


def test_user_agent_is_sent_and_cookies_are_not_kept(library, monkeypatch):
    seen = []

    def answer(request):
        seen.append((dict(request.headers.raw)[b"User-Agent"].decode(), request.headers.get("cookie")))
        return library.Response(200, headers={"Set-Cookie": "a=b"}, content=b"x")

    client = library.Client

    def mocked(**options):
        return client(transport=library.MockTransport(answer), **options)

    monkeypatch.setattr(library, "Client", mocked)
    monkeypatch.setattr("headgate.agent.bundle.fetcher.default_library", lambda purpose: library)
    list(collect(["https://a.example/1", "https://a.example/2"], courtesy=Courtesy()))
    assert seen == [(USER_AGENT, None)] * 2
    seen.clear()
    list(collect(["https://a.example/1"], identity="ÉxampleBot", courtesy=Courtesy()))
    assert seen == [(f"ÉxampleBot {USER_AGENT}", None)]
    assert USER_AGENT.startswith("headgate/")


def listed(tmp_path, content):
    path = tmp_path / "urls.txt"
    path.write_bytes(content)
    return read_url_list(path)


def test_comments_and_repeated_urls_are_ignored(tmp_path):
    content = b"""\xef\xbb\xbfhttps://a.example
# a comment
   https://b.example/x#part\r

\thttps://a.example/ \n  # another
HTTPS://A.EXAMPLE:443/./
https://b.example/x
https://a.example/%41?q=\xc3\xa9
"""
    assert listed(tmp_path, content) == ["https://a.example/", "https://b.example/x", "https://a.example/%41?q=%C3%A9"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"a.example", "not a URL"),
        (b"ftp://a.example/", "not http or https"),
        (b"https://me:secret@a.example/", "a user name or a password"),
        (b"https://a.example:99999/", "not a URL"),
        (b"https://a.example/\xff", "not UTF-8"),
        (b"x" * 5000, "not a URL"),
    ],
)
def test_invalid_line_is_named(tmp_path, line, why):
    with pytest.raises(ConfigurationError, match=rf"urls\.txt, line 3: .*{why}") as refused:
        listed(tmp_path, b"https://a.example/\n\n" + line)
    assert len(str(refused.value)) < 400
