"""nginx without Lua as a gatekeeper: it asks the sidecar before each request."""

import hashlib
import json
import signal
import socket
import subprocess
import time
from contextlib import ExitStack

import pytest

from tests.e2e.auth_request_setup import System, printed
from tests.servers import find_program

pytestmark = pytest.mark.needs("nginx")

RULE = "1/h burst 3"


@pytest.fixture(scope="module")
def passing(tmp_path_factory):
    """A system that limits nothing, for tests of what passes."""
    with ExitStack() as stack:
        more = "recursive_error_pages on; location /private { deny all; }\n"
        yield System(stack, tmp_path_factory.mktemp("passing"), "1000000/s burst 1000", server=more)


@pytest.fixture(scope="module")
def rejecting(tmp_path_factory):
    """A system that rejects every request, for tests of rejections."""
    with ExitStack() as stack:
        running = System(stack, tmp_path_factory.mktemp("rejecting"), RULE)
        running.until_rejected()
        yield running


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


def test_connections_are_kept_for_rejections_and_for_delays(system):
    running = system("5/s burst 1", "--max-delay", "0.1", workers="worker_processes 1;")
    running.sidecar.until(
        lambda: running.nginx.statuses(5) and min(running.sidecar.totals("api")[1:]) > 5, "delays and rejections"
    )
    assert running.counters()["connections"] <= 4  # one for checks, and one for delays


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


def test_rejected_bodies_are_not_forwarded(rejecting):
    seen = len(rejecting.seen)
    body = BODIES["large"]
    for head in (
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body),
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ):
        response = rejecting.nginx.send(head).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert response.startswith(b"HTTP/1.1 503 ")
    assert len(rejecting.seen) == seen


def test_rejected_head_has_no_body(rejecting):
    response = rejecting.nginx.send(b"HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    head, _, body = response.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: " in head
    assert body == b""


def test_an_internal_redirect_is_not_counted_again(system):
    running = system("1000000/s burst 1000", server="location /twice { try_files /none /once; }\n")
    assert running.nginx.statuses(5, "/twice") == {200: 5}
    assert running.seen == ["GET /once"] * 5
    running.sidecar.until(lambda: running.sidecar.totals("api")[0] >= 5, "accounting")
    assert running.counters()["requests"] == 5


def test_websocket_is_counted_once_and_passes(passing, rejecting):
    upgrade = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello\n"
    checks = passing.counters()["requests"]
    response = passing.nginx.send(upgrade)
    assert response.startswith(b"HTTP/1.1 101 ")
    assert response.endswith(b"echo hello\n")
    assert passing.counters()["requests"] == checks + 1
    assert rejecting.nginx.send(upgrade.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")).startswith(
        b"HTTP/1.1 503 "
    )


def test_delay_that_is_longer_than_the_timeout_of_nginx(system):
    running = system("10/min burst 1", "--max-delay", "8")
    assert running.nginx.get().status == 200
    running.sidecar.until(lambda: running.held("127.0.0.1"), "hold")
    release = running.held("127.0.0.1")
    assert running.nginx.get().status == 200
    assert time.time() >= release


def test_checks_are_not_for_clients(passing):
    assert passing.nginx.get("/headgate-check").status == 404
    assert passing.nginx.get("/headgate-delay").status == 404


def test_a_client_that_leaves_frees_its_slot(system, tmp_path):
    """There is one slot: with that of the client that has left, another request is delayed."""
    (tmp_path / "headgate.toml").write_text("[sidecar]\nmax_delayed = 1\n")
    running = system("1/20s burst 1", "--max-delay", "40", "--config", "headgate.toml")
    running.nginx.get()
    running.sidecar.until(lambda: running.held("127.0.0.1"), "hold")
    request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    for _ in range(2):
        with socket.create_connection(("127.0.0.1", running.nginx.port)) as client:
            client.sendall(request)
            running.sidecar.until(lambda: running.sidecar.state()["details"]["delayed"] == 1, "delayed request")
            assert running.nginx.get().status == 503
        running.sidecar.until(lambda: running.sidecar.state()["details"]["delayed"] == 0, "departure")
    assert running.sidecar.totals("api")[1] == 2
    assert len(running.seen) == 1


HOSTILE = [
    '";\\ $x {}',
    "a;b",
    "a b",
    "\x01\x7f",
    "%00%0d%0a",
    "\xff\xfe",
    "a" * 255,
    "a" * 256,
    "a" * 2049,
    "a" * 8000,
]


def test_hostile_identifiers_are_held(system):
    running = system("1/h burst 1", "--identify", "header:X-Client")
    for value in HOSTILE:
        running.until_rejected(X_Client=value)
        assert running.nginx.statuses(2, X_Client=value) == {503: 2}
    assert running.nginx.statuses(1, X_Client="a" * 7999) == {200: 1}
    assert running.counters()["failed"]["malformed"] == 0


def test_header_that_is_repeated_or_missing_identifies_by_the_address(system):
    running = system("1/h burst 1", "--identify", "header:X-Client")
    running.until_rejected()
    head = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Client: %b\r\n%b\r\n"
    for first, more, status in (
        (b"one", b"", b"200"),
        (b"two", b"X-Client: three\r\n", b"503"),
        (b"", b"", b"503"),
        (b"four", b"X-Headgate-Address: 192.0.2.1\r\n", b"200"),
        (b"", b"X-Headgate-Address: 192.0.2.1\r\n", b"503"),
        (b"", b"X_Headgate_Address: 192.0.2.1\r\n", b"503"),
    ):
        assert running.nginx.send(head % (first, more))[9:12] == status, (first, more)


def test_ipv6_addresses_share_the_limit_of_their_network(system):
    """The addresses of clients are those in a header of a trusted proxy, which here is the test."""
    running = system("1/h burst 1", server="set_real_ip_from 127.0.0.1; real_ip_header X-Real;\n")
    answer = running.until_rejected(X_Real="2001:db8::1")
    assert answer.headers["RateLimit"].startswith('"api"')
    assert running.nginx.statuses(3, X_Real="2001:db8::ffff:2") == {503: 3}
    assert running.nginx.statuses(1, X_Real="2001:db8:0:1::1") == {200: 1}


def test_the_printed_configuration_passes_the_test_of_nginx_without_warnings(tmp_path):
    for options in ((), ("--identify", "client-address"), ("--identify", "header:X-Api-Key")):
        text = printed(
            tmp_path, 8080, "http://127.0.0.1:1", "--domain", 'a"b $x {} \\;\u00fc', "--socket", "s", *options
        )
        file = tmp_path / "nginx.conf"
        file.write_text(text)
        command = [find_program("nginx"), "-t", "-p", tmp_path, "-e", "stderr", "-c", file]
        tested = subprocess.run(command, capture_output=True, text=True, check=False)
        assert tested.returncode == 0, tested.stderr
        assert "warn" not in tested.stderr


def test_heads_that_are_too_large_are_limited_and_do_not_end_the_limit_of_others(system):
    """With 32 KiB of client fields the check itself is larger than the sidecar reads."""
    large = "large_client_header_buffers 8 32k; client_header_buffer_size 1k;\n"
    running = system("1/h burst 1", "--identify", "header:X-Client", server=large)
    running.until_rejected(X_Client="held")
    running.until_rejected()  # requests without the field
    fields = {f"X_Large_{number}": "x" * 30_000 for number in range(3)}
    for _ in range(5):
        assert running.nginx.get(X_Client="other", **fields).status == 503, "identified by its address"
        assert running.nginx.get(X_Client="held").status == 503
    assert running.counters()["failed"]["malformed"] == 0
    assert not [line for line in running.nginx.errors() if "upstream" in line]


def test_fields_of_clients_are_not_sent_unless_they_identify(system):
    large = "large_client_header_buffers 8 32k; client_header_buffer_size 1k;\n"
    running = system(RULE, server=large)
    fields = {f"X_Large_{number}": "x" * 30_000 for number in range(3)}
    running.until_rejected(**fields)


PASSWORD = 'satisfy any; deny all; auth_basic "x"; auth_basic_user_file users; empty_gif;'


def test_locations_that_satisfy_any_are_found_by_the_check_that_is_printed(system, tmp_path):
    """auth_request opens them; where it is off, they stay closed."""
    (tmp_path / "users").write_text("user:{PLAIN}secret\n")
    closed = f"location /closed {{ {PASSWORD} auth_request off; }}\nlocation /open {{ {PASSWORD} }}\n"
    running = system("1000/s burst 1000", server=closed)
    assert [running.nginx.get(path).status for path in ("/closed", "/open")] == [401, 200]
    text = (tmp_path / "nginx.conf").read_text()
    paragraph, _, rest = text.partition("daemon off;")
    assert 'WARNING: auth_request opens each location that has "satisfy any"' in paragraph
    check = next(line for line in paragraph.splitlines() if "grep" in line).removeprefix("#").strip()
    command = check.replace("nginx -T", f"{find_program('nginx')} -T -q -p {tmp_path} -e stderr -c nginx.conf")
    found = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout.splitlines()
    assert len([line for line in found if not line.startswith("#")]) == rest.count("satisfy any")


def test_a_killed_sidecar_stops_no_request_and_another_one_resumes(system):
    running = system()
    running.until_rejected()
    running.sidecar.end(signal.SIGKILL)
    assert running.nginx.statuses(50) == {200: 50}
    running.start_sidecar()
    running.sidecar.until(lambda: running.held("127.0.0.1"), "hold")
    running.until_rejected()
    running.sidecar.until(lambda: running.nginx.get() and running.sidecar.totals("api")[2], "accounting")


def test_a_stopped_sidecar_delays_few_requests_and_is_asked_again(system):
    """The first requests wait for the timeout; after that, some in each second."""
    running = system(RULE, workers="worker_processes 1;")
    running.until_rejected()
    running.sidecar.process.send_signal(signal.SIGSTOP)
    begun = time.monotonic()
    assert running.nginx.statuses(2_000) == {200: 2_000}
    assert time.monotonic() - begun < 60
    running.sidecar.process.send_signal(signal.SIGCONT)
    running.until_rejected()


def test_holds_outlast_a_master_and_a_reload(system):
    running = system(RULE, "--identify", "header:X-Client")
    running.until_rejected(X_Client="held")
    running.master.end(signal.SIGKILL)
    running.nginx.reload()
    assert running.nginx.statuses(20, X_Client="other") == {200: 20}
    assert running.nginx.statuses(5, X_Client="held") == {503: 5}
    running.start_master()
    running.until_rejected(X_Client="third")
