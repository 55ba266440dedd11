"""The real HAProxy as a gatekeeper, with its data plane in this process.

tests/e2e/test_one_limit.py and test_data_plane_faults.py run the whole system.
"""

import json
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from headgate.limit import DelayUntil
from headgate.origin.identify import parse_identify
from headgate.origin.request_info import RequestInfo
from headgate.origin.sidecar import haproxy as haproxy_plane
from headgate.origin.sidecar.haproxy import encode_end, encode_key
from headgate.release import Status
from tests.e2e import haproxy_setup, programs
from tests.e2e.haproxy_setup import HAProxyProcess, Plane
from tests.servers import free_port

pytestmark = pytest.mark.needs("haproxy")

HOSTILE = [
    b"a b", b"a;b", b"a;clear table headgate", b"a\nclear table headgate", b"a\r\nb", b"'\"\\", b"#0x1", b"@1 x", b"<<",
    b"%41", b"%[src]", b"\xff\xfe\x80", b"\0", b"x" * 255, b"\xff" * 255,
]  # fmt: skip
"""Identifiers that a control may have; those without control characters can also be values of a header."""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """What ends with the test."""
    with ExitStack() as open_things:
        yield open_things


Start = Callable[..., tuple[HAProxyProcess, Plane]]


@pytest.fixture
def start(stack: ExitStack, tmp_path: Path) -> Start:
    """Return the function that starts HAProxy in front of an origin, and its data plane."""

    def run(url: str = "", **site: Any) -> tuple[HAProxyProcess, Plane]:
        url = url or stack.enter_context(programs.origin()).url
        running = stack.enter_context(haproxy_setup.haproxy(tmp_path, url, **site))
        return running, stack.enter_context(Plane(running, domain=running.site.domain))

    return run


@pytest.fixture
def running(stack: ExitStack, tmp_path: Path) -> HAProxyProcess:
    """HAProxy in front of an origin, without a sidecar."""
    return stack.enter_context(haproxy_setup.haproxy(tmp_path, stack.enter_context(programs.origin()).url))


@pytest.fixture
def plane(stack: ExitStack, running: HAProxyProcess) -> Plane:
    """The data plane of that HAProxy."""
    return stack.enter_context(Plane(running))


def test_requests_are_accounted_for_while_the_origin_processes_them(stack: ExitStack, start: Start) -> None:
    silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    running, plane = start(f"http://127.0.0.1:{silent.getsockname()[1]}")
    client = stack.enter_context(socket.create_connection(("127.0.0.1", running.port)))
    client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    plane.until(lambda: plane.verdicts, "verdict")
    (verdict,) = plane.verdicts
    assert (verdict.domain, verdict.status, verdict.identifier) == ("api", Status.ACCEPTED, b"127.0.0.1")
    assert abs(verdict.received - time.time()) < 60


def test_a_hold_ends_on_time_and_not_early_without_the_sidecar(running: HAProxyProcess) -> None:
    with Plane(running) as plane:
        release = plane.hold_in_table(b"127.0.0.1", 0.7)
        assert running.get().status == 503
    while running.get().status == 503:
        assert time.time() < release + programs.PATIENCE
    assert time.time() >= release


def test_the_holds_are_there_again_after_the_table_was_cleared(running: HAProxyProcess, plane: Plane) -> None:
    """tests/e2e/test_data_plane_faults.py reloads, restarts and kills HAProxy."""
    plane.hold_in_table(b"127.0.0.1", 60)
    running.ask("clear table headgate")
    plane.until(lambda: running.get().status == 503, "hold")
    assert plane.plane.unready() == ""


@pytest.mark.parametrize("count", [100, 3_000])
def test_many_holds_are_extended(running: HAProxyProcess, plane: Plane, count: int) -> None:
    for seconds in (60, 120):
        ends = {f"c{number}": plane.hold(b"c%d" % number, seconds) for number in range(count)}
        expected = {name: encode_end(end) for name, end in ends.items()}
        plane.until(lambda expected=expected: running.entries() == expected, "entries")
    assert plane.plane.unready() == ""


def test_all_holds_are_written_if_more_wait_than_are_stored(
    running: HAProxyProcess, plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(haproxy_plane, "_MAX_PENDING", 10)
    plane.run(lambda: [hold_now(plane, b"%d" % number) for number in range(95)])
    plane.until(lambda: len(running.entries()) == 95, "entries")


def hold_now(plane: Plane, identifier: bytes) -> None:
    """Hold an identifier, in the event loop of the data plane."""
    control = DelayUntil("api", identifier, time.time() + 60)
    plane.gatekeeper.obey(control, now=time.time())
    plane.plane.hold(control, now=time.time())


def test_requests_that_could_not_be_reported_are_counted(stack: ExitStack, tmp_path: Path) -> None:
    """A thread counts those that it drops in its next message."""
    origin, one = stack.enter_context(programs.origin()), {"global\n": "global\n    nbthread 1\n"}
    running = stack.enter_context(haproxy_setup.haproxy(tmp_path, origin.url, replacements=one))
    sent = Counter(running.get().status for _ in range(20))
    plane = stack.enter_context(Plane(running))

    def dropped() -> int:
        return plane.plane.totals.dropped

    while not dropped():
        sent[running.get().status] += 1
        assert sent[200] < 10_000
    plane.until(lambda: dropped() + len(plane.verdicts) == sent[200], "verdicts on the others")


def test_a_haproxy_that_does_not_run_or_does_not_answer_is_reported_once(
    running: HAProxyProcess, plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(haproxy_plane, "_TIMEOUT", 0.25)
    monkeypatch.setattr(haproxy_plane, "_CHECK_INTERVAL", 0.02)
    running.process.send_signal(signal.SIGSTOP)
    plane.until(lambda: "no answer for 0.25 s" in plane.plane.unready(), "reason")
    plane.hold(b"127.0.0.1", 60)
    running.process.send_signal(signal.SIGCONT)
    plane.until(lambda: running.get().status == 503, "hold")
    plane.until(lambda: plane.plane.unready() == "", "readiness")
    running.process.kill()
    plane.until(lambda: "Connection refused" in plane.plane.unready(), "reason")
    count = len(plane.messages)
    plane.until(lambda: plane.plane.totals.failed["errors"] > 5, "further attempts")
    assert len(plane.messages) == count


def test_a_table_that_haproxy_does_not_have_is_reported(running: HAProxyProcess) -> None:
    with Plane(running, table="none") as plane:
        assert "no table 'none'" in plane.plane.unready()


def test_no_identifier_of_a_control_changes_the_meaning_of_a_command(start: Start) -> None:
    running, plane = start("http://127.0.0.1:1", identify="header:X-Api-Key")
    for seconds in (60, 90):
        for identifier in HOSTILE:
            plane.hold_in_table(identifier, seconds)
    assert sorted(running.entries()) == sorted(map(encode_key, HOSTILE))
    assert plane.plane.totals.failed["errors"] == 0, plane.messages


VALUES = [
    *(value for value in HOSTILE if not set(value) & set(b"\0\r\n")),
    b"",
    b"  padded\t",
    b"x" * 256,
    b"\xff" * 300,
    bytes(range(0x21, 0x7F)),
    bytes(range(0x80, 0x100)),
]


CREDENTIALS = [b"Bearer tok", b"bEARER  tok", b"BASIC \t dG9r", b"Token", b'Digest a="b c", D=e', b"x" * 250 + b" tok"]


@pytest.mark.parametrize(("name", "values"), [("X-Api-Key", VALUES), ("Authorization", CREDENTIALS)])
def test_a_header_identifies_as_at_the_gate(start: Start, name: str, values: list[bytes]) -> None:
    running, plane = start(identify=f"header:{name}")
    lists = [[], *([value] for value in values), [b"a", b"b"], [b"a", b""]]
    expected = [identify(name, fields) for fields in lists]
    for number, fields in enumerate(lists):
        assert send(running, name, fields) == 200
        # One after another: the threads of HAProxy report independently.
        plane.until(lambda number=number: len(plane.verdicts) > number, "verdict")
    assert [verdict.identifier for verdict in plane.verdicts] == expected
    for fields in lists[1:]:
        plane.hold_in_table(identify(name, fields), 60)
        assert send(running, name, fields) == 503


def identify(name: str, fields: list[bytes]) -> bytes:
    """Return the identifier of a request with these values of a header as the gate does."""
    lines = [(name.lower().encode(), value.strip(b" \t")) for value in fields]
    return parse_identify(f"header:{name}")(request("127.0.0.1", lines))


def request(peer: str, lines: list[tuple[bytes, bytes]] | None = None) -> RequestInfo:
    """Return the head of a request as the gate has it."""
    return RequestInfo(method=b"GET", path=b"/", host=b"a", fields=lines or [], peer=peer)


def send(running: HAProxyProcess, name: str, values: list[bytes]) -> int:
    """Send a request with these values of a header; return the status."""
    with socket.create_connection(("127.0.0.1", running.port)) as connection:
        connection.settimeout(programs.PATIENCE)
        lines = b"".join(name.encode() + b": " + value + b"\r\n" for value in values)
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + lines + b"\r\n")
        answer = b""
        while data := connection.recv(65_536):
            answer += data
    return int(answer.split()[1])


PEERS = ["192.0.2.7", "2001:db8:1:2:3:4:5:6", "2001:db8::", "::1", "fe80::1:0:0:1", "1:0:0:2:3::", "::ffff:192.0.2.9"]


@pytest.mark.parametrize("ipv6_prefix", [64, 56, 128])
def test_an_address_identifies_as_at_the_gate(start: Start, ipv6_prefix: int) -> None:
    first = "    # The identifier: as a gate"
    chosen = {first: f"    http-request set-src req.fhdr(x-address)\n{first}"}
    running, plane = start(replacements=chosen, ipv6_prefix=ipv6_prefix)
    for number, peer in enumerate(PEERS):
        assert running.get(X_Address=peer).status == 200
        plane.until(lambda number=number: len(plane.verdicts) > number, "verdict")
    method = parse_identify("client-address", ipv6_prefix=ipv6_prefix)
    assert [verdict.identifier for verdict in plane.verdicts] == [method(request(peer)) for peer in PEERS]


def test_ipv4_clients_of_an_ipv6_listener_are_identified_by_ipv4(start: Start) -> None:
    port = free_port()
    running, plane = start(replacements={"    bind 127.0.0.1": f"    bind :::{port} v4v6\n    bind 127.0.0.1"})
    running.port = port
    assert running.get().status == 200
    plane.until(lambda: plane.verdicts, "verdict")
    assert plane.verdicts[0].identifier == b"127.0.0.1"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the root directory")
def test_a_haproxy_with_another_root_directory_and_user_reports_requests(start: Start, tmp_path: Path) -> None:
    jail = tmp_path / "jail"
    jail.mkdir(mode=0o755)
    socket = str(jail / "admin.sock")
    chosen = {
        "global\n": f"global\n    chroot {jail}\n    user nobody\n    group nogroup\n",
        f"unix@{socket}": "unix@/admin.sock",
    }
    running, plane = start(replacements=chosen, socket=socket)
    assert running.get().status == 200
    plane.until(lambda: plane.verdicts, "verdict")
    plane.hold_in_table(b"127.0.0.1", 60)
    assert running.get().status == 503


@pytest.mark.parametrize("status", [503, 429])
def test_a_rejection_says_when_to_come_back(start: Start, status: int) -> None:
    domain = "a%b\"c'$HOME %[src] \\n#ü"
    running, plane = start(domain=domain, rejection_status=status)
    # Not 60: HAProxy's time is in whole milliseconds and that of its last poll, so a whole second could be rounded up.
    release = plane.hold(b"127.0.0.1", 59.5, domain)
    plane.until(running.entries, "entry")
    text, problem, head = running.get(), running.get(Accept="application/json"), running.get(method="HEAD")
    for answer in (text, problem, head):
        seconds = answer.headers["Retry-After"]
        assert 0 < int(seconds) <= 60
        assert int(seconds) + time.time() >= release
        assert answer.status == status
        assert answer.headers["RateLimit"].endswith(f";r=0;t={seconds}")
        assert answer.headers["Cache-Control"] == "no-store"
    assert text.body.decode().startswith(f"Too many requests. Requests for {domain!r} come faster")
    assert text.body.endswith(b" s.\n")
    assert problem.headers["Content-Type"] == "application/problem+json"
    content = json.loads(problem.body)
    assert content["status"] == status
    assert repr(domain) in content["detail"]
    assert head.body == b""


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        ("*/*", "text/plain; charset=utf-8"),
        ("text/html, application/json;q=0.5", "text/plain; charset=utf-8"),
        ("application/json, text/plain, */*", "text/plain; charset=utf-8"),
        ("application/json", "application/problem+json"),
        ("application/json, */*;q=0.5", "application/problem+json"),
        ("application/problem+json", "application/problem+json"),
    ],
)
def test_a_client_that_prefers_json_gets_a_problem_document(
    running: HAProxyProcess, plane: Plane, accept: str, media_type: str
) -> None:
    plane.hold_in_table(b"127.0.0.1", 60)
    assert running.get(Accept=accept).headers["Content-Type"] == media_type
