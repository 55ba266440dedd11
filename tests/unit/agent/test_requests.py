"""The adapter for requests, before an adapter that sends nothing."""

import copy
import importlib
import io
import pickle
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from types import SimpleNamespace

import pytest
import requests
from requests.adapters import BaseAdapter
from urllib3._collections import HTTPHeaderDict
from urllib3.exceptions import ConnectTimeoutError, MaxRetryError, NewConnectionError
from urllib3.util import Retry

from headgate.agent import Courtesy, RetryLater, SharedThrottle
from headgate.agent.requests import Adapter, Held
from headgate.errors import ConfigurationError, MissingExtra
from tests.unit.agent.transport_laws import URL, Script, TransportLaws, frozen, outcome

pytestmark = pytest.mark.usefixtures("short_pauses")


class Wire(Script, BaseAdapter):
    is_closed = False

    def send(self, request, *args, **options):
        return self.answer((request, args, options))

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


def test_options_of_a_request_are_passed_to_the_inner_adapter():
    wire = Wire(response())
    request = prepared()
    Adapter(frozen(), wire).send(request, True, timeout=3, verify=False)
    assert wire.sent == [(request, (True,), {"timeout": 3, "verify": False})]


def test_close_closes_the_inner_adapter():
    wire = Wire()
    Adapter(frozen(), wire).close()
    assert wire.is_closed
    Adapter(frozen()).close()  # its own connections, of which there are none


def test_the_error_contains_the_request():
    wire = Wire(response(200, ("Retry-After", "60")))
    adapter = Adapter(frozen(), wire)
    adapter.send(prepared())
    with pytest.raises(requests.ConnectionError) as caught:
        adapter.send(request := prepared("POST", data="body"))
    held = caught.value
    assert isinstance(held, RetryLater)
    assert (held.request, held.response, held.errno, held.filename) == (request, None, None, None)
    again = pickle.loads(pickle.dumps(held))
    assert (str(again), again.args, again.request.body) == (str(held), held.args, "body")
    assert isinstance(again, Held)
    assert len(wire.sent) == 1


def test_a_refused_body_that_cannot_be_read_is_closed():
    class Broken(io.BytesIO):
        def read(self, *_, **__):
            raise ValueError("broken")

    refused = response(503, raw=Broken())
    assert Adapter(frozen(retry=1), Wire(refused, response(200))).send(prepared()).status_code == 200
    assert refused.raw.closed


def test_urllib3_does_not_retry_for_a_status():
    assert Adapter(frozen()).max_retries.total == 0
    retries = Adapter(frozen(), max_retries=3).max_retries
    assert (retries.total, retries.is_retry("GET", 503, has_retry_after=True)) == (3, False)
    with pytest.raises(ConfigurationError, match=r"max_retries: .*; try Courtesy\(retry=3\)"):
        Adapter(frozen(), max_retries=Retry(3, status_forcelist=[502]))


def test_options_of_connections_belong_to_the_inner_adapter():
    with pytest.raises(ConfigurationError, match="max_retries: the inner adapter is the one that sends"):
        Adapter(frozen(), Wire(), max_retries=3)


@pytest.mark.parametrize("library", ["requests", "aiohttp"])
def test_a_missing_library_is_named_with_its_extra(library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"headgate.agent.{library}", raising=False)
    with pytest.raises(MissingExtra, match=rf"install it from the repository: pip install '.\[{library}\]'"):
        importlib.import_module(f"headgate.agent.{library}")


class TestAdapter(TransportLaws):
    error = requests.ConnectionError
    default_user_agent = "python-requests/2"
    errors = (
        (requests.ConnectionError(), "broken"),
        (requests.Timeout(), "broken"),
        (requests.ConnectionError(MaxRetryError(None, URL, NewConnectionError(None, "refused"))), "unsent"),
        (requests.ConnectTimeout(MaxRetryError(None, URL, ConnectTimeoutError())), "unsent"),
        (requests.exceptions.ProxyError("Tunnel connection failed: 403 Forbidden"), "ours"),
        (requests.exceptions.InvalidURL(), "ours"),
        (KeyboardInterrupt(), "ours"),
    )

    def request(self, url=URL, method="GET", *, body=None, options=None):
        made = prepared(method, url, data=body)
        made.headgate = options
        return made

    def response(self, status=200, *fields, from_cache=False):
        raw = SimpleNamespace(headers=HTTPHeaderDict(fields), closed=False, read=lambda *_, **__: b"")
        raw.close = lambda: setattr(raw, "closed", True)
        return response(status, raw=raw, from_cache=from_cache)

    def send(self, courtesy, requests, answers):
        adapter = Adapter(courtesy, Wire(*answers))
        return [outcome(adapter.send, request) for request in requests]

    def is_closed(self, response):
        return response.raw.closed

    def status(self, response):
        return response.status_code

    def repeatable_bodies(self):
        whole = [{}, {"data": b"bytes"}, {"data": "text"}, {"data": {"a": "form"}}, {"json": {}}, {"files": {"a": b""}}]
        once = [{"data": io.BytesIO(b"file")}, {"data": iter([b"once"])}]
        return [(prepared("PUT", **body), body in whole) for body in [*whole, *once]]


def test_a_session_with_an_adapter_can_be_pickled_and_copied(tmp_path):
    with SharedThrottle(tmp_path / "file") as throttle:
        courtesy = Courtesy("ExampleBot/1.0", retry=2, throttle=throttle)
        courtesy.observe(URL, 200, {"Retry-After": "600"})
        session = requests.Session()
        session.mount("https://", Adapter(courtesy))
        for other in (pickle.loads(pickle.dumps(session)), copy.deepcopy(session)):
            with pytest.raises(Held):
                other.get(URL)
            shared = other.get_adapter(URL)._courtesy
            assert (repr(shared), shared.user_agent) == (repr(courtesy), "ExampleBot/1.0")
    assert not copy.deepcopy(Courtesy()).explain(URL).held


def held_elsewhere(throttle):
    return throttle.explain(URL, now=1000.0).held


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_shared_throttle_is_an_argument_of_other_processes(tmp_path, method):
    with SharedThrottle(tmp_path / "file") as throttle, ProcessPoolExecutor(1, get_context(method)) as pool:
        throttle.response_received(URL, 200, {"Retry-After": "600"}, now=1000.0)
        assert pool.submit(held_elsewhere, throttle).result(60)
