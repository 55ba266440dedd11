"""An opener of urllib with the handler in it: the laws of every polite agent, and what is this library's own."""

import urllib.error
import urllib.request
from contextlib import contextmanager
from http.cookiejar import CookieJar

from headgate.agent.urllib import Handler, Held
from tests.e2e import polite_laws
from tests.e2e.polite_laws import SOON, courtesy, frozen
from tests.e2e.polite_origin import Answer

origin = polite_laws.origin
short_pauses = polite_laws.short_pauses


class NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


class Client:
    def __init__(self, handler: Handler) -> None:
        no_proxy = urllib.request.ProxyHandler({})
        self.opener = urllib.request.build_opener(no_proxy, handler)
        self.staying = urllib.request.build_opener(no_proxy, NoRedirects, Handler(handler._courtesy))

    def ask(self, url, method="GET", body=None, *, interactive=False, follow=True):
        request = urllib.request.Request(url, data=body, method=method)
        if interactive:
            request.headgate = {"interactive": True}
        try:
            with (self.opener if follow else self.staying).open(request) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.status, error.read()

    def read_in_two(self, url, go_on):
        with self.opener.open(url) as response:
            first = response.read1()
            go_on()
            return first, response.read()


class TestLaws(polite_laws.Laws):
    error = urllib.error.URLError
    held = Held
    reuses_connections = False  # as ever in this library

    @contextmanager
    def client(self, courtesy):
        yield Client(Handler(courtesy))


def opener_with(*handlers):
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), *handlers)


def test_each_step_of_an_authentication_is_a_separate_request(origin):
    origin.say("/", Answer(401, {"WWW-Authenticate": 'Basic realm="here"', "Retry-After": "60"}), 200)
    passwords = urllib.request.HTTPPasswordMgrWithDefaultRealm()
    passwords.add_password(None, origin.url, "name", "word")
    opener = opener_with(urllib.request.HTTPBasicAuthHandler(passwords), Handler(frozen()))
    reason = None
    try:
        opener.open(f"{origin.url}/")
    except Held as held:  # and release its traceback, which keeps the only reference to the open response
        reason = held.reason
    assert reason == "retry-after"
    assert len(origin.asked) == 1


def test_the_handler_works_in_any_order_of_handlers(origin):
    origin.say("/", Answer(503, {"Set-Cookie": "this=that"}), 200)
    handlers = [urllib.request.HTTPHandler(), urllib.request.HTTPCookieProcessor(CookieJar())]
    for place in range(3):
        among = handlers.copy()
        among.insert(place, Handler(courtesy(SOON, wait=60, retry=1)))
        with opener_with(*among).open(f"{origin.url}/") as response:
            assert response.status == 200
        origin.say("/", 503, 200)
    assert len(origin.asked) == 6


def test_responses_of_a_cache_in_front_are_not_counted(origin):
    class Cache(urllib.request.BaseHandler):
        handler_order = 200
        kept = None

        def http_open(self, request):
            return self.kept

    origin.say("/", Answer(200, {"Retry-After": "60"}))
    cache = Cache()
    opener = opener_with(Handler(frozen()), cache)
    response = opener.open(f"{origin.url}/")
    cache.kept = response
    assert opener.open(f"{origin.url}/") is response
    response.close()
    assert len(origin.asked) == 1
