import pytest

from headgate.errors import ConfigurationError
from headgate.origin import Head, Route, Routes
from headgate.origin.routes import plain_path


def head(path: str = "/", method: str = "GET", host: str = "example.org", **fields: str) -> Head:
    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()]
    return Head(method.encode(), path.encode(), host.encode(), lines, "192.0.2.1")


def fits(route: Route, request: Head) -> bool:
    return Routes([route]).match(request) == route.domain


def test_the_first_route_that_fits_names_the_domain() -> None:
    routes = Routes(
        [Route("login", path_prefix="/login", method="POST"), Route("api", path_prefix="/api"), Route("rest")]
    )
    assert routes.match(head("/login", "POST")) == "login"
    assert routes.match(head("/login")) == "rest"
    assert routes.match(head("/api/x")) == "api"
    assert routes.only is None


def test_a_request_that_fits_no_route_has_no_domain() -> None:
    assert Routes([Route("api", path_prefix="/api")]).match(head("/")) is None
    assert Routes([]).match(head("/")) is None


def test_a_first_route_that_asks_nothing_makes_matching_unnecessary() -> None:
    routes = Routes([Route("all"), Route("api", path_prefix="/api")])
    assert routes.only == "all"
    assert routes.match(head("/api")) == "all"


@pytest.mark.parametrize(
    "path", ["/api", "/api/x", "/%61pi/x", "//api/x", "/./api", "/x/../api/y", "/%2e%2e/api", "/API/../api"]
)
def test_other_spellings_of_a_path_meet_the_same_rule(path: str) -> None:
    assert fits(Route("api", path_prefix="/api"), head(path))


@pytest.mark.parametrize("path", ["/", "/ap", "/API", "/api/../x", "/api/%2e%2e/x", "*", ""])
def test_other_paths_do_not(path: str) -> None:
    assert not fits(Route("api", path_prefix="/api"), head(path))


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
def test_hosts_compare_without_case_and_without_a_port_unless_one_is_asked(
    wanted: str, host: str, expected: bool
) -> None:
    assert fits(Route("d", host=wanted), head(host=host)) is expected


@pytest.mark.parametrize(
    ("value", "sent", "expected"),
    [
        ("", "anything", True),
        ("", "", True),
        ("prefetch", "prefetch", True),
        ("prefetch", "Prefetch", True),
        ("prefetch", "prefetch;anonymous-client-ip", True),
        ("prefetch", "prefetch ; prerender", True),
        ("prefetch", "other, prefetch;x", True),
        ("prefetch;prerender", "prefetch;prerender", True),
        ("prefetch;prerender", "prefetch", False),
        ("prefetch", "prefetching", False),
        ("a, b", "a, b", True),
    ],
)
def test_a_field_may_be_asked_for_or_what_it_says(value: str, sent: str, expected: bool) -> None:
    assert fits(Route("prefetch", header="Sec-Purpose", value=value), head(sec_purpose=sent)) is expected


def test_an_absent_field_fits_neither() -> None:
    assert not fits(Route("d", header="Sec-Purpose"), head())
    assert not fits(Route("d", header="Sec-Purpose", value="prefetch"), head())


def test_methods_are_case_sensitive() -> None:
    assert fits(Route("d", method="POST"), head(method="POST"))
    assert not fits(Route("d", method="POST"), head(method="post"))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"path_prefix": "api"}, "path_prefix 'api' is no path, decoded and plain; try '/api'"),
        ({"path_prefix": "//api/"}, "try '/api/'"),
        ({"path_prefix": "/x/../api"}, "try '/api'"),
        ({"path_prefix": "/caf%C3%A9"}, "try '/café'"),
        ({"host": "http://example.org/"}, "without scheme and path"),
        ({"host": "a b"}, "host 'a b' is no host"),
        ({"method": "get"}, "case counts; try 'GET'"),
        ({"method": "GET "}, "case counts; try 'GET'"),
        ({"header": "Sec Purpose"}, "header 'Sec Purpose' is no field's name"),
        ({"header": "Sec-Purpose:"}, "is no field's name"),
    ],
)
def test_what_no_request_could_fit_is_refused(asked: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^domain 'd': ") as caught:
        Routes([Route("d", **asked)])
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "asked",
    [
        {"path_prefix": "/"},
        {"path_prefix": "/café/"},
        {"path_prefix": "/.well-known/"},
        {"host": "[::1]:8080"},
        {"host": "a_b.example."},
        {"method": "M-SEARCH"},
        {"method": "purge"},
    ],
)
def test_what_a_request_can_fit_is_taken(asked: dict[str, str]) -> None:
    Routes([Route("d", **asked)])


def test_a_value_without_its_header_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no header"):
        Routes([Route("d", value="prefetch")])
