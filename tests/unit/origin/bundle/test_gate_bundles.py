import os

import pytest

from headgate.http.h1 import RequestLimits, parse_request_head
from headgate.origin.bundle import GateBundles, Lifeboat, ReloadingBundle
from tests.webbundles import HTML, PAGE

BOUNDS = RequestLimits()


def request(target=b"/", *lines, method=b"GET", host=b"site.example"):
    head = b"%b %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (method, target, host, b"".join(line + b"\r\n" for line in lines))
    return parse_request_head(head, BOUNDS)


@pytest.fixture
def shelf(bundle):
    def opened(*exchanges, hosts=(), **options):
        return GateBundles({}, [Lifeboat(ReloadingBundle(bundle(*exchanges, **options)), hosts)])

    return opened


# Published


def test_a_bundle_is_at_its_path_for_every_host_and_nothing_else_is(bundle):
    shelf = GateBundles({b"/a b.wbn": ReloadingBundle(bundle())}, [])
    for target in (b"/a%20b.wbn", b"/a%20b.wbn?x", b"/x/../a%20b.wbn"):
        for host in (b"site.example", b"third.example"):
            response = shelf.publish(request(target, host=host))
            assert response.status == 200
            assert dict(response.fields)[b"content-type"] == b"application/webbundle;v=b1"
    assert shelf.publish(request(b"/a%20b.wbn", method=b"POST")).status == 405
    assert shelf.publish(request(b"/")) is None
    assert shelf.publish(request(b"/a%20b.wbn/")) is None


# The lifeboat


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
def test_a_rejected_get_is_answered_as_stored(shelf, method):
    stored = HTML | {"age": "9", "warning": "x", "cache-control": "max-age=99", "retry-after": "9", "etag": '"a"'}
    boat = shelf({"url": "/there", "status": 203, "headers": stored, "payload": b"it is it"})
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


@pytest.mark.parametrize("status", [200, 201, 204, 301, 302, 307, 308, 399])
def test_stored_successes_and_redirects_are_answers(shelf, status):
    assert shelf({"url": "/", "status": status, "payload": b""}).rescue(request()).status == status


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 429, 500, 502, 503, 504, 599])
def test_a_stored_error_is_not_an_answer_to_a_rejected_request(shelf, status):
    """The agent is told to come back instead: 503 with Retry-After, which a stored error does not have."""
    stored = HTML | {"retry-after": "9"}
    assert shelf({"url": "/", "status": status, "headers": stored, "payload": b"x"}).rescue(request()) is None


def test_a_later_lifeboat_answers_where_an_earlier_one_has_an_error(bundle):
    first = ReloadingBundle(bundle({"url": "/", "status": 500, "payload": b"x"}, name="first.wbn"))
    second = ReloadingBundle(bundle({"url": "/", "payload": b"fine"}, name="second.wbn"))
    assert GateBundles({}, [Lifeboat(first), Lifeboat(second)]).rescue(request()).body == b"fine"


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
def test_what_the_bundle_has_no_answer_for_is_rejected(shelf, one):
    bad = {"url": "/bad", "status": 304}
    variant = {"url": "/v", "variants": "Accept-Encoding;gzip", "variant_key": "gzip", "payload": b"gz"}
    assert shelf({"url": "/", "payload": PAGE}, bad, variant).rescue(one) is None


def test_cookies_do_not_prevent_a_lifeboat_response(shelf):
    assert shelf().rescue(request(b"/", b"Cookie: a=b")).body == PAGE


def test_the_variant_is_the_right_one(shelf):
    variants = [
        {"url": "/", "variants": "Accept-Language;en;fr", "variant_key": key, "payload": key.encode()}
        for key in ("en", "fr")
    ]
    response = shelf(*variants).rescue(request(b"/", b"Accept-Language: fr"))
    assert response.body == b"fr"
    assert dict(response.fields)[b"vary"] == b"Accept-Language"


def test_matching_etag_gives_304(shelf):
    boat = shelf({"url": "/", "headers": HTML | {"etag": '"a"'}, "payload": PAGE})
    response = boat.rescue(request(b"/", b'If-None-Match: "a"'))
    assert response.status == 304
    assert dict(response.fields)[b"headgate-source"] == b"bundle"
    assert boat.rescue(request(b"/", b'If-None-Match: "b"')).body == PAGE


def test_a_part_of_the_origins_is_not_mended_with_a_part_of_this(shelf):
    response = shelf().rescue(request(b"/", b"Range: bytes=0-1"))
    assert (response.status, response.body) == (200, PAGE)
    assert b"accept-ranges" not in dict(response.fields)


def test_lifeboats_are_tried_in_order(bundle):
    first = ReloadingBundle(bundle({"url": "/", "payload": b"first"}, name="first.wbn"))
    second = ReloadingBundle(
        bundle({"url": "/", "payload": b"2"}, {"url": "/more", "payload": b"more"}, name="second.wbn")
    )
    shelf = GateBundles({}, [Lifeboat(first), Lifeboat(second)])
    assert shelf.rescue(request(b"/")).body == b"first"
    assert shelf.rescue(request(b"/more")).body == b"more"
    assert shelf.bundles == {first, second}


def test_further_hosts_are_answered_when_they_are_named(shelf):
    assert shelf(hosts=["*"]).rescue(request(host=b"third.example")).body == PAGE


def test_another_snapshot_is_another_site(bundle):
    publication = ReloadingBundle(bundle({"url": "/", "payload": b"one"}))
    shelf = GateBundles({}, [Lifeboat(publication)])
    assert shelf.rescue(request()).body == b"one"
    publication.snapshot = ReloadingBundle(bundle({"url": "/", "payload": b"two"}, name="two.wbn")).snapshot
    assert shelf.rescue(request()).body == b"two"


def test_overwritten_file_is_not_used_as_lifeboat(bundle):
    path = bundle()
    shelf = GateBundles({}, [Lifeboat(ReloadingBundle(path))])
    os.truncate(path, 5)
    assert shelf.rescue(request()) is None
