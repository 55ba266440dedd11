"""`headgate serve` with bundles: published at their paths, and used to answer rejected requests."""

import signal

import pytest

from tests import webbundles
from tests.e2e import programs
from tests.webbundles import HTML, PAGE

FILE = """\
[gate]
origin = "{origin}"
max_delay = 0
[[domain]]
name = "default"
rules = ["1/h burst 1"]
[[bundle]]
file = "site.wbn"
path = "/site.wbn"
lifeboat = true
"""
EXCHANGES = (
    {"url": "/", "headers": HTML | {"age": "9", "warning": "x"}, "payload": PAGE},
    {"url": "/big", "payload": b"0123456789abcdef" * 100_000},
)


@pytest.fixture
def file(tmp_path, origin):
    webbundles.write(tmp_path / "site.wbn", *EXCHANGES)
    path = tmp_path / "gate.toml"
    path.write_text(FILE.format(origin=origin.url))
    return path


@pytest.fixture(params=[1, 2], ids=["alone", "workers"])
def gate(request, tmp_path, file):
    with programs.gate(tmp_path, "--config", file, "--workers", str(request.param)) as running:
        yield running


def spent(gate, path="/none"):
    """Send requests until the gate rejects, and return their number: workers learn of each other's a moment later."""
    statuses = []
    gate.until(lambda: statuses.append(gate.get(path).status) or statuses[-1] == 503, "rejection")
    return len(statuses)


def test_a_rejected_request_is_answered_from_the_bundle(gate, origin):
    sent, seen = spent(gate), len(origin.seen)
    saved = gate.get("/")
    gate.until(lambda: gate.totals() == (seen, 0, sent - seen + 1), "count")
    gate.until(lambda: "headgate_gateway_lifeboat_total 1.0\n" in gate.admin("/metrics"), "metric")
    assert (saved.status, saved.body, saved.headers["Headgate-Source"]) == (200, PAGE, "bundle")
    for name in ("Age", "Warning", "Retry-After", "RateLimit", "RateLimit-Policy"):
        assert name not in saved.headers
    assert len(saved.headers.get_all("Date")) == 1
    rejected = gate.get("/none")
    assert (rejected.status, "Headgate-Source" in rejected.headers) == (503, False)
    assert gate.get("/big").body == EXCHANGES[1]["payload"]
    head = gate.get("/", method="HEAD")
    assert (head.status, head.body, head.headers["Content-Length"]) == (200, b"", str(len(PAGE)))
    assert len(origin.seen) == seen


def test_the_bundle_is_published_at_its_path_and_never_limited(gate, tmp_path, origin):
    whole = (tmp_path / "site.wbn").read_bytes()
    for _ in range(4):
        answer = gate.get("/site.wbn")
        assert (answer.status, answer.body) == (200, whole)
    part = gate.get("/site.wbn", Range="bytes=-9")
    assert (part.status, part.body) == (206, whole[-9:])
    assert gate.get("/site.wbn", method="DELETE").status == 405
    assert origin.seen == []
    accepted = gate.get("/")
    assert (accepted.body, origin.seen) == (b"ok\n", ["/"])
    assert "Headgate-Source" not in accepted.headers


def test_a_reload_takes_bundles_in_and_out(gate, tmp_path, file, origin):
    text = file.read_text()
    spent(gate)
    webbundles.write(tmp_path / "new.wbn", {"url": "/", "payload": b"new"}).rename(tmp_path / "site.wbn")
    file.write_text(text.replace('path = "/site.wbn"', 'path = "/moved.wbn"'))
    gate.process.send_signal(signal.SIGHUP)
    gate.wait_for(r"read again$")
    gate.until(lambda: gate.get("/").body == b"new", "new bundle")
    gate.until(lambda: gate.get("/moved.wbn").status == 200, "new path")
    gate.until(lambda: set(gate.statuses(8, "/site.wbn")) == {503}, "end of the old path in every worker")
    file.write_text(text.partition("[[bundle]]")[0])
    gate.process.send_signal(signal.SIGHUP)
    gate.until(lambda: set(gate.statuses(8, "/")) == {503}, "end of the lifeboat in every worker")
    gate.until(lambda: set(gate.statuses(8, "/moved.wbn")) == {503}, "end of the new path in every worker")
