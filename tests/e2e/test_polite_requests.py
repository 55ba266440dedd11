"""A session of requests with the adapter in it: the laws of every polite agent, and what is this library's own."""

from contextlib import contextmanager
from email.utils import formatdate

import cachecontrol
import pytest
import requests
import requests_cache
import trustme
from urllib3.util import Retry

from headgate.agent.requests import Adapter, Held
from tests import servers
from tests.e2e import polite_laws
from tests.e2e.polite_laws import frozen, tls_origin
from tests.e2e.polite_origin import Answer

origin = polite_laws.origin
short_pauses = polite_laws.short_pauses


class Client:
    library = requests

    def __init__(self, session: requests.Session) -> None:
        self.session = session

    def ask(self, url, method="GET", body=None, *, interactive=False, follow=True):
        request = self.session.prepare_request(self.library.Request(method, url, data=body))
        if interactive:
            request.headgate = {"interactive": True}
        response = self.session.send(request, allow_redirects=follow)
        return response.status_code, response.content

    def read_in_two(self, url, go_on):
        with self.session.get(url, stream=True) as response:
            body = response.iter_content(None)
            first = next(body)
            go_on()
            return first, b"".join(body)


@contextmanager
def session_with(adapter: requests.adapters.BaseAdapter, session: requests.Session | None = None):
    with session or requests.Session() as session:
        session.trust_env = False
        session.mount("http://", adapter)
        session.mount("https://", adapter)
        yield session


class TestLaws(polite_laws.Laws):
    error = requests.ConnectionError
    held = Held

    @contextmanager
    def client(self, courtesy):
        with session_with(Adapter(courtesy, pool_maxsize=100)) as session:
            yield Client(session)


def test_retries_by_status_are_made_by_the_courtesy_not_urllib3(origin):
    origin.say("/", Answer(503, {"Retry-After": "1"}), 200)
    with session_with(Adapter(frozen(), max_retries=3)) as session:
        assert session.get(f"{origin.url}/").status_code == 503
    with session_with(Adapter(frozen(), max_retries=Retry(3, backoff_factor=0.001))) as session:
        origin.say("/again", Answer(None), 200)
        assert session.get(f"{origin.url}/again").status_code == 200  # which is for connections


def test_responses_cached_by_cachecontrol_are_not_counted(origin):
    class Cached(cachecontrol.CacheControlAdapter, Adapter):
        """The cache first."""

    origin.say("/", Answer(200, {"Cache-Control": "max-age=600", "Date": formatdate(), "Retry-After": "60"}))
    polite = frozen()
    with session_with(Cached(courtesy=polite)) as session:
        for cached in (False, True, True):
            response = session.get(f"{origin.url}/")
            assert (response.from_cache, response.text) == (cached, "hello")
        with pytest.raises(Held):
            session.get(f"{origin.url}/?another")
    assert len(origin.asked) == 1


def test_responses_cached_by_requests_cache_are_not_counted(origin):
    origin.say("/", Answer(200, {"Retry-After": "60"}))
    cached = requests_cache.CachedSession(backend="memory")
    with session_with(Adapter(frozen()), cached) as session:
        for from_cache in (False, True, True):
            assert session.get(f"{origin.url}/").from_cache == from_cache
        with pytest.raises(Held):
            session.get(f"{origin.url}/?another")
    assert len(origin.asked) == 1


@pytest.mark.needs("tinyproxy")
@pytest.mark.parametrize("tls", [False, True])
def test_requests_through_a_proxy_behave_alike(tmp_path, tls):
    authority = trustme.CA()
    with (
        servers.tinyproxy(tmp_path) as proxy,
        tls_origin(authority if tls else None) as origin,
        authority.cert_pem.tempfile(str(tmp_path)) as file,
    ):
        origin.say("/", 503)
        polite = frozen()

        def get() -> requests.Response:
            # With a session of its own: tinyproxy closes each connection, and does not say so before.
            with session_with(Adapter(polite)) as session:
                proxies = {"http": proxy.url, "https": proxy.url}
                return session.get(f"{origin.url}/", proxies=proxies, verify=file)

        for _ in range(3):
            assert get().status_code == 503
        with pytest.raises(Held, match=f"{origin.url} is held by the backoff"):
            get()
        assert len(origin.asked) == 3
