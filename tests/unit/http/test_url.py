from headgate.http.url import (
    has_fragment,
    host_of,
    is_localhost,
    is_potentially_trustworthy,
    parse_url,
    serialised_origin,
    without_fragment,
)


def test_url_of_a_megabyte():
    assert parse_url("https://example.com/" + "/." * (1 << 19)) == "https://example.com//"
    assert parse_url("https://" + "a." * (1 << 19)) is not None
    assert parse_url("xn--" * (1 << 18)) is None


FRAGMENTS = [
    ("https://a/#b", True, "https://a/"),
    ("https://a/#", True, "https://a/"),
    ("https://a/?b#", True, "https://a/?b"),
    ("urn:a#", True, "urn:a"),
    ("data:,a  #b", True, "data:,a"),
    ("https://a/?#b#c", True, "https://a/?"),
    ("https://a/%23", False, "https://a/%23"),
    ("https://a/", False, "https://a/"),
]


def test_empty_fragment_is_not_null():
    """3.3.1 step 4.2: "If parsedUrl is a failure, its fragment is not null, or it includes credentials"."""
    for text, fragment, rest in FRAGMENTS:
        url = parse_url(text)
        assert url is not None
        assert has_fragment(url) is fragment, text
        assert without_fragment(url) == rest, text


ORIGINS = [
    ("https://example.com", "https://example.com"),
    ("HTTPS://u:p@Example.COM:443/a?b#c", "https://example.com"),
    ("https://example.com:8443/", "https://example.com:8443"),
    ("http://example.com:443", "http://example.com:443"),
    ("http://127.1:8000/x", "http://127.0.0.1:8000"),
    ("http://0x7f.1", "http://127.0.0.1"),
    ("http://2130706433", "http://127.0.0.1"),
    ("http://[0:0::1]:80", "http://[::1]"),
    ("https://m\u00fcnchen.de", "https://xn--mnchen-3ya.de"),
    ("https:\\\\a\\b", "https://a"),
    ("wss://a/", "wss://a"),
    ("ftp://a/", "ftp://a"),
    ("blob:https://a.example/5ee5", "https://a.example"),
    ("file:///etc/hosts", None),
    ("data:text/plain,a", None),
    ("urn:a", None),
    ("null", None),
    ("", None),
    ("example.com", None),
    ("https://", None),
    ("https://a b/", None),
    ("https://a:99999", None),
    ("https://\ud800", None),
]


def test_serialised_origin():
    for url, origin in ORIGINS:
        assert serialised_origin(url) == origin, url
        if origin is not None:
            assert serialised_origin(origin) == origin


TRUSTWORTHY = [
    ("https://example.com", True),
    ("https://203.0.113.1:8443", True),
    ("wss://example.com", True),
    ("http://127.0.0.1", True),
    ("http://127.255.255.255:81", True),
    ("http://127.1", True),
    ("http://0x7f.1", True),
    ("http://127.0.0.1.", True),
    ("http://[::1]:8000", True),
    ("http://localhost", True),
    ("http://LOCALHOST:8000", True),
    ("http://localhost.", True),
    ("http://a.b.localhost", True),
    ("http://a.localhost.", True),
    ("http://example.com", False),
    ("http://126.0.0.1", False),
    ("http://128.0.0.1", False),
    ("http://127.example", False),
    ("http://127.0.0.1.example", False),
    ("http://[::2]", False),
    ("http://[::]", False),
    ("http://[::ffff:127.0.0.1]", False),
    ("http://0.0.0.0", False),
    ("http://notlocalhost", False),
    ("http://localhost.example", False),
    ("http://localhost..", False),
    ("ftp://example.com", False),
    ("ftp://localhost", True),
]


def test_trustworthy_origins_use_tls_or_are_local():
    for url, expected in TRUSTWORTHY:
        origin = serialised_origin(url)
        assert origin is not None
        assert is_potentially_trustworthy(origin) is expected, url


HOSTS = [
    ("http://www.example.com/", "www.example.com"),
    ("https://WWW.example.com:8443/a:b", "www.example.com"),
    ("http://[::1]:8080/", "[::1]"),
    ("http://[2001:db8::1]/", "[2001:db8::1]"),
    ("http://0x7f.1:1/", "127.0.0.1"),
    ("ws://a:81", "a"),
]


def test_host_of_an_origin():
    for url, host in HOSTS:
        origin = serialised_origin(url)
        assert origin is not None
        assert host_of(origin) == host, url
        assert is_localhost(host) is (host in {"[::1]", "127.0.0.1"})
