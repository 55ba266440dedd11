import pytest

from headgate.bundle.model import unservable
from headgate.errors import ResponseError
from headgate.origin.bundle.site import (
    ANY_HOST,
    NotAcceptable,
    Site,
    Unservable,
    add_vary,
    field_lines,
    lifeboat_headers,
    site_headers,
)
from headgate.origin.bundle.snapshot import BundleSnapshot
from tests.malformed import parts
from tests.webbundles import HTML, SITE

OTHER = "https://other.example:8443"
TWO_SITES = (
    {"url": "/", "payload": b"home"},
    {"url": "/only", "payload": b"only"},
    {"url": f"{OTHER}/", "payload": b"other home"},
    {"url": f"{OTHER}/far", "payload": b"far"},
)
VARIANTS = "Accept-Encoding;gzip;identity, Accept-Language;en;fr"


def variants(url="/v", **headers):
    return [
        {
            "url": url,
            "variants": VARIANTS,
            "variant_key": f"{coding};{language}",
            "headers": HTML | headers | ({"content-encoding": coding} if coding != "identity" else {}),
            "payload": f"{coding};{language}".encode(),
        }
        for coding in ("gzip", "identity")
        for language in ("en", "fr")
    ]


def payload(site, target=b"/", host=b"site.example", *fields):
    found = site.representation(host, target, fields)
    return None if found is None else found.part.read()


@pytest.fixture
def two(snapshot):
    return Site(snapshot(*TWO_SITES), site_headers)


HOSTS = [
    (b"site.example", b"home"),
    (b"SITE.example", b"home"),
    (b"site.example.", b"home"),
    (b"site.example:443", b"home"),
    (b"site.example:8080", b"home"),
    (b"other.example:8443", b"other home"),
    (b"other.example", b"other home"),
    # Addresses and localhost get the primary URL's site.
    (b"", b"home"),
    (b"127.0.0.1:8080", b"home"),
    (b"[::1]:8080", b"home"),
    (b"localhost", b"home"),
    (b"localhost:1", b"home"),
    # Other names get no site.
    (b"example", None),
    (b"www.site.example", None),
    (b"third.example", None),
    (b"127.0.0.1.evil.example", None),
    (b"site.example:x", None),
    (b"*", None),
    (b"\xff", None),
]


def test_host_selects_its_own_site(two):
    assert [(host, payload(two, b"/", host)) for host, _ in HOSTS] == HOSTS


def test_named_hosts_get_the_primary_site(snapshot):
    site = Site(snapshot(*TWO_SITES), site_headers, hosts=["WWW.site.example"])
    assert payload(site, b"/", b"www.site.example:80") == b"home"
    assert payload(site, b"/", b"third.example") is None
    any_host = Site(snapshot(*TWO_SITES), site_headers, hosts=[ANY_HOST])
    assert payload(any_host, b"/", b"third.example") == b"home"
    assert payload(any_host, b"/", b"other.example") == b"other home"


@pytest.mark.parametrize(
    ("stored", "target"),
    [
        ("/a?b=c", b"/a?b=c"),
        ("/a%20b", b"/a%20b"),
        ("/\u00e9", b"/%C3%A9"),
        ("/\u00e9", b"/\xc3\xa9"),
        ("/a", b"/x/../a"),
        ('/"', b'/"'),
        ("//a", b"//a"),
    ],
)
def test_targets_are_parsed_as_whatwg_urls(snapshot, stored, target):
    site = Site(snapshot({"url": f"{SITE}{stored}", "payload": b"x"}), site_headers)
    assert payload(site, target) == b"x"


@pytest.mark.parametrize("target", [b"/a", b"/a?", b"/a?b=d", b"/A?b=c", b"*", b"@evil.example/", b":1/", b"\xff"])
def test_other_targets_are_not_found(snapshot, target):
    site = Site(snapshot({"url": "/a?b=c", "payload": b"x"}), site_headers)
    assert payload(site, target) is None


def test_http_and_https_of_a_host_are_one_site(snapshot):
    both = {"url": "http://site.example/", "payload": b"plain"}, {"url": f"{SITE}/", "payload": b"secure"}
    for primary, page in ((f"{SITE}/", b"secure"), ("http://site.example/", b"plain")):
        site = Site(snapshot(*both, primary=primary), site_headers)
        assert payload(site) == page
        assert payload(site, b"/", b"site.example:80") == b"plain"
        assert payload(site, b"/", b"site.example:443") == b"secure"
    elsewhere = Site(snapshot(*both, {"url": f"{OTHER}/"}, primary=f"{OTHER}/"), site_headers)
    assert payload(elsewhere) == b"secure"


@pytest.mark.parametrize(
    ("fields", "page"),
    [
        ([], b"identity;en"),
        ([(b"accept-encoding", b"gzip"), (b"accept-language", b"fr")], b"gzip;fr"),
        ([(b"accept-encoding", b"identity"), (b"accept-language", b"fr")], b"identity;fr"),
        ([(b"accept-encoding", b"br;q=1"), (b"accept-encoding", b"gzip;q=0.5")], b"gzip;en"),
        ([(b"accept-language", b"de")], b"identity;en"),
    ],
)
def test_accept_fields_choose_the_variant(snapshot, fields, page):
    site = Site(snapshot(*variants()), site_headers)
    for _ in range(2):  # the second time from what is kept
        found = site.representation(b"site.example", b"/v", fields)
        assert found.part.read() == page
        assert dict(found.fields)[b"vary"] == b"Accept-Encoding, Accept-Language"


def test_unacceptable_variants_raise(snapshot):
    only = {"variants": "Accept-Encoding;gzip", "variant_key": "gzip", "payload": b"x"}
    site = Site(snapshot({"url": "/v", **only}), site_headers)
    assert payload(site, b"/v", b"site.example", (b"accept-encoding", b"gzip")) == b"x"
    for fields in ([], [(b"accept-encoding", b"identity")], [(b"accept-encoding", b"br, gzip;q=0")]):
        with pytest.raises(NotAcceptable):
            payload(site, b"/v", b"site.example", *fields)


def test_stored_etag_is_kept_and_weak_for_variants(snapshot):
    plain = {"url": "/plain", "headers": HTML | {"etag": '"a"'}, "payload": b"x"}
    weak = {"url": "/weak", "headers": HTML | {"etag": 'W/"a"'}, "payload": b"x"}
    site = Site(snapshot(plain, weak, *variants(etag='"a"')), site_headers)
    tags = [site.representation(b"", target, []).validators.etag for target in (b"/plain", b"/weak", b"/v")]
    assert tags == [b'"a"', b'W/"a"', b'W/"a"']


def test_generated_etags_depend_on_file_and_response(snapshot):
    pages = [{"url": f"/{number}", "headers": HTML | {"etag": "none"}, "payload": b"x"} for number in range(3)]

    def tags(site):
        return [site.representation(b"", b"/%d" % number, []).validators.etag for number in range(3)]

    first = tags(Site(snapshot(*pages), site_headers))
    assert len(set(first)) == 3
    assert all(tag.startswith(b'"') and tag.endswith(b'"') for tag in first)
    assert tags(Site(snapshot(*pages), site_headers)) == first
    assert not set(first) & set(tags(Site(snapshot(*pages, {"url": "/more"}), site_headers)))


def test_unservable_response_does_not_affect_others(snapshot):
    stored = [{"url": f"/{status}", "status": status, "payload": b"x"} for status in (101, 200, 206, 304, 204, 205)]
    site = Site(snapshot(*stored), site_headers)
    for target in (b"/101", b"/206", b"/304"):
        with pytest.raises(Unservable):
            payload(site, target)
    assert payload(site, b"/200") == b"x"
    for target, lengths in ((b"/204", []), (b"/205", [b"0"])):
        found = site.representation(b"", target, [])
        assert found.part is None
        assert [value for name, value in found.fields if name == b"content-length"] == lengths


def test_truncated_file_serves_its_complete_responses(bundle):
    path = bundle({"url": "/", "payload": b"home"}, {"url": "/long", "payload": b"x" * 5000})
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - 2000])
    cut = BundleSnapshot(path)
    assert not cut.is_whole
    site = Site(cut, site_headers)
    assert payload(site) == b"home"
    with pytest.raises(ResponseError, match="cut"):
        payload(site, b"/long")
    path.write_bytes(whole[: whole.index(b"x" * 5000) - 3])
    with pytest.raises(ResponseError):
        payload(Site(BundleSnapshot(path), site_headers), b"/long")


@pytest.mark.parametrize(
    ("urls", "served"),
    [
        (["", "a.css", "/b?c", "../d"], {b"/": b"", b"/a.css": b"a.css", b"/b?c": b"/b?c", b"/d": b"../d"}),
        # Two that are one here, of which the first is served; and a site that has a name.
        (["a", "./a"], {b"/a": b"a"}),
        (["/a", "https://x.example/", "https://x.example/b"], {b"/a": b"/a", b"/": None, b"/b": None}),
        (["https://x.example/", "/longer/than/that"], {b"/longer/than/that": b"/longer/than/that", b"/": None}),
    ],
)
def test_relative_urls_without_base_are_at_the_root(tmp_path, urls, served):
    stored = [parts.response(payload=url.encode()) for url in urls]
    starts = [1 + sum(map(len, stored[:number])) for number in range(len(urls))]
    places = [parts.array(parts.uint(start), parts.uint(len(item))) for start, item in zip(starts, stored, strict=True)]
    index = parts.index(dict(zip(urls, places, strict=True)))
    path = tmp_path / "relative.wbn"
    path.write_bytes(parts.b2().having(primary=None, index=index, responses=parts.array(*stored)).written())
    opened = BundleSnapshot(path)
    assert set(opened.metadata.requests) == set(urls)
    site = Site(opened, site_headers)
    assert {target: payload(site, target, b"127.0.0.1") for target in served} == served
    if "https://x.example/" in urls:
        assert payload(site, b"/", b"x.example") == b"https://x.example/"


APP = "isolated-app://aerugqztij5biqquuk3mfwpsaibuegaqcitgfchwuosuofdjabzqaaac"


@pytest.mark.parametrize(
    ("version", "primary"),
    [
        ("b1", APP), ("b1", APP + "/"), ("b2", APP + "/"), ("b2", APP + "/a?b"),
        # Of none that has a host, the first that has stands in.
        ("b1", "urn:x"), ("b2", None),
    ],
)  # fmt: skip
def test_primary_url_may_have_any_scheme(snapshot, version, primary):
    stored = {"url": APP + "/", "payload": b"home"}, {"url": APP + "/a?b", "payload": b"page"}
    options = {"version": version, "primary": primary, "manifest_url": f"{APP}/"}
    site = Site(snapshot(*stored, **options), site_headers)
    for host in (b"", b"127.0.0.1:8080", b"localhost", b"[::1]"):
        assert payload(site, b"/", host) == b"home"
        assert payload(site, b"/a?b", host) == b"page"
    # No host of HTTP is called that, nor is it a site for others.
    for host in (APP.partition("://")[2].encode(), b"site.example"):
        assert payload(site, b"/", host) is None
    any_host = Site(snapshot(*stored, **options), site_headers, hosts=[ANY_HOST])
    assert payload(any_host, b"/", b"site.example") == b"home"


def test_site_with_a_host_comes_before_one_without(snapshot):
    stored = {"url": APP + "/", "payload": b"app"}, {"url": f"{SITE}/", "payload": b"home"}
    for primary, page in ((APP + "/", b"app"), (f"{SITE}/", b"home"), ("urn:x", b"home")):
        site = Site(snapshot(*stored, primary=primary), site_headers)
        assert payload(site, b"/", b"localhost") == page
        assert payload(site, b"/", b"site.example") == b"home"


def test_redirects_of_an_isolated_app_become_relative(snapshot):
    moved = {"url": APP + "/", "status": 301, "headers": HTML | {"location": APP + "/new"}, "payload": b""}
    found = Site(snapshot(moved, primary=APP + "/"), site_headers).representation(b"", b"/", [])
    assert dict(found.fields)[b"location"] == b"/new"


ORIGIN = "https://site.example"


@pytest.mark.parametrize("header_filter", [site_headers, lifeboat_headers])
def test_framing_hop_and_user_fields_are_removed(header_filter):
    stored = {
        "content-type": "text/html",
        "connection": "close, X-Hop",
        "x-hop": "1",
        "keep-alive": "timeout=5",
        "transfer-encoding": "chunked",
        "content-length": "5",
        "content-range": "bytes 0-1/2",
        "trailer": "x",
        "upgrade": "h2c",
        "te": "trailers",
        "proxy-connection": "keep-alive",
        "date": "Sun, 06 Nov 1994 08:49:37 GMT",
        "age": "99",
        "warning": "110 - stale",
        "set-cookie": "session=1",
        "alt-svc": 'h3="evil.example:443"',
        "content-encoding": "gzip",
        "content-language": "en",
        "link": "</a>; rel=preload",
    }
    sent = header_filter(stored, ORIGIN)
    assert {name for name in sent if name not in {"cache-control", "headgate-source"}} == {
        "content-type",
        "content-encoding",
        "content-language",
        "link",
    }


def test_redirects_within_the_site_become_relative():
    for location, sent in (
        (f"{ORIGIN}/a?b#c", "/a?b#c"),
        (f"{ORIGIN}/", "/"),
        (ORIGIN, ORIGIN),
        (f"{ORIGIN}.evil.example/a", f"{ORIGIN}.evil.example/a"),
        (f"{ORIGIN}:8443/a", f"{ORIGIN}:8443/a"),
        ("https://other.example/a", "https://other.example/a"),
        ("a/b", "a/b"),
        # Without the origin these would name a host.
        (f"{ORIGIN}//evil.example/", f"{ORIGIN}//evil.example/"),
        (f"{ORIGIN}/\\evil.example/", f"{ORIGIN}/\\evil.example/"),
    ):
        assert site_headers({"location": location}, ORIGIN)["location"] == sent, location
        assert lifeboat_headers({"location": location}, ORIGIN)["location"] == location, location


def test_lifeboat_response_is_marked_and_must_be_revalidated():
    stored = {"cache-control": "public, max-age=31536000", "expires": "Sun, 06 Nov 2094 08:49:37 GMT", "etag": '"a"'}
    assert lifeboat_headers(stored, ORIGIN) == {"cache-control": "no-cache", "etag": '"a"', "headgate-source": "bundle"}
    assert lifeboat_headers({"cache-control": "private, No-Store"}, ORIGIN)["cache-control"] == "no-store"
    assert lifeboat_headers({"headgate-source": "origin"}, ORIGIN)["headgate-source"] == "bundle"
    assert site_headers(stored, ORIGIN) == stored


def test_lifeboat_response_has_no_throttling_fields():
    held = ("retry-after", "ratelimit", "ratelimit-policy", "ddos-bucket-with", "exponential-throttling")
    assert set(lifeboat_headers(dict.fromkeys(held, "9"), ORIGIN)) == {"cache-control", "headgate-source"}


def test_final_statuses_are_sent_unless_they_need_their_request():
    for status in (0, 99, 100, 101, 103, 199, 206, 304, 600, 999):
        assert f"its status {status} is" in unservable(status)
    assert [unservable(status) for status in (200, 204, 205, 301, 404, 416, 500, 503, 599)] == [""] * 9


def test_vary_names_the_negotiated_fields():
    for stored, sent in (
        ({}, "Accept-Encoding, Accept-Language"),
        ({"vary": "Origin"}, "Origin, Accept-Encoding, Accept-Language"),
        ({"vary": "accept-encoding,, Origin"}, "accept-encoding, Origin, Accept-Language"),
        ({"vary": "*"}, "*"),
    ):
        headers = dict(stored)
        add_vary(headers, ["Accept-Encoding", "Accept-Language"])
        assert headers["vary"] == sent, stored


def test_values_are_sent_as_latin_1_and_invalid_fields_are_refused():
    for name, value in (
        *(("x", value) for value in ("a\r\nb: c", "a\nb", "a\0", "a\x01", "\x7f")),
        *((name, "a") for name in ("x y", "", "x:")),
    ):
        with pytest.raises(Unservable):
            field_lines({name: value})
    assert field_lines({"x": "a\tb \xe9\xff"}) == [(b"x", b"a\tb \xe9\xff")]
