"""Which agent sent a request: keys are fetched beside requests, and no invalid signature costs or replaces much."""

import asyncio
import itertools
import threading
import time

import pytest

from headgate.advice.fetching import NETWORK_ERROR, AdviceResponse
from headgate.errors import ConfigurationError, FetchError
from headgate.identity import RequestSigner, SigningKey, write_directory
from headgate.identity.directory import MEDIA_TYPE
from headgate.limit import Domain, Gatekeeper, Rule
from headgate.origin import Conditions, RequestInfo, Route, Routes, agents, asgi, client_address, parse_identify, wsgi
from headgate.origin.agents import AgentVerifier, directory_fetcher
from headgate.origin.identify import identify_by

NOW = 1_735_690_000.0
KEYS = [SigningKey(bytes([number]) * 32) for number in range(4)]
WELL_KNOWN = "https://{}.example/.well-known/http-message-signatures-directory"
BOT = WELL_KNOWN.format("bot")


def serves(*keys, control="max-age=3600", status=200, **fields):
    pairs = [("Content-Type", MEDIA_TYPE), ("Cache-Control", control), *fields.items()]
    return AdviceResponse(status, pairs, write_directory(key.public for key in keys))


class Fetches:
    """Answers fetches, which it counts, with what `pages` has for the URL."""

    def __init__(self, **pages):
        self.pages = {WELL_KNOWN.format(name): page for name, page in pages.items()}
        self.urls = []

    def __call__(self, request):
        self.urls.append(request.url)
        page = self.pages.get(request.url, NETWORK_ERROR)
        if isinstance(page, Exception):
            raise page
        return page


NONCES = itertools.count(1)


def signed(key=KEYS[0], agent="https://bot.example", *, host="www.example.org", now=NOW, peer="192.0.2.1"):
    signer = RequestSigner(key, agent, entropy=lambda size: next(NONCES).to_bytes(size, "big"))
    fields = [(name.lower().encode(), value.encode()) for name, value in signer.sign(f"https://{host}", now=now)]
    return RequestInfo(b"GET", b"/", host.encode(), [(b"host", host.encode()), *fields], peer)


def fetched(value):
    """Return a value once the fetches in progress are complete."""
    for thread in threading.enumerate():
        if thread.name == "headgate-keys":
            thread.join(5)
    return value


class Site:
    """A verifier, whose fetches are complete when `asks` returns; `now` moves."""

    def __init__(self, fetches, **options):
        self.now, self.fetches = NOW, fetches
        self.verifier = AgentVerifier(["www.example.org"], fetch_keys=fetches, clock=lambda: self.now, **options)

    def asks(self, info):
        return fetched(self.verifier.agent_of(info, lambda info: info.peer.encode(), now=self.now))


def test_an_agent_is_anonymous_until_its_keys_are_fetched():
    """Until then, verifiers MUST NOT attach policy to it."""
    site = Site(Fetches(bot=serves(KEYS[0])))
    assert [site.asks(signed()) for _ in range(3)] == ["", BOT, BOT]
    assert site.fetches.urls == [BOT]


def test_a_key_belongs_to_the_url_that_provides_it():
    """Key lookup MUST be keyed on the (URL, key) pair, not on the key alone."""
    site = Site(Fetches(bot=serves(KEYS[0]), other=serves(KEYS[1])))
    for info in (signed(), signed(KEYS[1], "https://other.example")):
        site.asks(info)
    assert site.asks(signed(KEYS[1])) == ""
    assert site.asks(signed(KEYS[0], "https://other.example")) == ""
    assert site.asks(signed(KEYS[1], "https://other.example")) == WELL_KNOWN.format("other")
    assert [site.asks(signed(agent="https://bot.example:8443")) for _ in range(2)] == ["", ""]
    assert site.fetches.urls[2:] == [BOT.replace("example/", "example:8443/")]


def test_a_signature_for_another_site_is_not_accepted():
    site = Site(Fetches(bot=serves(KEYS[0])))
    site.asks(signed())
    info = signed(host="evil.example")
    assert site.asks(info) == ""
    info.host = b"www.example.org"
    assert site.asks(info) == ""
    assert site.asks(signed(host="WWW.example.org:443")) == BOT


FAILURES = [
    NETWORK_ERROR,
    FetchError("no descriptor"),
    RuntimeError("can't start new thread"),
    serves(KEYS[1], status=404),
    serves(status=302),
    AdviceResponse(200, [("Content-Type", "text/html")], b"<html>"),
    AdviceResponse(200, [("Content-Type", MEDIA_TYPE)], None),
]


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_fetch_removes_no_directory(failure):
    """A directory that fails to resolve is not evidence and MUST NOT evict a cached entry."""
    site = Site(Fetches(bot=serves(KEYS[0])))
    site.asks(signed())
    site.fetches.pages[BOT] = failure
    site.now += 3600 + 86_399  # stale, and for a day not too stale
    assert [site.asks(signed(now=site.now)) for _ in range(2)] == [BOT, BOT]
    assert len(site.fetches.urls) == 2
    site.now += 1
    assert site.asks(signed(now=site.now)) == ""


def test_a_directory_without_a_key_removes_it_and_what_was_verified_with_it():
    """A directory that resolves and does not contain the key is evidence."""
    site = Site(Fetches(bot=serves(KEYS[0], KEYS[1], control="max-age=60")))
    site.asks(signed())
    cached = signed()
    assert site.asks(cached) == BOT
    site.fetches.pages[BOT] = serves(KEYS[1])
    site.now += 61
    assert site.asks(signed(KEYS[1], now=site.now)) == BOT
    assert site.asks(cached) == ""
    assert site.asks(signed(now=site.now)) == ""


def test_what_is_cached_lasts_no_longer_than_its_key():
    brief = SigningKey(bytes([9]) * 32, expires=NOW + 70)
    site = Site(Fetches(bot=serves(KEYS[0], brief, control="max-age=60")))
    site.asks(signed())
    info, expiring = signed(), signed(brief)
    assert [site.asks(each) for each in (info, expiring)] == [BOT, BOT]
    site.now += 70
    assert site.asks(expiring) == ""
    site.fetches.pages[BOT] = serves(KEYS[1])
    site.now += 60
    assert [site.asks(info) for _ in range(2)] == [BOT, ""]  # no other request asks for the directory


def test_a_new_key_is_found_after_a_minute():
    site = Site(Fetches(bot=serves(KEYS[0])))
    site.asks(signed())
    site.fetches.pages[BOT] = serves(KEYS[0], KEYS[1])
    site.asks(signed(KEYS[1]))
    assert len(site.fetches.urls) == 1
    site.now += 60
    assert [site.asks(signed(KEYS[1], now=site.now)) for _ in range(2)] == ["", BOT]


def test_a_failed_fetch_is_repeated_after_a_minute_or_when_the_server_says():
    site = Site(Fetches(bot=serves(status=503, **{"Retry-After": "300"})))
    for seconds, expected in [(0, 1), (60, 1), (299, 1), (300, 2)]:
        site.now = NOW + seconds
        site.asks(signed(now=site.now))
        assert len(site.fetches.urls) == expected, seconds


def test_a_verified_signature_is_cached_until_it_expires(monkeypatch):
    site = Site(Fetches(bot=serves(KEYS[0])))
    site.asks(signed())
    info = signed()
    assert site.asks(info) == BOT
    monkeypatch.setattr(agents, "read_claims", lambda *_args, **_options: [])
    for seconds, expected in ((0, BOT), (359, BOT), (360, "")):
        site.now = NOW + seconds
        assert site.asks(info) == expected


def test_what_a_signature_covers_beyond_its_host_is_checked_each_time():
    site = Site(Fetches(bot=serves(KEYS[0])))
    site.asks(signed())
    info = signed()
    assert site.asks(info) == BOT
    changed = RequestInfo(**{name: getattr(info, name) for name in info.__struct_fields__})
    changed.fields = [*info.fields, (b"signature-agent", b'x="https://bot.example"')]
    assert site.asks(changed) == BOT
    changed.host = b"other.example.org"
    assert site.asks(changed) == ""


def test_a_nonce_is_accepted_once_if_configured_and_not_forgotten_for_another(monkeypatch):
    monkeypatch.setattr(agents, "MAX_NONCES", 2)
    site = Site(Fetches(bot=serves(KEYS[0]), a=serves(KEYS[1])), single_use=True)
    other = KEYS[1], "https://a.example"
    for agent in ((), other):
        site.asks(signed(*agent))
    first = signed()
    assert [site.asks(first) for _ in range(2)] == [BOT, ""]
    assert [bool(site.asks(signed(*other))) for _ in range(2)] == [True, False]
    assert [site.asks(info) for info in (signed(), first)] == ["", ""]
    site.verifier.named = ROUTES.agents()  # for which there is more room
    assert [site.asks(signed()) for _ in range(3)] == [BOT, BOT, ""]
    site.now += 360
    assert [bool(site.asks(signed(*other, now=site.now))) for _ in range(3)] == [True, True, False]


def test_invalid_signatures_are_charged_to_their_client(monkeypatch):
    site = Site(Fetches(bot=serves(KEYS[0])))
    site.asks(signed())
    work = []
    real = agents.read_claims
    monkeypatch.setattr(agents, "read_claims", lambda *given, **options: work.append(1) or real(*given, **options))
    good = signed(peer="192.0.2.2")
    assert site.asks(good) == BOT
    for _ in range(100):
        assert site.asks(signed(KEYS[1], peer="192.0.2.3")) == ""
    assert len(work) == 1 + 20
    assert site.asks(good) == BOT
    for _ in range(100):  # those that are verified are refunded
        assert site.asks(signed(peer="192.0.2.2")) == BOT
    assert site.asks(signed(peer="192.0.2.3")) == ""
    site.now += 1
    assert site.asks(signed(peer="192.0.2.3")) == BOT


def test_fetches_are_bounded_by_client_and_in_all():
    site = Site(Fetches())
    for number in range(30):
        site.asks(signed(agent=f"https://a{number}.example"))
    assert len(site.fetches.urls) == 5
    for number in range(100):
        site.asks(signed(agent=f"https://b{number}.example", peer=f"192.0.2.{number}"))
    assert len(site.fetches.urls) == 20
    site.now += 1
    for number in range(100):
        site.asks(signed(agent=f"https://c{number}.example", peer=f"198.51.100.{number}", now=site.now))
    assert len(site.fetches.urls) == 22


def test_only_four_new_directories_are_fetched_at_once_and_a_known_one_does_not_wait():
    gate, started = threading.Event(), []
    site = Site(Fetches(bot=serves(KEYS[0])))
    site.asks(signed())
    site.verifier._fetch_keys = lambda request: started.append(request.url) or (gate.wait(10) and NETWORK_ERROR)
    site.now += 3600
    agents_ = [*(f"https://a{number}.example" for number in range(6)), "https://bot.example"]
    for agent in agents_:
        site.verifier.agent_of(signed(agent=agent, peer=agent, now=site.now), lambda info: b"", now=site.now)
    deadline = time.monotonic() + 5
    while len(started) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sorted(started) == [*(WELL_KNOWN.format(f"a{number}") for number in range(4)), BOT]
    gate.set()


def test_agents_that_routes_name_do_not_wait_for_others(monkeypatch):
    monkeypatch.setattr(agents, "MAX_DIRECTORIES", 2)
    site, gate = Site(Fetches(bot=serves(status=503))), threading.Event()
    site.verifier.named = ROUTES.agents()
    for number in range(60):  # no token is left
        site.asks(signed(agent=f"https://a{number}.example", peer=f"192.0.2.{number}"))
    site.asks(signed())
    assert site.fetches.urls[20:] == [BOT]
    for number in range(60):
        site.now += 0.9
        for name in "bcd":
            site.asks(signed(agent=f"https://{name}{number}.example", peer=f"198.51.100.{number}", now=site.now))
        site.asks(signed(now=site.now))
    assert site.fetches.urls.count(BOT) == 1  # others do not make it be asked again early
    site.verifier._fetch_keys = lambda _request: gate.wait(10) and NETWORK_ERROR
    site.now += 7
    for number in range(9):  # no fetch is left
        request = signed(agent=f"https://e{number}.example", peer=f"203.0.113.{number}", now=site.now)
        site.verifier.agent_of(request, lambda info: info.peer.encode(), now=site.now)
    site.verifier._fetch_keys = Fetches(bot=serves(KEYS[0]))
    site.verifier.agent_of(signed(now=site.now), lambda info: b"", now=site.now)
    deadline = time.monotonic() + 5
    while BOT not in site.verifier._directories and time.monotonic() < deadline:
        time.sleep(0.01)
    gate.set()
    assert site.asks(signed(now=site.now)) == BOT


@pytest.mark.parametrize("is_cached", [True, False])
def test_agents_that_routes_name_and_agents_in_use_keep_their_keys(monkeypatch, is_cached):
    monkeypatch.setattr(agents, "MAX_DIRECTORIES", 2)
    names = ["bot", "used", *(f"a{number}" for number in range(4))]
    site = Site(Fetches(**{name: serves(KEYS[0]) for name in names}))
    site.verifier.named = ROUTES.agents()
    in_use = signed(agent="https://used.example")
    for name in names:
        site.asks(signed(agent=f"https://{name}.example", peer=name))
        request = in_use if is_cached else signed(agent="https://used.example")
        assert bool(site.asks(request)) == (name != "bot")
    assert list(site.verifier._directories) == [WELL_KNOWN.format(name) for name in ("bot", "a3", "used")]


def test_a_system_without_threads_leaves_agents_anonymous(monkeypatch):
    site = Site(Fetches(bot=serves(KEYS[0])))
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", lambda _thread: exec("raise RuntimeError"))
        for _ in range(2):
            assert site.asks(signed(now=site.now)) == ""
            site.now += 1
    assert [site.asks(signed(now=site.now)) for _ in range(2)] == ["", BOT]


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(agents, "MAX_CACHED", 2)
    monkeypatch.setattr(agents, "MAX_CLIENTS", 2)
    site = Site(Fetches(bot=serves(KEYS[0])))
    for peer in "abcd":
        site.asks(signed(peer=peer))
    assert len(site.verifier._verified) == 2
    assert len(site.verifier._verifications._levels) == 2
    info = signed()
    info.fields.append((b"signature-agent", b'x="' + b"a" * 2048 + b'"'))
    before = list(site.verifier._verified)
    assert site.asks(info) == BOT
    assert list(site.verifier._verified) == before


def test_private_addresses_are_not_connected_to():
    fetch = directory_fetcher()
    for url in ("https://127.0.0.1/", "https://[::1]/", "https://localhost/", "https://10.0.0.1:444/"):
        request = agents._Directories().request(url)
        response = fetch(request)
        assert response.status == 0
        assert "which is" in response.failure, response.failure


def test_a_verifier_needs_authorities_and_readable_files():
    with pytest.raises(ConfigurationError, match="web_bot_auth"):
        AgentVerifier([])
    with pytest.raises(ConfigurationError, match=r"web_bot_auth\.ca: 'absent\.pem' cannot be used"):
        directory_fetcher(ca="absent.pem")
    with pytest.raises(ConfigurationError, match="invalid network"):
        directory_fetcher(["10.0.0.1/8"])


def info(agent="", *, peer="192.0.2.1", **fields):
    lines = [(name.lower().replace("_", "-").encode(), value.encode()) for name, value in fields.items()]
    return RequestInfo(b"GET", b"/a/b", b"www.example.org", lines, peer, agent=agent)


IDENTIFIED = [
    ("web-bot-auth", info(BOT), BOT.encode()),
    ("web-bot-auth", info(), b"192.0.2.1"),
    (("web-bot-auth",), info(), b"192.0.2.1"),
    (("web-bot-auth", "client-address"), info(BOT), BOT.encode()),
    (("web-bot-auth", "header:X-Key"), info(x_key="k"), b"=k"),
    (("web-bot-auth", "header:X-Key", "path:2"), info(x_key="k"), b"=k&=b"),
    (("web-bot-auth", "header:X-Key", "path:2"), info(BOT, x_key="k"), BOT.encode()),
    ("header:X-Key", info(x_key=BOT), b"=" + BOT.encode()),  # no field can have the identifier of an agent
]


@pytest.mark.parametrize(("methods", "request_", "identifier"), IDENTIFIED)
def test_agents_identify_and_the_rest_of_the_list_other_requests(methods, request_, identifier):
    identify = identify_by(methods, client_address())
    assert identify(request_) == identifier
    if methods != "header:X-Key":
        assert identify.per_connection("192.0.2.1") is None


def test_agents_are_first_in_a_list_and_not_for_every_server():
    with pytest.raises(ConfigurationError, match="must be the first of a list"):
        identify_by(("header:X-Key", "web-bot-auth"), client_address())
    with pytest.raises(ConfigurationError, match="expected 'client-address' or a header"):
        parse_identify("web-bot-auth")


ROUTES = Routes(
    [
        Route("one", agent="https://BOT.example"),
        Route("two", agent=["https://a.example/keys", "https://b.example"]),
        Route("humans", unless=Conditions(agent="*"), path_prefix="/a/"),
        Route("all", agent="*"),
    ]
)


MATCHES = {
    BOT: "one",
    "https://a.example/keys": "two",
    WELL_KNOWN.format("b"): "two",
    "": "humans",
    "https://c.example/": "all",
}


@pytest.mark.parametrize(("agent", "domain"), MATCHES.items())
def test_requests_of_agents_belong_to_domains(agent, domain):
    assert ROUTES.needs_agents
    assert ROUTES.agents() == {BOT, "https://a.example/keys", WELL_KNOWN.format("b")}
    assert ROUTES.match(info(agent)) == domain
    assert not Routes([Route("x", path_prefix="/")]).needs_agents


@pytest.mark.parametrize("text", ["bot.example", "http://bot.example", "**"])
def test_an_agent_of_a_route_is_an_https_url(text):
    with pytest.raises(ConfigurationError, match="invalid agent"):
        Routes([Route("x", agent=text)])


def gatekeeper():
    rules = {"agents": "1/min burst 2", "others": "1/min burst 1"}
    return Gatekeeper.embedded([Domain(name, (Rule.parse(rule),)) for name, rule in rules.items()])


@pytest.mark.parametrize("kind", ["asgi", "wsgi"])
def test_middlewares_verify_agents(kind):
    fetches = Fetches(bot=serves(KEYS[0]))
    verifier = AgentVerifier(["www.example.org"], fetch_keys=fetches)
    routes = Routes([Route("agents", agent="*"), Route("others")])
    options = {"gatekeeper": gatekeeper(), "identify": "web-bot-auth", "domain": routes, "agents": verifier}
    module, app, status = (asgi, ok_asgi, asgi_status) if kind == "asgi" else (wsgi, ok_wsgi, wsgi_status)
    middleware = module.GatekeeperMiddleware(app, **options)

    def ask(key=KEYS[0]):
        return fetched(status(middleware, signed(key, now=time.time())))

    assert [ask() for _ in range(4)] == [200, 200, 200, 503]  # the first one is anonymous
    assert ask(KEYS[1]) == 503
    verifier._single_use = True  # an agent is verified once for each request
    assert ask() == 503
    assert len(verifier._nonces) == 1
    with pytest.raises(ConfigurationError, match="expected agents="):
        asgi.GatekeeperMiddleware(ok_asgi, gatekeeper=gatekeeper(), identify="web-bot-auth", domain="agents")
    with pytest.raises(ConfigurationError, match="expected agents="):
        asgi.GatekeeperMiddleware(ok_asgi, gatekeeper=gatekeeper(), domain=routes)


def test_behind_a_proxy_invalid_signatures_are_charged_to_their_client():
    verifier = AgentVerifier(["www.example.org"], fetch_keys=Fetches(bot=serves(KEYS[0])))
    routes = Routes([Route("agents", agent="https://bot.example")])
    identify = identify_by("web-bot-auth", client_address(["10.0.0.1"]))
    middleware = asgi.GatekeeperMiddleware(
        ok_asgi, gatekeeper=gatekeeper(), identify=identify, domain=routes, agents=verifier
    )
    assert verifier.named == {BOT}
    for key, client in [(KEYS[0], b"192.0.2.1"), *[(KEYS[1], b"192.0.2.9")] * 30, *[(KEYS[0], b"192.0.2.1")] * 3]:
        request = signed(key, now=time.time(), peer="10.0.0.1")
        request.fields.append((b"x-forwarded-for", client))
        status = fetched(asgi_status(middleware, request))
    assert status == 503  # the rule of verified agents has been used up


async def ok_asgi(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def asgi_status(app, request):
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": request.fields}
    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope | {"client": (request.peer, 1)}, None, send))
    return sent[0]["status"]


def ok_wsgi(environ, start_response):
    start_response("200 OK", [])
    return []


def wsgi_status(app, request):
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "REMOTE_ADDR": request.peer, "wsgi.input": None}
    for name, value in request.fields:
        environ["HTTP_" + name.decode().upper().replace("-", "_")] = value.decode()
    statuses = []
    list(app(environ, lambda status, fields: statuses.append(int(status[:3]))))
    return statuses[0]
