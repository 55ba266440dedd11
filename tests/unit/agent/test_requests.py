"""The adapter for requests before an adapter that sends nothing."""

import importlib
import io
import pickle
import sys
import time
from types import SimpleNamespace

import pytest
import requests
from requests.adapters import BaseAdapter
from urllib3._collections import HTTPHeaderDict
from urllib3.util import Retry

from headgate.agent import Courtesy, NoContact
from headgate.agent.requests import Adapter, Held
from headgate.errors import ConfigurationError, MissingExtra
from headgate.throttle import Policy, Throttle
from tests.unit.agent.addresses import TARGETS

pytestmark = pytest.mark.usefixtures("short_pauses")

URL = "https://example.com/path"


class Wire(BaseAdapter):
    """Answers with what it was made with, one after the other."""

    def __init__(self, *answers: requests.Response) -> None:
        super().__init__()
        self.answers = list(answers)
        self.sent: list[tuple[requests.PreparedRequest, tuple[object, ...], dict[str, object]]] = []
        self.is_closed = False

    def send(self, request, *args, **options):
        self.sent.append((request, args, options))
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def close(self):
        self.is_closed = True


def response(status=200, *lines, body=b"", **attributes):
    made = requests.Response()
    made.status_code = status
    made.headers.update(dict(lines))
    made.raw = io.BytesIO(body)
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def prepared(method="GET", url=URL, **options):
    return requests.Request(method, url, **options).prepare()


def courtesy(**options) -> Courtesy:
    options = {"throttle": Throttle(Policy(jitter_factor=0)), **options}
    return Courtesy(clock=lambda: 1000.0, **options)


def test_what_it_is_told_of_a_request_goes_to_the_adapter_that_sends():
    wire = Wire(response())
    request = prepared()
    Adapter(courtesy(), wire).send(request, True, timeout=3, verify=False)
    assert wire.sent == [(request, (True,), {"timeout": 3, "verify": False})]


def test_it_closes_what_sends():
    wire = Wire()
    Adapter(courtesy(), wire).close()
    assert wire.is_closed
    Adapter(courtesy()).close()  # its own connections, of which there are none


def test_the_error_is_both_and_has_the_request():
    wire = Wire(response(200, ("Retry-After", "60")))
    adapter = Adapter(courtesy(), wire)
    adapter.send(prepared())
    with pytest.raises(requests.ConnectionError) as caught:
        adapter.send(request := prepared("POST", data="body"))
    held = caught.value
    assert isinstance(held, NoContact)
    assert (held.request, held.response, held.errno, held.filename) == (request, None, None, None)
    again = pickle.loads(pickle.dumps(held))
    assert (str(again), again.args, again.request.body) == (str(held), held.args, "body")
    assert isinstance(again, Held)
    assert len(wire.sent) == 1


@pytest.mark.parametrize("error", [requests.ConnectionError(), requests.Timeout(), KeyboardInterrupt()])
def test_what_got_no_response_keeps_its_draw_when_it_is_sent_again(half_wanted, error):
    adapter = Adapter(half_wanted(0.9, 0.1), Wire(error, response(204)))
    with pytest.raises(type(error)):
        adapter.send(prepared())
    assert adapter.send(prepared()).status_code == 204
    with pytest.raises(Held):
        adapter.send(prepared())


def test_a_response_that_cannot_be_noted_is_closed(broken):
    answer = response(200)
    with pytest.raises(StopIteration):
        Adapter(broken, Wire(answer)).send(prepared())
    assert answer.raw.closed


def test_the_lines_of_a_field_are_read_where_there_are_some():
    raw = SimpleNamespace(headers=HTTPHeaderDict([("Retry-After", "60"), ("retry-after", "90")]))
    polite = courtesy()
    Adapter(polite, Wire(response(200, raw=raw))).send(prepared())
    assert polite.explain(URL).retry_after == 1090.0


def test_what_comes_out_of_a_cache_counts_for_nothing():
    polite = courtesy()
    Adapter(polite, Wire(response(503, ("Retry-After", "60"), from_cache=True))).send(prepared())
    assert (polite.explain(URL).failures, polite.explain(URL).held) == (0, False)


@pytest.mark.parametrize(
    ("body", "repeatable"),
    [
        ({}, True),
        ({"data": b"bytes"}, True),
        ({"data": "text"}, True),
        ({"data": {"a": "form"}}, True),
        ({"json": {}}, True),
        ({"files": {"a": b"file"}}, True),
        ({"data": io.BytesIO(b"file")}, False),
        ({"data": iter([b"once"])}, False),
    ],
)
def test_only_a_body_that_is_all_there_is_sent_again(body, repeatable):
    wire = Wire(response(503), response(200))
    assert Adapter(courtesy(retry=1), wire).send(prepared("PUT", **body)).status_code == (200 if repeatable else 503)


def test_what_is_wrong_with_a_refused_body_is_no_matter():
    class Broken(io.BytesIO):
        def read(self, *_, **__):
            raise ValueError("broken")

    refused = response(503, raw=Broken())
    assert Adapter(courtesy(retry=1), Wire(refused, response(200))).send(prepared()).status_code == 200
    assert refused.raw.closed


def patient() -> Courtesy:
    soon = Policy(num_errors_to_ignore=0, initial_backoff=0.01, multiply_factor=1, jitter_factor=0)
    return Courtesy(throttle=Throttle(soon), max_delay=60, retry=1)


def test_what_is_held_waits_where_it_may():
    begun = time.time()
    assert Adapter(patient(), Wire(response(503), response(200))).send(prepared()).status_code == 200
    assert time.time() - begun >= 0.01


def test_a_mark_passes_what_is_held():
    wire = Wire(response(200, ("Retry-After", "60")), response())
    adapter = Adapter(courtesy(), wire)
    adapter.send(prepared())
    request = prepared()
    request.headgate = {"interactive": True}
    adapter.send(request)
    request.headgate = {"interactive": "yes"}
    with pytest.raises(ConfigurationError, match="invalid headgate options of a request"):
        adapter.send(request)
    assert len(wire.sent) == 2


def test_what_urllib3_would_do_for_a_status_is_the_courtesy_s():
    assert Adapter(courtesy()).max_retries.total == 0
    retries = Adapter(courtesy(), max_retries=3).max_retries
    assert (retries.total, retries.is_retry("GET", 503, has_retry_after=True)) == (3, False)
    with pytest.raises(ConfigurationError, match=r"max_retries: .*; try Courtesy\(retry=3\)"):
        Adapter(courtesy(), max_retries=Retry(3, status_forcelist=[502]))


def test_options_are_for_the_adapter_that_sends():
    with pytest.raises(ConfigurationError, match="max_retries: the inner adapter is the one that sends"):
        Adapter(courtesy(), Wire(), max_retries=3)


def test_a_session_that_would_lose_its_courtesy_is_not_pickled():
    session = requests.Session()
    session.mount("https://", Adapter(courtesy()))
    with pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(session)


@pytest.mark.parametrize(("url", "target"), TARGETS.items())
def test_a_url_is_the_target_it_is_in_every_library(url, target):
    polite = courtesy(throttle=Throttle(hold_localhost=True))
    Adapter(polite, Wire(response(200, ("Retry-After", "60")))).send(prepared(url=url))
    assert polite.explain(target).held


def test_without_the_library_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "requests", None)
    monkeypatch.delitem(sys.modules, "headgate.agent.requests")
    with pytest.raises(MissingExtra, match=r"install it in a checkout of headgate: pip install '\.\[requests\]'"):
        importlib.import_module("headgate.agent.requests")
