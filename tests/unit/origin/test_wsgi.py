import threading
import time
from typing import Any

import pytest

from headgate.errors import ConfigurationError
from headgate.limit import DelayUntil, Domain, Gatekeeper, Rule
from headgate.origin import Rejections, Route, Routes
from headgate.origin.wsgi import GatekeeperMiddleware, _info
from headgate.release import NEVER
from tests.unit.origin.middlewares import environ


class App:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, environ: Any, start_response: Any) -> list[bytes]:
        self.calls += 1
        start_response("200 OK", [])
        return [b"hello"]


def call(app: App, gatekeeper: Gatekeeper, request: Any = None, **options: Any) -> tuple[str, dict[str, str], bytes]:
    answers: list[tuple[str, dict[str, str]]] = []
    middleware = GatekeeperMiddleware(app, gatekeeper=gatekeeper, **options)
    content = middleware(request or environ(), lambda status, fields: answers.append((status, dict(fields))))
    return *answers[0], b"".join(content)


def held(release: float) -> Gatekeeper:
    gatekeeper = Gatekeeper()
    gatekeeper.obey(DelayUntil("default", b"192.0.2.1", release))
    return gatekeeper


def test_a_request_is_rejected_or_up_to_max_delay_delayed(monkeypatch):
    app, now, slept = App(), time.time(), []

    def sleep(seconds):
        slept.append(seconds)
        assert app.calls == 0

    monkeypatch.setattr("time.time", lambda: now)
    monkeypatch.setattr("time.sleep", sleep)
    call(app, held(now + 2.0), max_delay=3.0)
    assert app.calls == 1
    assert slept == [pytest.approx(2.0, abs=1e-3)]
    for options in ({}, {"max_delay": 1.0}):
        assert call(app, held(now + 2.0), **options)[0] == "503 Service Unavailable"
    with pytest.raises(ConfigurationError, match=r"^max_delay must be a non-negative number of seconds, got -1$"):
        call(app, held(now), max_delay=-1)
    assert app.calls == len(slept) == 1


def test_a_rejected_request_is_answered_here():
    app = App()
    gatekeeper = Gatekeeper.embedded([Domain("default", (Rule.parse("1/h burst 1"),))])
    assert call(app, gatekeeper) == ("200 OK", {}, b"hello")
    assert gatekeeper.totals["default"].accepted == 1
    status, fields, body = call(app, gatekeeper, environ(HTTP_ACCEPT="application/problem+json"))
    assert app.calls == 1
    assert status == "503 Service Unavailable"
    assert fields["Retry-After"] == "3600"
    assert fields["Ratelimit"] == '"default";r=0;t=3600'
    assert fields["Content-Type"] == "application/problem+json"
    assert fields["Content-Length"] == str(len(body))


@pytest.mark.parametrize("joined", ["alice,{}", "alice, {}", "{},alice"])
def test_repeated_identifying_header_falls_back_to_address(joined):
    """Servers join the lines of a field with a comma (PEP 3333 leaves it to them), so a comma counts as repeated."""
    gatekeeper = Gatekeeper.embedded([Domain("default", (Rule.parse("1/h burst 1"),))])
    requests = [environ(HTTP_X_API_KEY=joined.format(f"junk{number}")) for number in range(2)]
    statuses = [call(App(), gatekeeper, request, identify="header:X-Api-Key")[0][:3] for request in requests]
    assert statuses == ["200", "503"]
    assert call(App(), gatekeeper, environ(HTTP_X_API_KEY="alice"), identify="header:X-Api-Key")[0][:3] == "200"


def test_a_rejected_head_has_no_content():
    status, fields, body = call(App(), held(NEVER), environ(REQUEST_METHOD="HEAD"), rejections=Rejections(status=429))
    assert status == "429 Too Many Requests"
    assert int(fields["Content-Length"]) > 0
    assert body == b""


def test_an_unlimited_request_is_not_counted():
    app, gatekeeper = App(), held(NEVER)
    call(app, gatekeeper, identify=lambda environ: None)
    assert app.calls == 1
    assert gatekeeper.totals == {}


@pytest.mark.parametrize(
    "more", [{"REMOTE_ADDR": ""}, {"HTTP_ACCEPT": "\u20ac"}, {"HTTP_X": "\xff"}, {"PATH_INFO": "\xff%"}]
)
def test_odd_values_never_raise(more):
    call(App(), held(NEVER), environ(**more), identify="header:X")


def test_the_request_is_read_from_the_environ():
    sent = {"HTTP_X_API_KEY": "k\xff", "HTTP_HOST": "h:80", "CONTENT_TYPE": "text/plain", "CONTENT_LENGTH": ""}
    info = _info(environ(SCRIPT_NAME="/app", PATH_INFO="/50%/\xc3\xa9", **sent, HTTP_CONTENT_TYPE="as Content_Type"))
    assert info.path == b"/app/50%25/\xc3\xa9"
    assert info.host == b"h:80"
    assert info.field(b"x-api-key") == b"k\xff"
    assert info.single_field(b"content-type") == b"text/plain"
    assert info.field(b"content-length") is None
    assert info.peer == "192.0.2.1"


def test_content_type_identifies_and_matches():
    """PEP 3333: its variable has no `HTTP_`."""
    by_route = {"domain": Routes([Route("default", header="Content-Type", value="a/b")])}
    for options in ({"identify": "header:Content-Type"}, by_route):
        gatekeeper = Gatekeeper.embedded([Domain("default", (Rule.parse("1/h burst 1"),))])
        requests = [environ(CONTENT_TYPE=sent) for sent in ("a/b", "a/b", "a/c")]
        statuses = [call(App(), gatekeeper, request, **options)[0][:3] for request in requests]
        assert statuses == ["200", "503", "200"]


def test_threads_use_the_gatekeeper_under_the_lock():
    """Every request is counted, however many threads ask at once, and the lock given is the one used."""
    uses: list[bool] = []

    class Watched(Gatekeeper):
        def admit(self, *arguments: Any, **options: Any) -> Any:
            uses.append(lock.locked())
            return super().admit(*arguments, **options)

    lock, gatekeeper = threading.Lock(), Watched()
    middleware = GatekeeperMiddleware(App(), gatekeeper=gatekeeper, lock=lock)
    threads = [
        threading.Thread(target=lambda: [middleware(environ(), lambda *_: None) for _ in range(200)]) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gatekeeper.totals["default"].accepted == 1600
    assert all(uses)


def test_a_control_is_obeyed_under_the_lock():
    lock, gatekeeper = threading.Lock(), Gatekeeper()
    middleware = GatekeeperMiddleware(App(), gatekeeper=gatekeeper, lock=lock)
    obeying = threading.Thread(target=middleware.obey, args=(DelayUntil("default", b"x", NEVER),))
    with lock:
        obeying.start()
        obeying.join(0.05)
        assert gatekeeper.held("default", b"x", now=0.0) < 0
    obeying.join()
    assert gatekeeper.held("default", b"x", now=0.0) == NEVER
