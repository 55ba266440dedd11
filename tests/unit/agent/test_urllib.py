"""The handler for openers before a handler that sends nothing."""

import io
import pickle
import time
import urllib.error
import urllib.request
from email.message import Message
from types import SimpleNamespace

import pytest

from headgate.agent import Courtesy, NoContact
from headgate.agent.urllib import Handler, Held
from headgate.errors import ConfigurationError
from headgate.throttle import Policy, Throttle
from tests.unit.agent.addresses import TARGETS

pytestmark = pytest.mark.usefixtures("short_pauses")

URL = "http://example.com/path"


class Wire(urllib.request.BaseHandler):
    """Answers with what it was made with, one after the other, instead of the library's own."""

    handler_order = 499

    def __init__(self, *answers: SimpleNamespace) -> None:
        self.answers = list(answers)
        self.sent: list[urllib.request.Request] = []

    def http_open(self, request):
        self.sent.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    https_open = http_open


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


def courtesy(**options) -> Courtesy:
    options = {"throttle": Throttle(Policy(jitter_factor=0)), **options}
    return Courtesy(clock=lambda: 1000.0, **options)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_error_is_both(scheme):
    wire = Wire(response(200, ("Retry-After", "60")))
    made = opener(courtesy(), wire)
    made.open(f"{scheme}://example.com/path")
    with pytest.raises(urllib.error.URLError) as caught:
        made.open(f"{scheme}://example.com/path")
    held = caught.value
    assert isinstance(held, NoContact)
    assert (held.reason, held.target, held.errno) == ("retry-after", f"{scheme}://example.com/path", None)
    again = pickle.loads(pickle.dumps(held))
    assert (type(again), str(again), again.args) == (Held, str(held), held.args)
    assert len(wire.sent) == 1


@pytest.mark.parametrize("error", [urllib.error.URLError("lost"), TimeoutError(), KeyboardInterrupt()])
def test_what_got_no_response_keeps_its_draw_when_it_is_sent_again(half_wanted, error):
    made = opener(half_wanted(0.9, 0.1), Wire(error, response(204)))
    with pytest.raises(type(error)):
        made.open("https://example.com/")
    assert made.open("https://example.com/").status == 204
    with pytest.raises(Held):
        made.open("https://example.com/")


def test_a_response_that_cannot_be_noted_is_closed(broken):
    answer = response(200)
    with pytest.raises(StopIteration):
        opener(broken, Wire(answer)).open(URL)
    assert answer.closed


def test_every_line_of_a_field_is_read():
    polite = courtesy()
    opener(polite, Wire(response(200, ("Retry-After", "60"), ("Retry-After", "90")))).open(URL)
    assert polite.explain(URL).retry_after == 1090.0


def test_what_comes_out_of_a_cache_counts_for_nothing():
    polite = courtesy()
    opener(polite, Wire(response(503, ("Retry-After", "60"), from_cache=True))).open(URL)
    assert (polite.explain(URL).failures, polite.explain(URL).held) == (0, False)


@pytest.mark.parametrize(
    ("body", "repeatable"), [(None, True), (b"bytes", True), (io.BytesIO(b"file"), False), ([b"a list"], False)]
)
def test_only_a_body_that_is_all_there_is_sent_again(body, repeatable):
    refused = response(503)
    request = urllib.request.Request(URL, data=body, method="PUT")
    made = opener(courtesy(retry=1), Wire(refused, response(200)))
    assert made.open(request).status == (200 if repeatable else 503)
    assert refused.closed == repeatable


def patient() -> Courtesy:
    soon = Policy(num_errors_to_ignore=0, initial_backoff=0.01, multiply_factor=1, jitter_factor=0)
    return Courtesy(throttle=Throttle(soon), max_delay=60, retry=1)


def test_what_is_held_waits_where_it_may():
    begun = time.time()
    assert opener(patient(), Wire(response(503), response(200))).open(URL).status == 200
    assert time.time() - begun >= 0.01


def test_handlers_that_pass_are_passed():
    assert opener(courtesy(), Wire(None), Wire(response(200))).open(URL).status == 200


def test_a_mark_passes_what_is_held():
    made = opener(courtesy(), Wire(response(200, ("Retry-After", "60")), response()))
    made.open(URL)
    request = urllib.request.Request(URL)
    request.headgate = {"interactive": True}
    made.open(request)
    request.headgate = True
    with pytest.raises(ConfigurationError, match="invalid headgate options of a request"):
        made.open(request)


def test_a_request_that_a_proxy_is_sent_is_for_its_origin():
    polite = courtesy()
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


def test_where_nobody_opens_connections_nothing_is_opened():
    assert opener(courtesy()).open(URL) is None


@pytest.mark.parametrize(("url", "target"), TARGETS.items())
def test_a_url_is_the_target_it_is_in_every_library(url, target):
    polite = courtesy(throttle=Throttle(hold_localhost=True))
    opener(polite, Wire(response(200, ("Retry-After", "60")))).open(url)
    assert polite.explain(target).held


def test_advice_that_a_handler_of_proxies_opens_anew_is_fetched_once():
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
