import pytest

from headgate.errors import ConfigurationError
from headgate.origin import Head, Route, Routes, client_address, header
from headgate.origin.admission import Admission


class Request(dict[str, str]):
    """Stands for a scope or an environ: what a server hands over."""


def read(request: Request) -> Head:
    return Head(
        b"GET", request.get("path", "/").encode(), b"", [(b"x-key", request.get("key", "").encode())], "192.0.2.1"
    )


def admission(identify="client-address", domain="default") -> Admission[Request]:
    return Admission(identify, domain, peer=lambda _request: "192.0.2.1", head=read)


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
    assert admission(identify).question(Request(key="k")) == ("default", identifier)


def test_a_callables_long_answer_fits_a_frame():
    _, identifier = admission(lambda request: "x" * 300).question(Request()) or ("", b"")
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
    assert admission(domain=domain).question(Request(key="k")) == (expected, b"192.0.2.1")


def test_none_leaves_a_request_unlimited():
    assert admission(identify=lambda request: None).question(Request()) is None
    assert admission(domain=lambda request: None).question(Request()) is None
    assert admission(domain=Routes([Route("p", path_prefix="/p")])).question(Request()) is None


def test_a_text_that_is_no_way_to_identify_is_refused_when_building():
    with pytest.raises(ConfigurationError, match="'cookie'"):
        admission("cookie")
