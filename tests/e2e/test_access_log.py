"""The access log of a real gate: curl and wrk ask it, logrotate's steps rename it, and `headgate replay` reads it."""

import json
import signal
import subprocess

import pytest

from tests.e2e import programs


def curl(gate, *words):
    return subprocess.run(
        ["curl", "-s", *words, f"http://127.0.0.1:{gate.port}/a?secret"], check=True, capture_output=True, text=True
    ).stdout


def entries(path):
    """Return the lines of a log; each must be whole, but one that is being written."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


@pytest.mark.parametrize("workers", [1, 3])
def test_every_request_has_a_line_in_the_file_that_is_open(tmp_path, workers):
    log, renamed = tmp_path / "access.log", tmp_path / "access.log.1"
    words = ["--rule", "1/min burst 2", "--access-log", log, "--workers", workers]
    with programs.origin() as origin, programs.gate(tmp_path, "--origin", origin.url, *words) as gate:
        ids = [curl(gate, "-o", "/dev/null", "-w", "%header{x-request-id}", "-A", 'x"\x9b') for _ in range(2)]
        gate.until(lambda: gate.get().status == 503, "hold")
        page = curl(gate, "-H", "Accept: text/html")
        found = gate.until(lambda: [one for one in entries(log) if one["verdict"] == "rejected"], "rejection")
        assert found[0]["reason"] == "rule"
        gate.until(lambda: any(one["request_id"] in page for one in entries(log)), "line of the page")
        gate.until(lambda: {one["request_id"] for one in entries(log)} >= set(ids), "lines of other workers")
        accepted = [one for one in entries(log) if one["verdict"] == "accepted"]
        assert {one["request_id"] for one in accepted} >= set(ids)
        assert {(one["path"], one["status"], one["upstream_status"]) for one in accepted} >= {("/a", 200, 200)}
        log.rename(renamed)
        gate.process.send_signal(signal.SIGHUP)
        gate.wait_for("the access log read again")
        gate.until(log.exists, "new file")
        if workers == 3:
            subprocess.run(["wrk", "-t1", "-c30", "-d1", f"http://127.0.0.1:{gate.port}/"], check=True, stdout=-3)
        last = curl(gate, "-o", "/dev/null", "-w", "%header{x-request-id}")
        gate.until(lambda: any(one["request_id"] == last for one in entries(log)), "its line in the new file")
        assert gate.end() == 0
    answered = sum(len(entries(path)) for path in (log, renamed))
    assert len({one["request_id"] for path in (log, renamed) for one in entries(path)}) == answered
    report = programs.command("replay", "--rule", "1/min burst 2", "--json", log)
    assert json.loads(report.out)["requests"] == len(entries(log))


def test_lines_on_standard_output_and_a_disk_that_is_full(tmp_path):
    with programs.origin() as origin:
        words = ["--origin", origin.url, "--rule", "9/s burst 9"]
        with programs.gate(tmp_path, *words, "--access-log", "-") as gate:
            assert gate.get("/x").status == 200
            gate.until(lambda: '"path":"/x"' in gate.out.read_text(), "line")
        with programs.gate(tmp_path, *words, "--access-log", "/dev/full") as gate:
            assert gate.statuses(3) == [200] * 3
            gate.wait_for("access log /dev/full: No space left on device; lines are dropped")
            gate.until(lambda: "headgate_access_log_dropped_total 3.0" in gate.admin("/metrics"), "count")
    assert programs.refused(tmp_path, *("serve", *words, "--access-log", "/")) == (
        2, "headgate: log.access: '/': Is a directory; name a file that can be written\n",
    )  # fmt: skip
