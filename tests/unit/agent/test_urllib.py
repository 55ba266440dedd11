"""The handler for openers, before a handler that sends nothing."""

import errno
import http.client
import io
import socket
import urllib.error
import urllib.request
from email.message import Message
from types import SimpleNamespace

import pytest

from headgate.agent import Courtesy
from headgate.agent.urllib import Handler, Held
from tests.unit.agent.transport_laws import Script, TransportLaws, frozen, outcome

pytestmark = pytest.mark.usefixtures("short_pauses")

URL = "http://example.com/path"


class Wire(Script, urllib.request.BaseHandler):
    """Is called instead of the library's own handlers."""

    handler_order = 499
    http_open = https_open = Script.answer


def response(status=200, *lines, **attributes):
    headers = Message()
    for name, value in lines:
        headers[name] = value
    made = SimpleNamespace(status=status, code=status, msg="Said", headers=headers, closed=False, **attributes)
    made.info = lambda: headers
    made.close = lambda: setattr(made, "closed", True)
    return made


def opener(courtesy, *handlers):
    """Make one without what would raise for a status."""
    made = urllib.request.OpenerDirector()
    for handler in (Handler(courtesy), *handlers):
        made.add_handler(handler)
    return made


def test_a_handler_without_a_response_is_followed_by_the_next():
    assert opener(frozen(), Wire(None), Wire(response(200))).open(URL).status == 200


def test_a_request_through_a_proxy_counts_for_its_origin():
    polite = frozen()
    proxies = urllib.request.ProxyHandler({"http": "https://proxy.example:8443"})
    wire = Wire(response(200, ("Retry-After", "60")))
    made = opener(polite, proxies, wire)
    made.open(URL)
    with pytest.raises(Held):
        made.open(URL)
    (sent,) = wire.sent
    assert (sent.type, sent.host, sent.selector) == ("https", "proxy.example:8443", URL)
    assert polite.explain(URL).held
    assert not polite.explain("https://proxy.example:8443/").held


def test_without_a_handler_that_opens_connections_there_is_no_response():
    assert opener(frozen()).open(URL) is None


def test_advice_that_a_proxy_handler_opens_again_is_fetched_once():
    class Reopening(urllib.request.BaseHandler):
        """Opens a request once more, as `ProxyHandler` does for a proxy of another scheme."""

        handler_order = 100

        def __init__(self):
            self.opened = []

        def http_open(self, request):
            self.opened.append(request.full_url)
            return None if len(self.opened) % 2 == 0 else self.parent.open(request)

    body = b'[{"user_agent":"*","disallow":true}]'
    advice = response(200, ("Content-Type", "application/trafficadvice+json"), read1=io.BytesIO(body).read1, read=None)
    wire, reopening = Wire(advice, response()), Reopening()
    with pytest.raises(Held, match="which disallows all traffic"):
        opener(Courtesy("ExampleBot"), reopening, wire).open("http://localhost/")
    assert [request.full_url for request in wire.sent] == ["http://localhost/.well-known/traffic-advice"]


class TestHandler(TransportLaws):
    error = urllib.error.URLError
    default_user_agent = "Python-urllib/3.11"
    errors = (
        (urllib.error.URLError(ConnectionResetError(errno.ECONNRESET, "reset")), "broken"),
        (http.client.RemoteDisconnected(), "broken"),
        (TimeoutError(), "broken"),
        (urllib.error.URLError(ConnectionRefusedError(errno.ECONNREFUSED, "refused")), "unsent"),
        (urllib.error.URLError(socket.gaierror(socket.EAI_NONAME, "unknown")), "unsent"),
        (urllib.error.URLError(OSError(errno.EMFILE, "too many")), "ours"),
        (KeyboardInterrupt(), "ours"),
    )

    def headers(self, request):
        return request.unredirected_hdrs

    def request(self, url="https://example.com/path", method="GET", *, body=None, options=None):
        made = urllib.request.Request(url, data=body, method=method)
        made.headgate = options
        return made

    def response(self, status=200, *fields, from_cache=False):
        return response(status, *fields, from_cache=from_cache)

    def send(self, courtesy, requests, answers):
        made = opener(courtesy, Wire(*answers))
        return [outcome(made.open, request) for request in requests]

    def is_closed(self, response):
        return response.closed

    def repeatable_bodies(self):
        bodies = [(None, True), (b"bytes", True), (io.BytesIO(b"file"), False), ([b"a list"], False)]
        return [(self.request(method="PUT", body=body), repeatable) for body, repeatable in bodies]
