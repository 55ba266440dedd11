"""Lines of the access log: what they say, that nothing can be injected, and a slow or full disk."""

import asyncio
import json
import os
import resource
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.cli.access_log import RequestLog, lines, parser
from headgate.config.tree import LogSection
from headgate.errors import ConfigurationError
from headgate.http.h1 import RequestLimits, parse_request_head
from headgate.limit import Accounting
from headgate.origin.gateway.record import RequestRecord
from headgate.origin.identify import client_address
from headgate.release import Status
from headgate.runtime.access_log import AccessLine, AccessLog
from headgate.runtime.log import MAX_LINE_SIZE

NOW = 1_700_000_000.25
KEY = b"k" * 16


def record(*fields: bytes, path: bytes = b"/a?b", **values: Any) -> RequestRecord:
    head = b"\r\n".join([b"GET %b HTTP/1.1" % path, b"Host: a.example", *fields]) + b"\r\n\r\n"
    request = parse_request_head(head, RequestLimits(head=10**6, target=10**5))
    settings: dict[str, Any] = {"request_id": b"0123", "end": 12.5, "status": 200, "bytes": 5}
    return RequestRecord("192.0.2.1", NOW, 12.0, request, **{**settings, **values})


def accounting(status: Status = Status.ACCEPTED, identifier: bytes = b"192.0.2.1") -> Accounting:
    return Accounting("api", status, identifier, NOW, NOW)


class Log:
    """An access log in a file or a pipe; `written` closes it and returns what it has written."""

    def __init__(self, path: Path | str, *, reading: int = -1, **settings: Any) -> None:
        self.reports: list[str] = []
        self.path, self.reading = path, reading
        proxies = client_address(["10.0.0.0/8"])
        self.log = AccessLog(LogSection(access=str(path), **settings), proxies, KEY, log=self.reports.append)

    async def add(self, *records: RequestRecord) -> "Log":
        for one in records:
            self.log.add(one)
        return self

    def written(self) -> list[bytes]:
        self.log.close(20)
        return Path(self.path).read_bytes().splitlines()


def entries(tmp_path: Path, *records: RequestRecord, **settings: Any) -> list[dict[str, Any]]:
    log = Log(tmp_path / "access.log", **settings)
    asyncio.run(log.add(*records))
    return [json.loads(line) for line in log.written()]


def test_a_line_has_all_that_is_known_of_a_request(tmp_path: Path) -> None:
    full = record(
        b"User-Agent: A/1", b"referer:  http://b \t", accounting=accounting(Status.DELAYED), wait=0.1,
        upstream="192.0.2.9:80", upstream_start=12.1, upstream_first_byte=12.4, upstream_status=200,
    )  # fmt: skip
    assert entries(tmp_path, full) == [
        {
            "time": "2023-11-14T22:13:20.250Z", "client": "192.0.2.1", "identifier": "192.0.2.1", "domain": "api",
            "verdict": "delayed", "reason": None, "wait_ms": 100.0, "method": "GET", "host": "a.example", "path": "/a",
            "protocol": "HTTP/1.1", "status": 200, "bytes": 5, "duration_ms": 500.0, "upstream": "192.0.2.9:80",
            "upstream_ms": 300.0, "upstream_status": 200, "request_id": "0123", "user_agent": "A/1",
            "referer": "http://b", "agent": None,
        }
    ]  # fmt: skip
    names = "time client identifier domain verdict reason wait_ms method host path protocol status bytes duration_ms"
    names += " upstream upstream_ms upstream_status request_id user_agent referer agent"
    assert list(AccessLine.__struct_fields__) == names.split()


@pytest.mark.parametrize(
    ("values", "verdict", "domain"),
    [
        ({"accounting": accounting()}, "accepted", "api"),
        ({"accounting": accounting(Status.REJECTED), "reason": "rule"}, "rejected", "api"),
        ({"accounting": accounting(), "reason": "concurrency"}, "rejected", "api"),
        ({"reason": "concurrency"}, "rejected", None),
        ({"reason": "client_limit"}, "rejected", None),
        ({"reason": "denied"}, "rejected", None),
        ({"accounting": accounting(), "reason": "timeout", "status": 504}, "accepted", "api"),
        ({}, None, None),
        ({"reason": "malformed"}, None, None),
    ],
)
def test_the_verdict_is_what_the_gate_decided(
    tmp_path: Path, values: dict[str, Any], verdict: str | None, domain: str | None
) -> None:
    [line] = entries(tmp_path, record(**values))
    assert (line["verdict"], line["domain"]) == (verdict, domain)


def test_what_is_unknown_is_null(tmp_path: Path) -> None:
    [line] = entries(tmp_path, RequestRecord("", NOW, 1.0, None, b"0123", end=1.0, reason="client"))
    assert {name for name, value in line.items() if value is None} == {
        "client", "identifier", "domain", "verdict", "method", "host", "path", "protocol", "status", "upstream",
        "upstream_ms", "upstream_status", "user_agent", "referer", "agent",
    }  # fmt: skip


def test_only_what_went_well_is_sampled(tmp_path: Path) -> None:
    well, bad = [{}, {"status": 404}, {"reason": "advice"}], [
        {"status": 500}, {"status": 0, "reason": "client"}, {"reason": "rule"}, {"reason": "lifeboat"},
        {"reason": "truncated"},
    ]  # fmt: skip
    assert len(entries(tmp_path, *(record(**one) for one in well + bad), sample=0)) == len(bad)


def test_clients_are_named_as_the_settings_say(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(KEY + b"\n")
    found = {}
    secret = record(b"X-Forwarded-For: 192.0.2.7", accounting=accounting(identifier=b"=secret"))
    secret.client = "10.0.0.1"
    for name, settings in {
        "plain": {}, "hashed": {"identifiers": "hashed"}, "off": {"identifiers": "off"},
        "file": {"identifiers": "hashed", "identifiers_key": str(key)},
    }.items():  # fmt: skip
        (tmp_path / "access.log").unlink(missing_ok=True)
        [line] = entries(tmp_path, secret, **settings)
        found[name] = line["client"], line["identifier"]
    secret.accounting = accounting(identifier=b"192.0.2.7&=secret")
    assert "secret" not in str(entries(tmp_path, secret)), "an identifier of several parts"
    assert found["plain"][0] == "192.0.2.7"
    assert found["plain"][1].startswith("sha256:")
    assert found["off"] == (None, None)
    assert found["hashed"] == found["file"]
    assert all(len(one) == 16 for one in found["hashed"])
    assert not {"192.0.2.7", *found["plain"]} & set(found["hashed"])


TEXTS = st.binary(max_size=60) | st.sampled_from(
    [b'"', b"\\", b'" "', b"\xc2\x9b31m", "\u202e\u2028\U000e0041".encode()]
)


@pytest.mark.parametrize("form", ["json", "combined"])
@given(texts=st.tuples(TEXTS, TEXTS, st.integers(1, 400)))
def test_a_client_can_inject_nothing(tmp_path_factory: pytest.TempPathFactory, form: str, texts: Any) -> None:
    """One request is one printable line that reads back as one request of the same client, however long it is."""
    agent, referer = (bytes(byte for byte in text if byte >= 32 and byte != 127) * texts[2] for text in texts[:2])
    path = tmp_path_factory.mktemp("log") / "access.log"
    log = Log(path, format=form)
    log.log._writer.is_file = False
    asyncio.run(log.add(record(b"User-Agent: " + agent, b"Referer: " + referer, accounting=accounting())))
    [line] = log.written()
    assert len(line) <= MAX_LINE_SIZE
    assert line.decode().isprintable()
    requests = RequestLog()
    requests.read([[line]], parser("auto"))
    assert (requests.malformed, [name for name, _ in requests]) == (0, [b"192.0.2.1"])
    if form == "json" and len(agent) < 80 > len(referer):
        assert json.loads(line)["user_agent"] == agent.strip(b"\t ").decode("utf-8", "backslashreplace")


def test_a_combined_line(tmp_path: Path) -> None:
    log = Log(tmp_path / "access.log", format="combined")
    asyncio.run(log.add(record(b'User-Agent: "\\\xff', accounting=accounting(identifier=b"2001:db8::/64"))))
    assert log.written() == [
        b'192.0.2.1 - 2001:db8::/64 [14/Nov/2023:22:13:20 +0000] "GET /a HTTP/1.1" 200 5 "-" "\\x22\\x5C\\x5Cxff"'
    ]


def test_replay_reads_the_log_of_a_gate(tmp_path: Path) -> None:
    unmatched = {"reason": "advice"}, {}, {"reason": "malformed"}
    log = Log(tmp_path / "access.log")
    asyncio.run(log.add(record(accounting=accounting(identifier=b"a")), *(record(**one) for one in unmatched)))
    log.log.close(20)
    for domain, clients in ((None, [b"a", b"192.0.2.1"]), ("api", [b"a"]), ("other", [])):
        requests = RequestLog()
        with (tmp_path / "access.log").open("rb") as file:
            requests.read([list(lines(file))], parser("auto", domain=domain))
        assert (requests.malformed, [name for name, _ in requests]) == (0, clients)


async def test_a_stopped_reader_stops_nothing_and_drops_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    monkeypatch.setattr(os, "dup", lambda _: writing)
    log = Log("-")
    added = 60_000
    await log.add(*[record(accounting=accounting())] * added)
    log.log.flush()
    assert 0 < log.log.dropped < added
    found = bytearray()
    os.set_blocking(reading, False)
    log.log.close()
    block = b"unread"
    while block:
        try:
            found += (block := os.read(reading, 65536))
        except BlockingIOError:
            await asyncio.sleep(0.001)
    os.close(reading)
    assert found.count(b"\n") == added - log.log.dropped
    assert all(json.loads(line)["status"] == 200 for line in found.splitlines())


def test_a_full_disk_drops_lines_and_says_so_once_and_again_when_there_is_space(tmp_path: Path) -> None:
    log = Log(tmp_path / "access.log")
    limits, one = resource.getrlimit(resource.RLIMIT_FSIZE), record(accounting=accounting())
    asyncio.run(log.add(one))
    log.log.flush()
    while not (size := (tmp_path / "access.log").stat().st_size):
        time.sleep(0.01)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size * 5 // 2, limits[1]))
    try:
        for dropped in (1, 3):
            asyncio.run(log.add(one, one))
            log.log.flush()
            while log.log.dropped < dropped:
                time.sleep(0.01)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    asyncio.run(log.add(one))
    written = log.written()
    assert log.log.dropped == 3
    assert len(log.reports) == 2
    assert "File too large" in log.reports[0]
    assert [line[-1:] == b"}" for line in written] == [True, True, False, True]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"access": "/nowhere/access.log"}, "log.access: '/nowhere/access.log': No such file or directory"),
        ({"access": "/"}, "log.access: '/': Is a directory"),
        ({"access": "FIFO"}, "No such device"),
        ({"access": "-", "identifiers": "hashed", "identifiers_key": "/nowhere"}, "log.identifiers_key: /nowhere"),
        ({"access": "-", "identifiers": "hashed", "identifiers_key": "/dev/null"}, "expected a key of 16 to 64 bytes"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, settings: dict[str, str], message: str) -> None:
    if settings["access"] == "FIFO":
        os.mkfifo(tmp_path / "fifo")
        settings = {"access": str(tmp_path / "fifo")}
    with pytest.raises(ConfigurationError, match=message):
        AccessLog(LogSection(**settings), client_address(), KEY, log=print)  # type: ignore[arg-type]
