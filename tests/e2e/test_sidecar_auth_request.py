"""nginx without Lua as a gatekeeper: it asks the data plane, which runs in this process, before each request.

tests/e2e/test_one_limit.py and test_data_plane_faults.py run the whole system.
"""

import hashlib
import json
import socket
import subprocess
import time
from collections import Counter
from contextlib import ExitStack
from functools import partial
from http.server import BaseHTTPRequestHandler

import pytest

from headgate.advice.fetching import AdviceResponse
from headgate.identity import SignedMessage, SigningKey, write_directory
from headgate.identity.directory import MEDIA_TYPE
from headgate.identity.fields import serialize
from headgate.identity.message import component_value, signature_base
from headgate.origin.agents import AgentVerifier
from headgate.origin.sidecar import nginx_conf
from headgate.origin.sidecar.auth_request import AuthRequest
from tests.e2e.agent_directories import SITE, Agent, until_equal
from tests.e2e.data_plane_setup import PlaneThread
from tests.e2e.nginx_setup import nginx
from tests.e2e.programs import PATIENCE, origin
from tests.servers import find_program

pytestmark = pytest.mark.needs("nginx")

ADDRESS = b"127.0.0.1"
LARGE = "large_client_header_buffers 8 32k; client_header_buffer_size 1k;\n"


class Answers(BaseHTTPRequestHandler):
    """Answers `/STATUS` with that status, any other path with 200 and the digest of the body; echoes a WebSocket."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one write: a second one would wait for an acknowledgement

    def do_GET(self):
        self.server.seen.append(self.path)
        if self.headers.get("Upgrade") == "websocket":
            self.wfile.write(b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n")
            self.wfile.flush()
            self.wfile.write(b"echo " + self.rfile.readline())
            self.close_connection = True
            return
        status = int(self.path[1:4]) if self.path[1:4].isdigit() else 200
        body = hashlib.sha256(self.read_body()).hexdigest().encode()
        self.send_response(status)
        self.send_header("X-Origin", "yes")
        if status not in {204, 304}:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if status not in {204, 304} and self.command != "HEAD":
            self.wfile.write(body)

    do_POST = do_HEAD = do_GET  # noqa: N815  # the names are those of the base class

    def read_body(self):
        """Return the body of the request, chunked or with its length."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def log_message(self, *_):
        """Print nothing."""


class Site:
    """An origin, a data plane, and nginx between them."""

    def __init__(self, stack, folder, *, server="", workers=2, identify=None, **settings):
        path = folder / "s"
        self.origin = stack.enter_context(origin())
        self.origin.server.RequestHandlerClass, self.origin.server.seen = Answers, self.origin.seen
        self.plane = stack.enter_context(PlaneThread(AuthRequest, auth_request=str(path), **settings))
        self.nginx = stack.enter_context(
            nginx(
                folder,
                path,
                self.origin.url,
                write=nginx_conf.auth_request_configuration,
                workers=workers,
                identify=identify,
                server=server,
            )
        )

    def statuses(self, number, path="/", **fields):
        """Send so many requests one after another; count the statuses of their responses."""
        return Counter(self.nginx.get(path, **fields).status for _ in range(number))

    def send(self, request):
        """Send bytes; return all that is received until the connection is closed."""
        with socket.create_connection(("127.0.0.1", self.nginx.port), timeout=PATIENCE) as client:
            client.sendall(request)
            return b"".join(iter(lambda: client.recv(65_536), b""))


@pytest.fixture
def start(tmp_path):
    """Start a site, which ends with the test."""
    with ExitStack() as stack:
        yield lambda **more: Site(stack, tmp_path, **more)


@pytest.fixture(scope="module")
def passing(tmp_path_factory):
    """A site that limits nothing."""
    with ExitStack() as stack:
        more = "recursive_error_pages on; location /private { deny all; }\n"
        yield Site(stack, tmp_path_factory.mktemp("passing"), server=more)


@pytest.fixture(scope="module")
def rejecting(tmp_path_factory):
    """A site that rejects every request."""
    with ExitStack() as stack:
        site = Site(stack, tmp_path_factory.mktemp("rejecting"))
        site.plane.hold(ADDRESS, 3_599.0)
        yield site


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [("text/html", "text/plain; charset=utf-8"), ("application/json", "application/problem+json")],
)
def test_rejection_has_its_time_and_reason(rejecting, accept, media_type):
    answer = rejecting.nginx.get(Accept=accept)
    assert (answer.status, answer.headers.get_all("Content-Type")) == (503, [media_type])
    seconds = int(answer.headers["Retry-After"])
    assert 3_580 <= seconds <= 3_599
    assert answer.headers["RateLimit"] == f'"api";r=0;t={seconds}'
    assert answer.headers["Cache-Control"] == "no-store"
    text = f"Requests for 'api' come faster than its rule allows; this one would be accepted in {seconds} s."
    if accept == "text/html":
        assert answer.body.decode() == f"Too many requests. {text}\n"
    else:
        assert json.loads(answer.body)["detail"] == text


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


def test_rejected_requests_are_not_forwarded(rejecting):
    body = BODIES["large"]
    for head in (
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body),
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    ):
        response = rejecting.send(head).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert response.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nRetry-After: " in response
    assert response.endswith(b"\r\n\r\n"), "the response to HEAD has no body"
    assert rejecting.origin.seen == []


def test_an_internal_redirect_is_not_counted_again(start):
    site = start(server="location /twice { try_files /none /once; }\n")
    assert site.statuses(5, "/twice") == {200: 5}
    assert site.origin.seen == ["/once"] * 5
    assert site.plane.plane.totals.requests == 5


def test_websocket_is_counted_once_and_passes(passing, rejecting):
    upgrade = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello\n"
    checks = passing.plane.plane.totals.requests
    response = passing.send(upgrade)
    assert response.startswith(b"HTTP/1.1 101 ")
    assert response.endswith(b"echo hello\n")
    assert passing.plane.plane.totals.requests == checks + 1
    closing = upgrade.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    assert rejecting.send(closing).startswith(b"HTTP/1.1 503 ")


def test_delay_that_is_longer_than_the_timeout_of_nginx(start):
    site = start(max_delay=8.0)
    release = site.plane.hold(ADDRESS, 6.0)
    assert site.nginx.get().status == 200
    assert time.time() >= release


def test_checks_are_not_for_clients(passing):
    assert passing.nginx.get("/headgate-check").status == 404
    assert passing.nginx.get("/headgate-delay").status == 404


def test_a_client_that_leaves_frees_its_slot(start):
    """There is one slot: with that of the client that has left, another request is delayed."""
    site = start(max_delay=40.0, max_delayed=1)
    site.plane.hold(ADDRESS, 30.0)
    for _ in range(2):
        with socket.create_connection(("127.0.0.1", site.nginx.port)) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            site.plane.until(lambda: site.plane.plane.details()["delayed"] == 1, "delayed request")
            assert site.nginx.get().status == 503
        site.plane.until(lambda: site.plane.plane.details()["delayed"] == 0, "departure")
    assert site.origin.seen == []


HOSTILE = ['";\\ $x {}', "a;b", "a b", "\x01\x7f", "%00%0d%0a", "\xff\xfe", "a" * 255, "a" * 256, "a" * 8000]


def test_hostile_identifiers_are_held(start):
    site = start(identify="header:X-Client")
    for number, value in enumerate(HOSTILE):
        assert site.nginx.get(X_Client=value).status == 200
        site.plane.hold(site.plane.verdicts[number].identifier, 60.0)
    for value in HOSTILE:
        assert site.nginx.get(X_Client=value).status == 503
    assert site.nginx.get(X_Client="a" * 7999).status == 200
    assert site.plane.plane.totals.failed["malformed"] == 0


def test_agents_are_verified_by_what_they_sign(start):
    """Also a method, a target and fields, which nginx passes on; a client cannot send others in their place."""
    agent = Agent(SigningKey(bytes(32)), "https://bot.example")
    site = start(identify="web-bot-auth")
    body = write_directory([agent.key.public])
    response = AdviceResponse(200, [("Content-Type", MEDIA_TYPE)], body)
    site.plane.plane.agents = AgentVerifier([SITE], fetch_keys=lambda _request: response)

    def identified(**fields):
        assert site.nginx.get("/a?b=c", **(agent.fields | fields)).status == 200
        return site.plane.verdicts[-1].identifier

    until_equal(identified, b"https://bot.example/.well-known/http-message-signatures-directory")
    assert identified(Host="other.example", X_Headgate_Host=SITE) == ADDRESS
    components = [("@method", {}), ("@target-uri", {}), ("accept", {}), ("signature-agent", {"key": "sig1"})]
    now = int(time.time())
    times = {"created": now, "expires": now + 60, "keyid": agent.key.key_id, "tag": "web-bot-auth"}
    covered = [("accept", "a/b"), ("signature-agent", 'sig1="https://bot.example"')]
    message = SignedMessage("GET", SITE, "/a?b=c", covered)
    base = signature_base((components, times), partial(component_value, message))
    narrow = {
        "Signature_Agent": covered[1][1],
        "Signature_Input": f"sig1={serialize((components, times))}",
        "Signature": f"sig1={serialize((agent.key.sign(base), {}))}",
    }
    assert identified(Accept="a/b", **narrow).startswith(b"https://bot.example/")
    assert identified(Accept="a/c", X_Headgate_Target="/a?b=c", **narrow) == ADDRESS


def test_header_that_is_repeated_or_missing_identifies_by_the_address(start):
    site = start(identify="header:X-Client")
    site.plane.hold(ADDRESS, 60.0)
    head = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Client: %b\r\n%b\r\n"
    for first, more, status in (
        (b"one", b"", b"200"),
        (b"two", b"X-Client: three\r\n", b"503"),
        (b"", b"", b"503"),
        (b"four", b"X-Headgate-Address: 192.0.2.1\r\n", b"200"),
        (b"", b"X-Headgate-Address: 192.0.2.1\r\n", b"503"),
        (b"", b"X_Headgate_Address: 192.0.2.1\r\n", b"503"),
    ):
        assert site.send(head % (first, more))[9:12] == status, (first, more)


def test_ipv6_addresses_share_the_limit_of_their_network(start):
    """The addresses of clients are those in a header of a trusted proxy, which here is the test."""
    site = start(server="set_real_ip_from 127.0.0.1; real_ip_header X-Real;\n")
    site.plane.hold(b"2001:db8::/64", 60.0)
    assert site.nginx.get(X_Real="2001:db8::ffff:2").status == 503
    assert site.nginx.get(X_Real="2001:db8:0:1::1").status == 200


@pytest.mark.parametrize("identify", [None, "header:X-Client"])
def test_heads_that_are_too_large_are_limited_and_do_not_end_the_limit_of_others(start, identify):
    """With 32 KiB of client fields the check itself is larger than the sidecar reads; else they are not sent."""
    site = start(identify=identify, server=LARGE)
    site.plane.hold(ADDRESS, 60.0)
    site.plane.hold(b"=held", 60.0)
    fields = {f"X_Large_{number}": "x" * 30_000 for number in range(3)}
    for _ in range(5):
        assert site.nginx.get(X_Client="other", **fields).status == 503, "identified by its address"
        assert site.nginx.get(X_Client="held").status == 503
    assert site.plane.plane.totals.failed["malformed"] == 0
    assert "upstream" not in site.nginx.output()


PASSWORD = 'satisfy any; deny all; auth_basic "x"; auth_basic_user_file users; empty_gif;'


def test_locations_that_satisfy_any_are_found_by_the_check_that_is_printed(start, tmp_path):
    """auth_request opens them; where it is off, they stay closed."""
    (tmp_path / "users").write_text("user:{PLAIN}secret\n")
    closed = f"location /closed {{ {PASSWORD} auth_request off; }}\nlocation /open {{ {PASSWORD} }}\n"
    site = start(server=closed)
    assert [site.nginx.get(path).status for path in ("/closed", "/open")] == [401, 200]
    (file,) = tmp_path.glob("nginx-*.conf")
    paragraph, _, rest = file.read_text().partition("daemon off;")
    assert 'WARNING: auth_request opens each location that has "satisfy any"' in paragraph
    check = next(line for line in paragraph.splitlines() if "grep" in line).removeprefix("#").strip()
    command = check.replace("nginx -T", f"{find_program('nginx')} -T -q -p {tmp_path} -e stderr -c {file}")
    found = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout.splitlines()
    assert len([line for line in found if not line.startswith("#")]) == rest.count("satisfy any")
