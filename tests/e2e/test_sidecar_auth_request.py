"""nginx without Lua as a gatekeeper: it asks the sidecar before each request."""

import hashlib
import json
import math
import signal
import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from headgate.http.date import parse_http_date
from tests.e2e.auth_request_setup import System

pytestmark = pytest.mark.needs("nginx")

RULE = "1/h burst 3"


@pytest.fixture(scope="module")
def passing(tmp_path_factory):
    """A system that limits nothing, for tests of what passes."""
    with ExitStack() as stack:
        location = "location /private { deny all; }\n"
        yield System(stack, tmp_path_factory.mktemp("passing"), "1000000/s burst 1000", server=location)


@pytest.fixture
def system(tmp_path):
    """Make a system with a rule; it ends with the test."""
    with ExitStack() as stack:
        yield lambda rule=RULE, *options, **more: System(stack, tmp_path, rule, *options, **more)


def test_a_burst_is_rejected_by_the_rule_of_the_master(system):
    running = system()
    assert running.nginx.statuses(3) == {200: 3}
    running.until_rejected()
    accepted = len(running.seen)
    assert running.nginx.statuses(20) == {503: 20}
    assert len(running.seen) == accepted
    running.sidecar.until(lambda: running.sidecar.totals("api")[2] >= 21, "accounting of rejections")
    assert running.sidecar.totals("api")[0] == accepted


def test_rejection_has_its_time_policies_and_reason(system, tmp_path):
    (tmp_path / "headgate.toml").write_text('[[domain]]\nname = "api"\nrules = ["1/h burst 3", "10/s"]\n')
    running = system(RULE, "--config", "headgate.toml")
    running.until_rejected()
    for accept, media_type in (
        ("text/html", "text/plain; charset=utf-8"),
        ("application/json", "application/problem+json"),
    ):
        answer = running.nginx.get(Accept=accept)
        assert (answer.status, answer.headers.get_all("Content-Type")) == (503, [media_type])
        seconds = int(answer.headers["Retry-After"])
        assert 3_590 <= seconds <= 3_600
        assert answer.headers["RateLimit"] == f'"api";r=0;t={seconds}'
        assert answer.headers["RateLimit-Policy"] == '"api";q=3;w=10800, "api/2";q=10;w=1'
        assert answer.headers["Cache-Control"] == "no-store"
        text = f"Requests for 'api' come faster than its rule allows; this one would be accepted in {seconds} s."
        if accept == "text/html":
            assert answer.body.decode() == f"Too many requests. {text}\n"
        else:
            assert json.loads(answer.body)["detail"] == text


def test_nginx_and_the_sidecar_keep_their_connection(system):
    """A proxy_set_header in the location of the check would drop an inherited Connection, and end each one."""
    running = system("1000000/s burst 1000", workers="worker_processes 1;")
    assert running.nginx.statuses(100) == {200: 100}
    running.sidecar.until(lambda: running.counters()["requests"] == 100, "requests")
    assert running.counters()["connections"] == 1


def test_connections_are_kept_for_rejections_and_for_delays(system):
    running = system("5/s burst 1", "--max-delay", "0.1", workers="worker_processes 1;")
    running.sidecar.until(
        lambda: running.nginx.statuses(5) and min(running.sidecar.totals("api")[1:]) > 5, "delays and rejections"
    )
    assert running.counters()["connections"] == 2  # one for checks, and one for delays


@pytest.mark.parametrize("status", [204, 301, 304, 400, 401, 402, 403, 404, 413, 429, 500, 502, 503, 504])
def test_responses_of_the_origin_pass_unchanged(passing, status):
    for method in ("GET", "HEAD", "POST"):
        answer = passing.nginx.get(f"/{status}", method)
        assert (answer.status, answer.headers["X-Origin"]) == (status, "yes")
        assert answer.headers["Retry-After"] is None


def test_requests_that_nginx_itself_refuses_are_not_rejections(passing):
    answer = passing.nginx.get("/private")
    assert answer.status == 403
    assert b"403 Forbidden" in answer.body
    assert answer.headers["Retry-After"] is None


BODIES = {"empty": b"", "short": b"body", "large": bytes(range(256)) * 20_000}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("expects", [False, True])
def test_bodies_pass(passing, body, expects):
    digest = hashlib.sha256(body).hexdigest().encode()
    more = {"Expect": "100-continue"} if expects else {}
    assert passing.nginx.get("/", "POST", body, **more).body == digest
    pieces = [body[start : start + 100_000] for start in range(0, len(body), 100_000)]
    assert passing.nginx.get("/", "POST", iter(pieces), Transfer_Encoding="chunked", **more).body == digest


def test_rejected_bodies_are_not_forwarded(system):
    running = system()
    running.until_rejected()
    seen = len(running.seen)
    body = BODIES["large"]
    for head in (
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\nexpected?",
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body),
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ):
        response = running.nginx.send(head).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert response.startswith(b"HTTP/1.1 503 ")
    assert len(running.seen) == seen


def test_rejected_head_has_no_body(system):
    running = system()
    running.until_rejected()
    response = running.nginx.send(b"HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    head, _, body = response.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: " in head
    assert body == b""


def test_http_1_0_is_limited(system):
    running = system()
    assert running.nginx.send(b"GET / HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    running.until_rejected()
    assert running.nginx.send(b"GET / HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 503 ")


def test_websocket_is_counted_once_and_passes(system):
    running = system()
    upgrade = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello\n"
    response = running.nginx.send(upgrade)
    assert response.startswith(b"HTTP/1.1 101 ")
    assert response.endswith(b"echo hello\n")
    running.sidecar.until(lambda: running.sidecar.totals("api")[0] == 1, "accounting")
    running.until_rejected()
    assert running.nginx.send(upgrade.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")).startswith(
        b"HTTP/1.1 503 "
    )


def test_status_429(system):
    running = system(RULE, "--rejection-status", "429")
    answer = running.until_rejected(Accept="application/json")
    assert (answer.status, json.loads(answer.body)["status"]) == (429, 429)
    assert running.nginx.statuses(10) == {429: 10}


def test_delayed_requests_pass_at_the_rate_of_the_rule(system):
    running = system("20/s burst 2")
    with ThreadPoolExecutor(8) as clients:
        assert Counter(clients.map(lambda _: running.nginx.get().status, range(24))) == {200: 24}
    running.sidecar.until(lambda: sum(running.sidecar.totals("api")) == 24, "accounting")
    assert running.sidecar.totals("api")[1] > 0
    assert running.counters()["malformed"] == 0


def test_a_client_that_leaves_frees_its_slot(system, tmp_path):
    """There is one slot: with that of the client that has left, another request is delayed."""
    (tmp_path / "headgate.toml").write_text("[sidecar]\nmax_delayed = 1\n")
    running = system("1/20s burst 1", "--max-delay", "3600", "--config", "headgate.toml")
    running.nginx.get()
    running.sidecar.until(lambda: running.held("127.0.0.1"), "hold")
    request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    for number in (1, 2):
        with socket.create_connection(("127.0.0.1", running.nginx.port)) as client:
            client.sendall(request)
            running.sidecar.until(lambda: running.sidecar.state()["details"]["delayed"] == 1, "delayed request")
            assert running.nginx.get().status == 503
        running.sidecar.until(lambda: running.counters()["disconnected"] == number, "departure")  # noqa: B023 - at once
    assert running.sidecar.totals("api")[1] == 2
    assert len(running.seen) == 1


def error_lines(running):
    return [line for line in running.nginx.lines() if "[error]" in line or "[alert]" in line or "[crit]" in line]


def test_a_killed_sidecar_leaves_its_rejections_and_no_flood_of_errors(system):
    """Holds stay in force until their time, at most a second less; everything else passes."""
    running = system(
        "1/4s burst 1", "--identify", "header:X-Client", "--max-delay", "0.5", workers="worker_processes 1;"
    )
    running.until_rejected(X_Client="held")
    release = running.held("held")
    running.sidecar.end(signal.SIGKILL)
    before = time.monotonic()
    assert running.nginx.statuses(300, X_Client="other") == {200: 300}
    statuses = []
    while (now := time.time()) < release + 1:
        answer = running.nginx.get(X_Client="held")
        statuses.append(answer.status)
        if answer.status == 503:
            assert now < release
            assert parse_http_date(answer.headers["Retry-After"].encode()) == math.ceil(release)
            assert answer.headers["RateLimit"] is None
            assert answer.body == b"Too many requests.\n"
        else:
            assert now > release - 1.1
    assert set(statuses) == {200, 503}
    assert running.nginx.statuses(10) == {200: 10}
    # Each second one request tries the sidecar, and nginx writes a line.
    assert len(error_lines(running)) <= time.monotonic() - before + 2


def test_a_new_sidecar_has_the_holds_of_the_master_and_its_accounting_resumes(system):
    running = system(RULE)
    running.until_rejected()
    running.sidecar.end(signal.SIGKILL)
    assert running.nginx.get().status == 503
    running.start_sidecar()
    ready = time.monotonic()
    running.sidecar.until(lambda: running.held("127.0.0.1"), "hold")
    assert running.nginx.get().status == 503
    running.sidecar.until(lambda: running.nginx.get() and running.sidecar.totals("api")[2], "accounting")
    assert time.monotonic() - ready < 5
