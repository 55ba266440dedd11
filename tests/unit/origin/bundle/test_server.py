import json
import os

import pytest

from headgate.http.h1 import RequestLimits, parse_request_head
from headgate.origin.bundle.representation import SMALL
from headgate.origin.bundle.server import BundleServer, GateBundles, Lifeboat
from headgate.origin.bundle.snapshot import ReloadingBundle
from tests.webbundles import HTML, PAGE, SITE

WEBBUNDLE = b"application/webbundle;v=b1"


def ask(front, target=b"/", *fields, method=b"GET", host=b"127.0.0.1"):
    return front.answer(method, host, target, list(fields))


def field(response, name):
    values = [value for field_name, value in response.fields if field_name == name]
    assert len(values) < 2, values
    return values[0] if values else None


def problem_detail(response):
    assert field(response, b"content-type") == b"application/problem+json"
    assert field(response, b"x-content-type-options") == b"nosniff"
    assert int(field(response, b"content-length")) == len(response.body)
    return json.loads(response.body)["detail"]


@pytest.fixture
def front(bundle):
    return BundleServer(ReloadingBundle(bundle()))


@pytest.fixture
def unpacked(bundle):
    def opened(*exchanges, **options):
        return BundleServer(ReloadingBundle(bundle(*exchanges, **options)), unpack=True)

    return opened


# The bundle itself


@pytest.mark.parametrize("target", [b"/", b"/?x", b"/site.wbn", b"/site.wbn?x=1", b"/%73ite.wbn"])
def test_bundle_is_served_at_its_name_and_at_the_root(front, target):
    assert front.home == "/site.wbn"
    response = ask(front, target)
    assert response.status == 200
    assert field(response, b"content-type") == WEBBUNDLE
    assert response.body == front.bundle.snapshot.file.read(0, front.bundle.snapshot.file.size)


@pytest.mark.parametrize("target", [b"/other", b"/site.wbn/", b"/site", b"/SITE.wbn", b"/a/site.wbn", b"*"])
def test_other_paths_are_not_found(front, target):
    response = ask(front, target)
    assert response.status == 404
    assert "/site.wbn" in problem_detail(response)


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"DELETE", b"OPTIONS", b"get", b"PROPFIND"])
@pytest.mark.parametrize("unpack", [False, True])
def test_other_methods_are_not_allowed(bundle, method, unpack):
    front = BundleServer(ReloadingBundle(bundle()), unpack=unpack)
    for target in (b"/", b"/site.wbn", b"/other"):
        response = ask(front, target, method=method)
        assert response.status == 405
        assert field(response, b"allow") == b"GET, HEAD"
        assert problem_detail(response)


def test_long_content_is_sent_from_the_file(bundle):
    short, long = b"x" * SMALL, b"y" * (SMALL + 1)
    exchanges = {"url": "/short", "payload": short}, {"url": "/long", "payload": long}
    front = BundleServer(ReloadingBundle(bundle(*exchanges)), unpack=True)
    assert ask(front, b"/short").body == short
    response = ask(front, b"/long")
    assert response.body == b""
    assert response.source.read() == long
    assert ask(front, b"/long", (b"range", b"bytes=0-9")).body == long[:10]
    assert ask(front, b"/long", method=b"HEAD").source is None
    assert ask(front, b"/site.wbn").source.length == front.bundle.snapshot.file.size


# The site inside


def test_unpacked_site_is_served_beside_the_bundle(unpacked):
    front = unpacked({"url": "/", "payload": PAGE}, {"url": "/a?b", "payload": b"a"})
    response = ask(front)
    assert response.body == PAGE
    assert field(response, b"content-type") == b"text/html"
    assert field(response, b"x-content-type-options") == b"nosniff"
    assert field(response, b"accept-ranges") == b"bytes"
    assert ask(front, b"/a?b").body == b"a"
    assert ask(front, b"/a").status == 404
    assert field(ask(front, b"/site.wbn"), b"content-type") == WEBBUNDLE
    assert field(ask(unpacked({"url": "/site.wbn", "payload": b"own"}), b"/site.wbn"), b"content-type") == b"text/html"


@pytest.mark.parametrize(
    ("primary", "home", "status"),
    [
        (f"{SITE}/", "/", 200),
        (f"{SITE}/app/?a=b#c", "/app/?a=b", 302),
        (f"{SITE}/none", "/", 404),
        (f"{SITE}//elsewhere.example/", "/", 404),
    ],
)
def test_root_of_the_site_leads_to_the_primary_url(unpacked, primary, home, status):
    page = primary.partition("#")[0] if "none" not in primary else f"{SITE}/other"
    site = unpacked({"url": page}, primary=primary)
    response = ask(site)
    assert (site.home, response.status) == (home, status)
    assert field(response, b"location") == (home.encode() if status == 302 else None)


def test_stored_statuses_and_redirects_are_sent(unpacked):
    front = unpacked(
        {"url": "/moved", "status": 301, "headers": HTML | {"location": f"{SITE}/new"}, "payload": b"moved"},
        {"url": "/gone", "status": 410, "headers": HTML | {"etag": '"g"'}, "payload": b"gone"},
        {"url": "/none", "status": 204, "headers": {"etag": '"n"', **HTML}},
    )
    moved = ask(front, b"/moved")
    assert (moved.status, field(moved, b"location"), moved.body) == (301, b"/new", b"moved")
    # 9110 13.2.1: only a success has preconditions, and ranges.
    gone = ask(front, b"/gone", (b"if-none-match", b'"g"'), (b"range", b"bytes=0-0"))
    assert (gone.status, gone.body, field(gone, b"accept-ranges")) == (410, b"gone", None)
    none = ask(front, b"/none")
    assert (none.status, none.body, field(none, b"content-length")) == (204, b"", None)


def test_variants_are_negotiated_in_304_and_406(unpacked):
    only = {"variants": "Accept-Encoding;gzip", "variant_key": "gzip", "headers": HTML | {"etag": '"a"'}}
    front = unpacked({"url": "/", "payload": b"gz", **only})
    gzip = (b"accept-encoding", b"gzip")
    same = ask(front, b"/", gzip, (b"if-none-match", b'"a"'))
    assert (same.status, field(same, b"vary")) == (304, b"Accept-Encoding")
    assert ask(front, b"/", gzip, (b"range", b"bytes=0-0"), (b"if-range", b'"a"')).status == 200
    refused = ask(front, b"/", (b"accept-encoding", b"identity"))
    assert refused.status == 406
    assert "none of them is acceptable" in problem_detail(refused)


def test_malformed_response_is_a_502_and_does_not_affect_others(unpacked):
    front = unpacked({"url": "/", "payload": PAGE}, {"url": "/bad", "status": 101, "payload": b"x"})
    refused = ask(front, b"/bad")
    assert refused.status == 502
    assert "its status 101 is not that of a final response" in problem_detail(refused)
    assert ask(front).body == PAGE


@pytest.mark.parametrize("fields", [[], [(b"range", b"bytes=0-99999")]], ids=["whole", "part"])
@pytest.mark.parametrize("unpack", [True, False])
def test_truncated_file_is_503_before_the_head(bundle, unpack, fields):
    """Else a client would get a 200 with a length, and a connection that ends before it."""
    path = bundle({"url": "/", "payload": b"x" * 200_000})
    front = BundleServer(ReloadingBundle(path), unpack=unpack)
    assert ask(front, b"/", *fields).source is not None
    os.truncate(path, 1000)
    response = ask(front, b"/", *fields)
    assert (response.status, field(response, b"retry-after")) == (503, b"1")


BOUNDS = RequestLimits()


def request(target=b"/", *lines, method=b"GET", host=b"site.example"):
    head = b"%b %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (method, target, host, b"".join(line + b"\r\n" for line in lines))
    return parse_request_head(head, BOUNDS)


@pytest.fixture
def gate_bundles(bundle):
    def opened(*exchanges, hosts=(), **options):
        return GateBundles({}, [Lifeboat(ReloadingBundle(bundle(*exchanges, **options)), hosts)])

    return opened


# Published


def test_published_bundle_is_at_its_path_for_every_host(bundle):
    gate_bundles = GateBundles({b"/a b.wbn": ReloadingBundle(bundle())}, [])
    for target in (b"/a%20b.wbn", b"/a%20b.wbn?x", b"/x/../a%20b.wbn"):
        for host in (b"site.example", b"third.example"):
            response = gate_bundles.publish(request(target, host=host))
            assert response.status == 200
            assert dict(response.fields)[b"content-type"] == b"application/webbundle;v=b1"
    assert gate_bundles.publish(request(b"/a%20b.wbn", method=b"POST")).status == 405
    assert gate_bundles.publish(request(b"/")) is None
    assert gate_bundles.publish(request(b"/a%20b.wbn/")) is None


# The lifeboat


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
def test_rejected_get_gets_the_stored_response(gate_bundles, method):
    stored = HTML | {"age": "9", "warning": "x", "cache-control": "max-age=99", "retry-after": "9", "etag": '"a"'}
    boat = gate_bundles({"url": "/there", "status": 203, "headers": stored, "payload": b"it is it"})
    response = boat.rescue(request(b"/there", method=method))
    assert response.status == 203
    assert response.body == (b"it is it" if method == b"GET" else b"")
    assert dict(response.fields) == {
        b"content-type": b"text/html",
        b"cache-control": b"no-cache",
        b"headgate-source": b"bundle",
        b"etag": b'"a"',
        b"x-content-type-options": b"nosniff",
        b"content-length": b"8",
    }


@pytest.mark.parametrize(
    "one",
    [
        request(b"/", method=b"POST"),
        request(b"/", method=b"OPTIONS"),
        request(b"/none"),
        request(b"/", host=b"third.example"),
        request(b"/", b"Authorization: Basic YTpi"),
        request(b"/", b'If-Match: "a"'),
        request(b"/", b"If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT"),
        request(b"/", b"Connection: Upgrade", b"Upgrade: websocket"),
        request(b"/bad"),
        request(b"/v", b"Accept-Encoding: identity"),
    ],
    ids=lambda one: (one.raw).decode(),
)
def test_requests_that_a_lifeboat_cannot_answer_are_rejected(gate_bundles, one):
    bad = {"url": "/bad", "status": 304}
    variant = {"url": "/v", "variants": "Accept-Encoding;gzip", "variant_key": "gzip", "payload": b"gz"}
    assert gate_bundles({"url": "/", "payload": PAGE}, bad, variant).rescue(one) is None


def test_requests_with_cookies_get_the_stored_response(gate_bundles):
    assert gate_bundles().rescue(request(b"/", b"Cookie: a=b")).body == PAGE


def test_lifeboats_are_tried_in_order(bundle):
    wrong = {"url": "/wrong", "status": 500, "payload": b"x"}
    first = ReloadingBundle(bundle({"url": "/", "payload": b"first"}, wrong, name="first.wbn"))
    others = [{"url": url, "payload": url[1:].encode()} for url in ("/", "/more", "/wrong")]
    second = ReloadingBundle(bundle(*others, name="second.wbn"))
    gate_bundles = GateBundles({}, [Lifeboat(first), Lifeboat(second)])
    assert gate_bundles.rescue(request(b"/")).body == b"first"
    assert gate_bundles.rescue(request(b"/more")).body == b"more"
    assert gate_bundles.rescue(request(b"/wrong")).body == b"wrong", "an error is not used"
    assert gate_bundles.bundles == {first, second}


def test_named_hosts_are_answered(gate_bundles):
    assert gate_bundles(hosts=["*"]).rescue(request(host=b"third.example")).body == PAGE


def test_overwritten_file_is_not_used_as_lifeboat(bundle):
    path = bundle()
    gate_bundles = GateBundles({}, [Lifeboat(ReloadingBundle(path))])
    os.truncate(path, 5)
    assert gate_bundles.rescue(request()) is None


def test_link_names_the_published_bundles_that_contain_the_resource(bundle):
    path = bundle({"url": "/a"}, {"url": "/b?c"})
    bundles = GateBundles({b"/my site.wbn": ReloadingBundle(path), b"/other.wbn": ReloadingBundle(path)}, [])
    one = b'<%b>; rel="collection"; type="application/webbundle"'
    assert bundles.link(request(b"/a")) == b", ".join([one % b"/my%20site.wbn", one % b"/other.wbn"])
    assert bundles.link(request(b"/b?c"))
    assert bundles.link(request(b"/b")) == b""
    assert bundles.link(request(b"/a", method=b"POST")) == b""
    assert bundles.link(request(b"/a", host=b"elsewhere.example")) == b""
