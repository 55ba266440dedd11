from headgate.throttle.target import MAX_PATH, Target, parse_target, path_matches
from tests.quotes import quotes

P = Target("http://www.example.com", "/p")


SPELLINGS = [
    "http://www.example.com/p",
    "http://www.example.com/p?a=1",
    "http://www.example.com/p?",
    "http://www.example.com/p#f",
    "http://www.example.com/p?#",
    "http://user:pw@www.example.com/p",
    "http://www.example.com:80/p",
    "HTTP://WWW.Example.COM/p",
    "http://www.example.com/./a/../p",
    " http://www.example.com/p\n",
    "http:\\\\www.example.com\\p",
]


@quotes("anti-ddos-throttling 4", "It observes HTTP response codes on a per throttling target basis.")
@quotes("anti-ddos-throttling 4", "A throttling target is demarcated as a URL minus its query parameters.")
def test_spellings_of_one_target_are_equal():
    for url in SPELLINGS:
        assert parse_target(url) == P, url


DIFFERENT = [
    ("http://www.example.com", "http://www.example.com/"),
    ("http://www.example.com/p/", "http://www.example.com/p/"),
    ("http://www.example.com/P", "http://www.example.com/P"),
    ("https://www.example.com/p", "https://www.example.com/p"),
    ("https://www.example.com:80/p", "https://www.example.com:80/p"),
    ("http://www.example.com:8080/p", "http://www.example.com:8080/p"),
    ("http://www.example.com./p", "http://www.example.com./p"),
    ("http://127.1/p;a=1?b", "http://127.0.0.1/p;a=1"),
    ("http://[0:0::1]:8080/é", "http://[::1]:8080/%C3%A9"),
    ("http://bücher.example/", "http://xn--bcher-kva.example/"),
]


@quotes(
    "anti-ddos-throttling 4",
    "This could have been avoided by using the hostname and port number as the throttling target, rather "
    "than the URL minus query parameters, but this would have made it hard to roll the mechanism out to "
    "the entire web without opt-in, as there are many web servers that operate many different independent"
    " sites or services off the same host name.",
)
def test_different_targets():
    for url, name in DIFFERENT:
        target = parse_target(url)
        assert target is not None, url
        assert target.name == name, url
        assert target.origin + target.path == name, url
        assert target.path.startswith("/"), url
        assert target != P, url


def test_only_the_path_is_put_in_lower_case():
    target = parse_target("HTTP://Www.Example.com/Pr4C%C3?Q", lower_case_path=True)
    assert target == Target("http://www.example.com", "/pr4c%c3")


WITHOUT_TARGET = [
    "", "/p", "www.example.com/p", "ftp://a/", "file:///p", "data:,p", "ws://a/", "http://", "http://a b/", "\ud800",
]  # fmt: skip


def test_url_that_is_not_http_has_no_target():
    for url in WITHOUT_TARGET:
        assert parse_target(url) is None, url


def test_long_path_is_shortened_with_a_hash():
    urls = ["http://www.example.com/" + "l" * 1_000_000 + end for end in "ab"]
    targets = [parse_target(url) for url in urls]
    assert targets[0] != targets[1]
    assert [len(target.path) for target in targets] == [MAX_PATH] * 2
    assert targets[0] == parse_target(urls[0] + "?q")
    longest = "http://www.example.com/" + "l" * (MAX_PATH - 1)
    assert parse_target(longest).name == longest
    assert "#" in parse_target(longest + "l").path


def test_overlong_host_has_no_target():
    label = "l" * 60
    assert parse_target(f"http://{'.'.join([label] * 4)}/") is not None
    assert parse_target(f"http://{'.'.join([label] * 5)}/") is None


PATHS = [
    ("/api", "/api", True),
    ("/api", "/api/", True),
    ("/api", "/api/a/b", True),
    ("/api", "/apiary", False),
    ("/api", "/ap", False),
    ("/api", "/", False),
    ("/api", "/API", False),
    ("/api/", "/api/a", True),
    ("/api/", "/api/", True),
    ("/api/", "/api", False),
    ("/", "/", True),
    ("/", "/anything", True),
    ("/b", "/a/b", False),
]


@quotes(
    "anti-ddos-throttling 4",
    'The header name is "DDoS-Bucket-With" and the value is the same format as the value of the path=foo '
    "part of a Set-Cookie response header.",
)
def test_paths_match_by_the_rule_of_cookies():
    for prefix, path, matches in PATHS:
        assert path_matches(prefix, path) is matches, prefix
