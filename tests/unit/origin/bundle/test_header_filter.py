import pytest

from headgate.origin.bundle.site import (
    Unservable,
    add_vary,
    check_status,
    field_lines,
    lifeboat_headers,
    site_headers,
)

ORIGIN = "https://site.example"


@pytest.mark.parametrize("dress", [site_headers, lifeboat_headers])
def test_nothing_that_frames_or_was_for_one_agent_is_sent(dress):
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
        "set-cookie": "session=somebody",
        "alt-svc": 'h3="evil.example:443"',
        "content-encoding": "gzip",
        "content-language": "en",
        "link": "</a>; rel=preload",
    }
    sent = dress(stored, ORIGIN)
    assert {name for name in sent if name not in {"cache-control", "headgate-source"}} == {
        "content-type",
        "content-encoding",
        "content-language",
        "link",
    }


@pytest.mark.parametrize(
    ("location", "sent"),
    [
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
    ],
)
def test_redirects_within_the_site_stay_where_it_is_unpacked(location, sent):
    assert site_headers({"location": location}, ORIGIN)["location"] == sent
    assert lifeboat_headers({"location": location}, ORIGIN)["location"] == location


def test_a_lifeboat_says_what_it_is_and_is_asked_anew():
    stored = {"cache-control": "public, max-age=31536000", "expires": "Sun, 06 Nov 2094 08:49:37 GMT", "etag": '"a"'}
    assert lifeboat_headers(stored, ORIGIN) == {"cache-control": "no-cache", "etag": '"a"', "headgate-source": "bundle"}
    assert lifeboat_headers({"cache-control": "private, No-Store"}, ORIGIN)["cache-control"] == "no-store"
    assert lifeboat_headers({"headgate-source": "origin"}, ORIGIN)["headgate-source"] == "bundle"
    assert site_headers(stored, ORIGIN) == stored


def test_nothing_in_a_lifeboat_holds_agents_back():
    held = ("retry-after", "ratelimit", "ratelimit-policy", "ddos-bucket-with", "exponential-throttling")
    assert set(lifeboat_headers(dict.fromkeys(held, "9"), ORIGIN)) == {"cache-control", "headgate-source"}


@pytest.mark.parametrize("status", [0, 99, 100, 101, 103, 199, 206, 304, 600, 999])
def test_a_status_that_answers_no_plain_get_is_refused(status):
    with pytest.raises(Unservable, match=str(status)):
        check_status(status)


@pytest.mark.parametrize("status", [200, 204, 205, 301, 404, 416, 500, 503, 599])
def test_any_other_is_sent_as_stored(status):
    check_status(status)


@pytest.mark.parametrize(
    ("stored", "sent"),
    [
        ({}, "Accept-Encoding, Accept-Language"),
        ({"vary": "Origin"}, "Origin, Accept-Encoding, Accept-Language"),
        ({"vary": "accept-encoding,, Origin"}, "accept-encoding, Origin, Accept-Language"),
        ({"vary": "*"}, "*"),
    ],
)
def test_vary_names_what_chose(stored, sent):
    headers = dict(stored)
    add_vary(headers, ["Accept-Encoding", "Accept-Language"])
    assert headers["vary"] == sent


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x", "a\r\nb: c"),
        ("x", "a\nb"),
        ("x", "a\0"),
        ("x", "a\x01"),
        ("x", "\x7f"),
        ("x y", "a"),
        ("", "a"),
        ("x:", "a"),
    ],
)
def test_a_field_that_could_not_stand_in_a_message_is_refused(name, value):
    with pytest.raises(Unservable):
        field_lines({name: value})


def test_values_go_out_as_the_bytes_they_came_in_as():
    assert field_lines({"x": "a\tb \xe9\xff"}) == [(b"x", b"a\tb \xe9\xff")]
