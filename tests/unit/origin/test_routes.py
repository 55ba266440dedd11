import sys
from typing import Any

import pytest

from headgate.errors import ConfigurationError
from headgate.http.conditions import Conditions
from headgate.origin import RequestInfo, Route, Routes, client_address, header
from headgate.origin.routes import plain_path


def request_info(path: str = "/", method: str = "GET", host: str = "example.org", **fields: str) -> RequestInfo:
    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()]
    return RequestInfo(method.encode(), path.encode(), host.encode(), lines, "192.0.2.1")


def matches(route: Route, request: RequestInfo) -> bool:
    return Routes([route]).match(request) == route.domain


def test_the_first_matching_route_names_the_domain() -> None:
    routes = Routes(
        [Route("login", path_prefix="/login", methods=("POST",)), Route("api", path_prefix="/api"), Route("rest")]
    )
    assert routes.match(request_info("/login", "POST")) == "login"
    assert routes.match(request_info("/login")) == "rest"
    assert routes.match(request_info("/api/x")) == "api"
    assert routes.only is None
    assert Routes([Route("api", path_prefix="/api")]).match(request_info("/")) is None
    assert Routes([]).match(request_info("/")) is None


def test_a_first_route_without_conditions_names_the_only_domain() -> None:
    routes = Routes([Route("all"), Route("api", path_prefix="/api")])
    assert routes.only == "all"
    assert routes.match(request_info("/api")) == "all"
    for asked in ({"identify": "path:1"}, {"also": ("b",)}, {"cost": 2}, {"unless": Conditions(host="a")}):
        assert Routes([Route("all", **asked)]).only is None


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (b"/", b"/"),
        (b"/a/", b"/a/"),
        (b"/a//b/", b"/a/b/"),
        (b"/a/b/..", b"/a/"),
        (b"/..", b"/"),
        (b"/../..//x", b"/x"),
        (b"/a/.hidden", b"/a/.hidden"),
        (b"/a%2Fb", b"/a/b"),
        (b"/%", b"/%"),
        (b"/%zz%4", b"/%zz%4"),
        (b"/%ff", b"/\xff"),
        (b"/x/..;a=1/login;b/c", b"/login/c"),
        (b"/x/%2e%2e;/login", b"/login"),
        (b"/x/..\\login", b"/login"),
        (b"/x%5c..%5clogin", b"/login"),
        (b"*", b"*"),
        (b"", b""),
    ],
)
def test_a_plain_path_has_no_escapes_dots_or_doubled_slashes(path: bytes, expected: bytes) -> None:
    assert plain_path(path) == expected


@pytest.mark.parametrize(
    ("wanted", "host", "expected"),
    [
        ("api.example.org", "api.example.org", True),
        ("api.example.org", "API.Example.ORG:8080", True),
        ("API.example.org", "api.example.org.", True),
        ("api.example.org", "example.org", False),
        ("api.example.org:8443", "api.example.org:8443", True),
        ("api.example.org:8443", "api.example.org", False),
        ("[2001:db8::1]", "[2001:db8::1]:80", True),
        ("[2001:db8::1]", "[2001:db8::1]", True),
        ("api.example.org", "", False),
    ],
)
def test_hosts_compare_without_case_and_port_unless_the_route_names_a_port(
    wanted: str, host: str, expected: bool
) -> None:
    assert matches(Route("d", host=wanted), request_info(host=host)) is expected


@pytest.mark.parametrize(
    ("value", "sent", "expected"),
    [
        ("", "anything", True),
        ("", "", True),
        ("prefetch", "prefetch", True),
        ("prefetch", "Prefetch", False),
        ("prefetch", "prefetch;anonymous-client-ip", True),
        ("prefetch", "prefetch ; prerender", True),
        ("prefetch", "other, prefetch;x", False),
        ("prefetch;prerender", "prefetch;prerender", True),
        ("prefetch;prerender", "prefetch", False),
        ("prefetch", "prefetching", False),
        ("a, b", "a, b", True),
    ],
)
def test_a_route_may_require_a_field_or_its_value(value: str, sent: str, expected: bool) -> None:
    route = Route("prefetch", header="Sec-Purpose", value=value)
    assert matches(route, request_info(sec_purpose=sent)) is expected
    assert not matches(route, request_info())


def test_a_credential_matches_in_each_spelling_of_its_scheme_and_only_once() -> None:
    """What matches a domain by its credential is identified by it, too, and has one limit."""
    route = Route("gold", header="Authorization", value="Bearer goldToken")
    assert matches(route, request_info(authorization="bEARER  goldToken"))
    assert not matches(route, request_info(authorization="Bearer GOLDtoken"))
    twice = request_info(authorization="Bearer goldToken")
    twice.fields *= 2
    assert not matches(route, twice)
    assert header("Authorization")(twice) == b"192.0.2.1"
    assert matches(Route("any", header="Authorization"), twice)


@pytest.mark.parametrize(
    ("condition", "sent", "expected"),
    [
        ({"path_prefix": ["/a/", "/b/"]}, {"path": "/x/../b/c"}, True),
        ({"path_prefix": ["/a/", "/b/"]}, {"path": "/b"}, False),
        ({"host": ["a.example", "b.example:81"]}, {"host": "B.example:81"}, True),
        ({"host": ["a.example", "b.example:81"]}, {"host": "b.example"}, False),
        ({"methods": ["PUT", "GET"]}, {"method": "HEAD"}, True),
        ({"methods": ["PUT", "GET"]}, {"method": "POST"}, False),
        ({"clients": ["192.0.2.0/24"]}, {}, True),
        ({"clients": ["192.0.2.2", "::/0"]}, {}, False),
        ({"header": "X", "prefix": "ab"}, {"x": "abc"}, True),
        ({"header": "X", "prefix": "ab"}, {"x": "bab"}, False),
        ({"header": "Authorization", "prefix": "Bearer"}, {"authorization": "bearer  t"}, True),
        ({"header": "Authorization", "prefix": "Bearer ab"}, {"authorization": "BEARER abc"}, True),
        ({"header": "X", "regex": "b+c$"}, {"x": "abbc"}, True),
        ({"header": "X", "regex": "^b+c"}, {"x": "abbc"}, False),
        ({"header": "X", "regex": ".*"}, {}, False),
        ({"header": "X", "regex": "a"}, {"x": "a" * 8193}, False),
        ({"unless": Conditions(path_prefix="/a", methods=("POST",))}, {"path": "/a", "method": "POST"}, False),
        ({"unless": Conditions(path_prefix="/a", methods=("POST",))}, {"path": "/a"}, True),
        ({"host": "example.org", "unless": Conditions(user_agent="Bot")}, {"user_agent": "Bot/1"}, False),
    ],
)
def test_further_conditions(condition: dict[str, Any], sent: dict[str, str], expected: bool) -> None:
    assert matches(Route("d", **condition), request_info(**sent)) is expected


def test_the_client_of_a_trusted_proxy_is_the_one_that_it_names() -> None:
    routes = Routes([Route("office", clients=("198.51.100.0/24",))], client_address(["192.0.2.1"]))
    assert routes.match(request_info(x_forwarded_for="198.51.100.9")) == "office"
    assert routes.match(request_info(x_forwarded_for="198.51.100.9, 203.0.113.1")) is None
    assert routes.match(request_info()) is None
    untrusted = Routes([Route("office", clients=("198.51.100.0/24",))])
    assert untrusted.match(request_info(x_forwarded_for="198.51.100.9")) is None


def test_a_regular_expression_needs_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(ConfigurationError, match=r"regex 'a' needs the package google-re2; pip install '.\[re2\]"):
        Routes([Route("d", header="X", regex="a")])


def test_methods_are_case_sensitive_and_get_includes_head() -> None:
    for wanted, matched in (("POST", ["POST"]), ("GET", ["GET", "HEAD"]), ("HEAD", ["HEAD"])):
        route = Route("d", methods=(wanted,))
        sent = ["GET", "HEAD", "POST", "get", "post"]
        assert [method for method in sent if matches(route, request_info(method=method))] == matched


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ("ExampleBot", True),
        ("examplebot/1.0 (+https://example.org/)", True),
        ("Mozilla/5.0 (compatible; ExampleBot/1.0; +https://example.org/)", True),
        ("Mozilla/5.0 (X11; SM(2)) WebKit/1.0 (KHTML, like Gecko;ExampleBot) Safari/2", True),
        ("NotExampleBotAtAll", False),
        ("ExampleBot-Image/1.0", False),
        ("Other/ExampleBot", False),
        ("Other/1.0 (+https://example.org/ExampleBot)", False),
        ("ExampleBot/1.0, Mozilla/5.0", False),
        ("ExampleBot/1.0 (", False),
        ("", False),
    ],
)
def test_a_user_agent_has_a_product_in_any_case_and_version(sent: str, expected: bool) -> None:
    route = Route("d", user_agent="ExampleBot")
    request = request_info(user_agent=sent)
    assert matches(route, request) is expected
    request.fields *= 2
    assert not matches(route, request)


def test_a_path_and_a_field_are_read_once_for_all_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    by_path = [Route(name, path_prefix=f"/{name}") for name in "ab"]
    routes = Routes([*by_path, *(Route(name, header="X", value=name) for name in "cd")])
    read: list[bytes] = []
    monkeypatch.setattr("headgate.origin.routes.plain_path", lambda path: (read.append(path), plain_path(path))[1])
    monkeypatch.setattr("headgate.origin.routes.credential", lambda _name, value: (read.append(value), value)[1])
    assert routes.match(request_info("/%63", x="d;q=1")) == "d"
    assert read == [b"/%63", b"d;q=1"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"path_prefix": ["/a", "b"]}, "invalid path_prefix 'b'; expected it normalized: '/b'"),
        ({"host": ["a", ""]}, "invalid host ''"),
        ({"path_prefix": "/a;b"}, "normalized: '/a'"),
        ({"clients": ["10.0.0.0/33"]}, "invalid address '10.0.0.0/33'; expected an address or a CIDR such as"),
        ({"regex": "^a"}, "regex '^a' without a header; add header = 'NAME'"),
        ({"header": "X", "value": "a", "prefix": "b"}, "value 'a' and prefix 'b' exclude each other; set only one"),
        ({"header": "X", "regex": "(?=a)"}, "invalid regex '(?=a)': invalid perl operator: (?=; expected the syntax"),
        ({"unless": Conditions(value="x")}, "value 'x' without a header"),
        ({"path_prefix": "api"}, "invalid path_prefix 'api'; expected it normalized: '/api'"),
        ({"path_prefix": "//api/"}, "normalized: '/api/'"),
        ({"path_prefix": "/x/../api"}, "normalized: '/api'"),
        ({"path_prefix": "/caf%C3%A9"}, "normalized: '/café'"),
        ({"host": "http://example.org/"}, "without scheme and path"),
        ({"host": "a b"}, "invalid host 'a b'"),
        ({"methods": ["get"]}, "methods are case-sensitive, try 'GET'"),
        ({"methods": ["GET "]}, "methods are case-sensitive, try 'GET'"),
        ({"header": "Sec Purpose"}, "invalid header name 'Sec Purpose'"),
        ({"header": "Sec-Purpose:"}, "invalid header name"),
        ({"user_agent": "*"}, "invalid user_agent '*'; expected one product without its version, such as 'ExampleBot'"),
        ({"value": "prefetch"}, "value 'prefetch' without a header"),
        ({"user_agent": "ExampleBot/1.0"}, "invalid user_agent 'ExampleBot/1.0'"),
    ],
)
def test_a_route_that_cannot_match_is_refused(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^domain 'd': ") as caught:
        Routes([Route("d", **asked)])
    assert words in str(caught.value)


def test_routes_that_can_match_are_accepted() -> None:
    paths = [Route("d", path_prefix=path) for path in ("/", "/café/", "/.well-known/")]
    hosts = [Route("d", host=host) for host in ("[::1]:8080", "a_b.example.")]
    assert Routes([*paths, *hosts, Route("d", methods=("M-SEARCH",)), Route("d", methods=("purge",))]).domains == ("d",)


def test_what_is_not_a_list_of_routes_is_refused() -> None:
    for routes in (3, None, "d", ["d"], [("d", "/")], Route("d")):
        with pytest.raises(ConfigurationError, match=r"^expected a list of Route, such as \[Route\('api', .* got "):
            Routes(routes)  # type: ignore[arg-type]  # the point of the test


def test_a_condition_of_another_type_is_refused() -> None:
    for name in ("path_prefix", "host", "methods", "header", "user_agent", "unless", "cost"):
        with pytest.raises(ConfigurationError, match=rf"^domain 'd': Expected .* - at `\$\.{name}`$"):
            Routes([Route(**{"domain": "d", name: 3.5})])
