import pytest

from headgate.errors import ConfigurationError
from headgate.limit import Domain, Gatekeeper, Rule
from headgate.origin import Head, Route, Routes, client_address, header
from headgate.origin.admission import Reading, forget, questions


class Request(dict[str, str]):
    """Stands for a scope or an environ: what a server hands over."""


def read(request: Request) -> Head:
    return Head(
        b"GET", request.get("path", "/").encode(), b"", [(b"x-key", request.get("key", "").encode())], "192.0.2.1"
    )


READING = Reading[Request](
    peer=lambda _request: "192.0.2.1",
    field=lambda name: lambda request: request["key"].encode() if name == b"x-key" and "key" in request else None,
    head=read,
)


def question(request: Request, identify="client-address", domain="default"):
    return questions(identify, domain, READING)(request)


@pytest.mark.parametrize(
    ("identify", "identifier"),
    [
        ("client-address", b"192.0.2.1"),
        ("header:X-Key", b"k"),
        (client_address(), b"192.0.2.1"),
        (client_address(["192.0.2.0/24"]), b"192.0.2.1"),
        (header("X-Key"), b"k"),
        (lambda request: request["key"] + "é", "ké".encode()),
        (lambda request: b"\xff", b"\xff"),
        (lambda request: "\udcff", b"\xed\xb3\xbf"),
    ],
)
def test_the_identifier_comes_from_wherever_it_was_told_to(identify, identifier):
    assert question(Request(key="k"), identify) == ("default", identifier)


def test_a_callables_long_answer_fits_a_frame():
    _, identifier = question(Request(), lambda request: "x" * 300)
    assert identifier.startswith(b"sha256:")


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        ("api", "api"),
        (lambda request: request["key"], "k"),
        (Routes([Route("all")]), "all"),
        (Routes([Route("p", path_prefix="/p"), Route("rest")]), "rest"),
    ],
)
def test_the_domain_comes_from_wherever_it_was_told_to(domain, expected):
    assert question(Request(key="k"), domain=domain) == (expected, b"192.0.2.1")


def test_none_leaves_a_request_unlimited():
    assert question(Request(), identify=lambda request: None) is None
    assert question(Request(), domain=lambda request: None) is None
    assert question(Request(), domain=Routes([Route("p", path_prefix="/p")])) is None


def test_a_text_that_is_no_way_to_identify_is_refused_when_building():
    with pytest.raises(ConfigurationError, match="'cookie'"):
        questions("cookie", "default", READING)


@pytest.mark.parametrize("request_", [Request(), Request(key=""), Request(key="  ")])
def test_a_header_that_says_nothing_falls_back(request_):
    assert question(request_, "header:X-Key") == ("default", b"192.0.2.1")
    assert question(request_, header("X-Key", header("X-Other"))) == ("default", b"192.0.2.1")


def test_a_master_inside_forgets_too():
    gatekeeper = Gatekeeper.embedded([Domain("default", (Rule.parse("1/s"),))])
    gatekeeper.admit("default", b"x", now=100.0)
    assert gatekeeper.master is not None
    assert len(gatekeeper.master) == 1
    forget(gatekeeper, now=200.0)
    assert len(gatekeeper.master) == 0
