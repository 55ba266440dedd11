import pytest

from headgate.errors import ConfigurationError
from headgate.limit import ConcurrencyLimit, ConcurrencySettings, Domain, Gatekeeper, Rule
from headgate.origin import RequestInfo, Route, Routes, asgi, client_address, header, wsgi
from headgate.origin.admission import Admission, RequestAdapter, check_domain, make_limit, make_priority_of


class Request(dict[str, str]):
    """Stands for a scope or an environ: what a server hands over."""


def read(request: Request) -> RequestInfo:
    return RequestInfo(
        b"GET", request.get("path", "/").encode(), b"", [(b"x-key", request.get("key", "").encode())], "192.0.2.1"
    )


ADAPTER = RequestAdapter[Request](
    peer=lambda _request: "192.0.2.1",
    field=lambda name: lambda request: request["key"].encode() if name == b"x-key" and "key" in request else None,
    info=read,
)


def classify(request: Request, identify="client-address", domain="default"):
    return Admission(ADAPTER, gatekeeper=Gatekeeper(), identify=identify, domain=domain).classify(request)


@pytest.mark.parametrize(
    ("identify", "identifier"),
    [
        ("client-address", b"192.0.2.1"),
        ("header:X-Key", b"=k"),
        (client_address(), b"192.0.2.1"),
        (client_address(["192.0.2.0/24"]), b"192.0.2.1"),
        (header("X-Key"), b"=k"),
        (lambda request: request["key"] + "é", "ké".encode()),
        (lambda request: b"\xff", b"\xff"),
        (lambda request: "\udcff", b"\xed\xb3\xbf"),
    ],
)
def test_identify_may_be_a_text_an_identify_or_a_callable(identify, identifier):
    assert classify(Request(key="k"), identify) == ("default", identifier)


def test_a_long_identifier_from_a_callable_becomes_a_digest():
    _, identifier = classify(Request(), lambda request: "x" * 300)
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
def test_domain_may_be_a_name_routes_or_a_callable(domain, expected):
    found = classify(Request(key="k"), domain=domain)
    assert found is not None
    assert found[:2] == (expected, b"192.0.2.1")


def test_none_leaves_a_request_unlimited():
    assert classify(Request(), identify=lambda request: None) is None
    assert classify(Request(), domain=lambda request: None) is None
    assert classify(Request(), identify=lambda request: None, domain=lambda request: "api") is None
    assert classify(Request(), domain=Routes([Route("p", path_prefix="/p")])) is None


def test_routes_may_identify_and_count_in_several_domains():
    routes = Routes([Route("p", path_prefix="/p", identify="header:X-Key", also=("all",), cost=2), Route("all")])
    gatekeeper = Gatekeeper.embedded([Domain("p"), Domain("all", (Rule.parse("1/h burst 3"),))], max_delay=0)
    admission = Admission(ADAPTER, gatekeeper=gatekeeper, domain=routes)
    charges = admission.classify(Request(path="/p", key="k"))
    assert charges == ("p", b"=k", (("all", b"192.0.2.1"),), 2)
    verdicts = [admission.admit(charges, now=100.0) for _ in range(3)]
    assert [(one.status.value, one.domain) for one in verdicts] == [("ACCEPTED", "p")] * 2 + [("REJECTED", "all")]
    assert Admission(ADAPTER, gatekeeper=gatekeeper, domain=routes, identify=lambda _: None).classify(Request()) is None
    with pytest.raises(ConfigurationError, match=r"domain 'p': Expected `int` <= 100 - at `\$.cost`"):
        Routes([Route("p", cost=101)])


def test_an_unknown_identify_text_is_refused_when_building():
    with pytest.raises(ConfigurationError, match="'cookie'"):
        classify(Request(), "cookie")


@pytest.mark.parametrize("request_", [Request(), Request(key=""), Request(key="  ")])
def test_an_absent_or_empty_header_falls_back(request_):
    assert classify(request_, "header:X-Key") == ("default", b"192.0.2.1")
    assert classify(request_, header("X-Key", header("X-Other"))) == ("default", b"192.0.2.1")


@pytest.mark.parametrize("now", [101.0, 99.0], ids=["a second later", "the clock was set back"])
def test_ended_holds_and_histories_are_dropped_about_once_a_second(now):
    gatekeeper = embedded("default")
    admission = Admission(ADAPTER, gatekeeper=gatekeeper)
    drops = []
    assert gatekeeper.master is not None
    gatekeeper.forget = lambda **how: drops.append(("holds", how))
    gatekeeper.master.forget = lambda **how: drops.append(("histories", how))
    for instant in (100.0, 100.5, now, now):
        admission.admit(("default", b"x"), now=instant)
    assert drops == [(what, {"now": at, "most": 1_000}) for at in (100.0, now) for what in ("holds", "histories")]


def embedded(*names):
    return Gatekeeper.embedded([Domain(name, (Rule.parse("1/h"),)) for name in names])


def test_without_domain_the_only_domain_of_an_embedded_master_is_used():
    assert check_domain(None, embedded("shop")) == "shop"
    assert check_domain(None, embedded("shop", "default")) == "default"
    assert check_domain(None, Gatekeeper()) == "default"


@pytest.mark.parametrize(
    ("domain", "names", "error"),
    [
        (None, ["shop", "api"], "domain 'default': .* expected one of 'shop', 'api'$"),
        ("shpo", ["shop"], "domain 'shpo': .* expected one of 'shop'$"),
        (Routes([Route("shop", path_prefix="/s"), Route("rest")]), ["shop"], "domain 'rest': .* one of 'shop'$"),
        (None, [], "domain 'default': .* it has no domains: pass them to Gatekeeper.embedded"),
        ("x", [f"d{number}" for number in range(20)], "'d7', …$"),
        (3, ["shop"], "domain must be a name, Routes or a callable, got 3"),
    ],
)
def test_a_domain_that_an_embedded_master_does_not_have_is_an_error(domain, names, error):
    with pytest.raises(ConfigurationError, match=error):
        check_domain(domain, embedded(*names))


def test_names_are_not_checked_without_an_embedded_master():
    assert check_domain("shop", Gatekeeper()) == "shop"
    routes = Routes([Route("p", path_prefix="/p"), Route("rest")])
    assert check_domain(routes, Gatekeeper()) is routes


@pytest.mark.parametrize("middleware", [asgi.GatekeeperMiddleware, wsgi.GatekeeperMiddleware])
def test_both_middlewares_check_their_domain_and_gatekeeper(middleware):
    with pytest.raises(ConfigurationError, match="domain 'default'"):
        middleware(None, gatekeeper=embedded("shop", "api"))
    with pytest.raises(ConfigurationError, match=r"gatekeeper must be a Gatekeeper, got \[\]"):
        middleware(None, gatekeeper=[])
    with pytest.raises(ConfigurationError, match=r"rejections must be Rejections, such as .*, got 429"):
        middleware(None, gatekeeper=embedded("shop"), rejections=429)
    with pytest.raises(ConfigurationError, match=r"identify must be a text, an Identify or a callable, got 3"):
        middleware(None, gatekeeper=embedded("shop"), identify=3)


def test_a_limit_is_made_of_settings_or_given():
    limit = ConcurrencyLimit(ConcurrencySettings(max=9), lambda: 0.5)
    assert make_limit(limit) is limit
    made = make_limit(ConcurrencySettings(max=5))
    assert made is not None
    assert made.limit == 5
    assert make_limit(None) is None
    assert make_limit(ConcurrencySettings(mode="off")) is None


def test_all_requests_are_those_of_people_without_priorities():
    assert make_priority_of(None, "x") is None
    by_domain = make_priority_of({"bots": "automated"}, lambda request: "any name")
    assert by_domain is not None
    assert [by_domain(object(), name) for name in ("bots", "x")] == ["automated", "people"]


def test_a_domain_of_no_route_is_an_error():
    with pytest.raises(ConfigurationError, match="expected one of none"):
        make_priority_of({"x": "people"}, Routes([]))
