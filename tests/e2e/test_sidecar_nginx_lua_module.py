"""The Lua module in the real nginx, against what Python does: identifiers, rejections, preferences and records."""

import contextlib
import http.client
import json
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.limit import Accounting
from headgate.origin import Rejections, parse_identify
from headgate.origin.pages import preferred_form
from headgate.origin.request_info import RequestInfo
from headgate.origin.sidecar.nginx_lua import encode_record
from headgate.release import Status
from tests.e2e import nginx_setup
from tests.e2e.nginx_setup import REAL_IP, Nginx, Plane
from tests.e2e.programs import PATIENCE

pytestmark = pytest.mark.needs("nginx-lua")

# Locations that call functions of the module, and one that answers without an origin.
FUNCTIONS = """
    keepalive_requests 1000000;
    location = /prefers { content_by_lua_block {
        ngx.print(tostring(require("headgate.reject").prefers_problem(ngx.var.http_accept)))
    } }
    location = /records { client_body_buffer_size 1m; content_by_lua_block {
        ngx.req.read_body()
        local data, size = ngx.req.get_body_data() or "", tonumber(ngx.var.arg_size)
        local records, seen, rest = require("headgate.records"), {}, ""
        local handlers = setmetatable({}, { __index = function(_, kind)
            return function(first, second, bytes)
                seen[#seen + 1] = records.encode(kind, first, second, bytes)
            end
        end })
        for start = 1, #data, size do
            rest = records.handle(rest .. data:sub(start, start + size - 1), handlers)
            if not rest then return ngx.exit(409) end
        end
        ngx.print(table.concat(seen))
    } }
    location = /empty { empty_gif; }
"""


class Connection:
    """A connection to nginx that sends requests byte by byte as given, and reads their responses."""

    def __init__(self, port: int) -> None:
        self.limited = 0
        """Requests for /empty, for each of which there is a verdict."""
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)

    def ask(self, path: str, fields: list[tuple[bytes, bytes]], body: bytes | None = None) -> tuple[int, bytes]:
        """Send a request; return the status and the content."""
        self.limited += path == "/empty"
        lines = [b"Host: nginx", *(name + b": " + value for name, value in fields)]
        if body is not None:
            lines.append(b"Content-Length: %d" % len(body))
        method = b"GET" if body is None else b"POST"
        self._socket.sendall(b"\r\n".join([method + b" " + path.encode() + b" HTTP/1.1", *lines, b"", body or b""]))
        response = http.client.HTTPResponse(self._socket)
        response.begin()
        return response.status, response.read()

    def close(self) -> None:
        """Close it."""
        self._socket.close()


class Site:
    """A plane, an nginx with one worker, and a connection to it."""

    def __init__(self, plane: Plane, nginx: Nginx) -> None:
        self.plane, self.nginx = plane, nginx
        self.connection = Connection(nginx.port)

    def identifier(self, fields: list[tuple[bytes, bytes]]) -> bytes:
        """Send a request with these fields; return its identifier."""
        before = self.connection.limited
        self.plane.until(lambda: len(self.plane.verdicts) >= before, "verdicts of earlier requests")
        assert self.connection.ask("/empty", fields)[0] == 200
        self.plane.until(lambda: len(self.plane.verdicts) > before, "verdict")
        return self.plane.verdicts[-1].identifier


@contextlib.contextmanager
def site(folder: Path, **settings: object) -> Iterator[Site]:
    """Run a plane and an nginx."""
    with (
        Plane(folder / "headgate.sock", **settings) as plane,
        nginx_setup.nginx(
            folder, folder / "headgate.sock", "http://127.0.0.1:1", workers=1, server=REAL_IP + FUNCTIONS
        ) as nginx,
    ):
        plane.until_connected(1)
        running = Site(plane, nginx)
        try:
            yield running
        finally:
            running.connection.close()


@pytest.fixture(scope="module")
def by_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Identifies by address."""
    with site(tmp_path_factory.mktemp("address")) as running:
        yield running


@pytest.fixture(scope="module")
def by_header(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Identifies by a header."""
    with site(tmp_path_factory.mktemp("header"), identify="header:X-Api-Key") as running:
        yield running


@pytest.fixture(scope="module")
def by_credential(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Identifies by Authorization."""
    with site(tmp_path_factory.mktemp("credential"), identify="header:Authorization") as running:
        yield running


@pytest.fixture(scope="module", params=[50, 128])
def by_prefix(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Site]:
    """Identifies IPv6 by networks of so many bits."""
    with site(tmp_path_factory.mktemp("prefix"), ipv6_prefix=request.param) as running:
        yield running


def request_of(peer: str, fields: Iterable[tuple[bytes, bytes]] = ()) -> RequestInfo:
    """Return a request as the gate has it."""
    return RequestInfo(b"GET", b"/", b"nginx", list(fields), peer)


SPARSE = st.builds(
    lambda groups: ":".join(f"{group:x}" for group in groups),
    st.lists(st.sampled_from([0, 0, 0, 1, 0xFFFF, 0x2001, 0xDB8]), min_size=8, max_size=8),
)
IPV4 = st.ip_addresses(v=4, network="0.0.0.0/1").map(str)  # the module realip takes 255.255.255.255 for an error
ADDRESSES = st.one_of(IPV4, st.ip_addresses(v=6).map(str), SPARSE, IPV4.map("::ffff:{}".format))


@given(address=ADDRESSES)
@example(address="2001:db8:1:2:3:4:5:6")
@example(address="::1")
@example(address="1:0:0:2:0:0:0:0")
def test_an_address_is_the_identifier_that_the_gate_uses(by_address: Site, address: str) -> None:
    expected = parse_identify("client-address")(request_of(address))
    assert by_address.identifier([(b"X-Address", address.encode())]) == expected


@given(address=ADDRESSES)
@example(address="1:0:2:3:4:5:6:7")
@example(address="1:0:0:2:3:0:0:4")
@example(address="::")
def test_the_prefix_of_ipv6_is_that_of_the_sidecar(by_prefix: Site, address: str) -> None:
    prefix = by_prefix.plane.settings.ipv6_prefix
    expected = parse_identify("client-address", ipv6_prefix=prefix)(request_of(address))
    assert by_prefix.identifier([(b"X-Address", address.encode())]) == expected


FIELD_VALUES = st.binary(max_size=600).map(lambda value: value.translate(None, b"\0\r\n"))


@given(values=st.lists(FIELD_VALUES, max_size=2))
@example(values=[b'"; drop \\ { } $x \x01\x7f\xff'])
@example(values=[b"k" * 254])
@example(values=[b"k" * 255])
@example(values=[b" \t key \t "])
@example(values=[b""])
@example(values=[b"one", b"two"])
@example(values=[b"one", b""])
def test_a_header_is_the_identifier_that_the_gate_uses(by_header: Site, values: list[bytes]) -> None:
    fields = [(b"x-api-key", value) for value in values]
    expected = parse_identify("header:X-Api-Key")(request_of("192.0.2.7", fields))
    found = by_header.identifier([(b"X-Address", b"192.0.2.7"), *((b"X-API-Key", value) for value in values)])
    assert found == expected


@pytest.mark.parametrize("value", [b"bEARER  tok", b"BASIC \t dG9r", b"Token", b'Digest a="b c", D=e', b"x" * 255])
def test_a_credential_is_the_identifier_that_the_gate_uses(by_credential: Site, value: bytes) -> None:
    expected = parse_identify("header:Authorization")(request_of("192.0.2.7", [(b"authorization", value)]))
    assert by_credential.identifier([(b"Authorization", value)]) == expected


@pytest.mark.parametrize("count", [100, 120, 124, 125, 126, 127, 128, 300])
def test_a_header_before_and_after_many_others_is_found(by_header: Site, count: int) -> None:
    others = [(b"X-%d" % number, b"y") for number in range(count)]
    assert by_header.identifier([*others, (b"X-Api-Key", b"a")]) == b"=a"
    assert by_header.identifier([(b"X-Api-Key", b"a"), *others]) == b"=a"
    assert by_header.identifier([(b"X-Api-Key", b"a"), *others, (b"X-Api-Key", b"b")]) == b"127.0.0.1"


WEIGHTS = st.sampled_from(["", ";q=0", ";q=0.5", "; Q = 1", ";q=x", ";level=1;q=.3", ";q=7", ";q=0.5;q=1", ";;q=0.2"])
RANGES = st.sampled_from(
    ["text/plain", "text/*", "*/*", "application/json", "application/problem+json", "application/*", "text/html", ""]
)


@given(members=st.lists(st.tuples(RANGES, WEIGHTS), min_size=1, max_size=4), spaces=st.sampled_from(["", " ", "\t"]))
@example(members=[("application/json", "")], spaces="")
@example(members=[("text/plain", ";q=0"), ("*/*", "")], spaces="")
@example(members=[("APPLICATION/Problem+JSON", ";q=0.1")], spaces="")
@example(members=[("text/plain", ""), ("application/json", ";q=7")], spaces="")
@example(members=[("text/plain", ";q=0.7"), ("application/json", ";q=0.5;q=1")], spaces="")
@example(members=[("text/html", ""), ("application/xhtml+xml", ""), ("*/*", ";q=0.8")], spaces=" ")
def test_the_form_of_a_rejection_is_the_one_that_the_gate_chooses(
    by_address: Site, members: list[tuple[str, str]], spaces: str
) -> None:
    accept = ("," + spaces).join(spaces + name + weight for name, weight in members).strip().encode() or b"*/*"
    _, content = by_address.connection.ask("/prefers", [(b"Accept", accept)])
    assert json.loads(content) is (preferred_form(accept) == "problem")


RECORDS = st.lists(
    st.tuples(st.just(b"hold"), st.integers(0, 10**12), st.integers(0, 99), st.binary(max_size=300)), max_size=5
)


@given(records=RECORDS, size=st.integers(1, 700))
def test_records_are_read_however_they_are_divided(
    by_address: Site, records: list[tuple[bytes, int, int, bytes]], size: int
) -> None:
    data = b"".join(encode_record(*record) for record in records)
    assert by_address.connection.ask(f"/records?size={size}", [], data) == (200, data)


@pytest.mark.parametrize("accept", [None, "application/json"])
def test_a_rejection_has_the_text_and_the_fields_that_the_gate_writes(by_address: Site, accept: str | None) -> None:
    plane, nginx = by_address.plane, by_address.nginx
    release = plane.hold(b"192.0.2.99", 100.0)
    fields = {"X_Address": "192.0.2.99"} | ({} if accept is None else {"Accept": accept})
    answer = plane.until(lambda: (found := nginx.get("/empty", **fields)).status == 503 and found, "rejection")
    seconds = int(answer.headers["Retry-After"])
    assert seconds in {99, 100, 101}  # nginx reads its clock in whole milliseconds, rounded down
    rejected = Accounting("api", Status.REJECTED, b"192.0.2.99", release - seconds, release)
    expected = Rejections()(rejected, now=release - seconds, accept=accept.encode() if accept else None)
    assert answer.body == expected.body
    for name, value in expected.fields:
        assert answer.headers.get_all(name.decode()) == [value.decode()], name


def test_the_body_of_a_rejected_request_is_not_taken_for_the_next_request(by_address: Site) -> None:
    by_address.plane.hold(b"192.0.2.98", 100.0)
    fields = [(b"X-Address", b"192.0.2.98")]
    by_address.plane.until(lambda: by_address.connection.ask("/empty", fields)[0] == 503, "rejection")
    body = b"GET /records HTTP/1.1\r\nHost: x\r\n\r\n" * 100
    assert by_address.connection.ask("/empty", fields, body)[0] == 503
    assert by_address.connection.ask("/empty", [])[0] == 200
