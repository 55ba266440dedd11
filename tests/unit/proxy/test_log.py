"""Lines about refusals and traffic."""

import asyncio
import json

import pytest

from headgate.proxy.connect import ConnectRequest
from headgate.proxy.counters import Counts
from headgate.proxy.log import DecisionLog, TrafficSummary
from headgate.proxy.refusal import Refusal

SECRET = "c2VjcmV0"
ORIGIN = "https://www.example.org"
ASKED = ConnectRequest(
    authority="www.example.org:443",
    fields=[("proxy-authorization", f"Bearer {SECRET}"), ("chrome-tunnel", f"key={SECRET}")],
    peer=("192.0.2.7", 50_000),
)


@pytest.mark.parametrize(("clients", "named"), [(False, {}), (True, {"client": "192.0.2.7"})])
async def test_refusals_are_one_line_per_second_and_reason(clients: bool, named: dict[str, str]) -> None:
    lines: list[str] = []
    log = DecisionLog(lines.append, clients=clients, clock=lambda: 1.23456)
    for number in range(2000):
        log.refused(ASKED, ORIGIN if number == 0 else None, Refusal("port", f"port {25 + number} is not open"))
        log.refused(ConnectRequest(authority="", peer=ASKED.peer), None, Refusal("malformed", "x" * 9000))
    assert lines == []
    async with asyncio.timeout(20):
        while not lines:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
    assert SECRET not in "".join(lines)
    assert [json.loads(line) for line in lines] == [
        {
            "event": "refused", "time": 1.235, "origin": ORIGIN, "reason": "port", "status": 403, "count": 2000,
            "why": "port 25 is not open", **named,
        },
        {
            "event": "refused", "time": 1.235, "origin": None, "reason": "malformed", "status": 400, "count": 2000,
            "why": "x" * 1024, **named,
        },
    ]  # fmt: skip
    log.refused(ASKED, ORIGIN, Refusal("port"))
    log.flush()
    assert [json.loads(line)["count"] for line in lines] == [2000, 2000, 1]


def test_traffic_is_summarised() -> None:
    counts, add_count = Counts(), TrafficSummary(now=100.0)
    assert add_count.line(counts, now=160.0) is None
    counts.connects.update(accepted=2, port=1)
    counts.tunnels = 2
    assert json.loads(add_count.line(counts, now=220.0) or "") == {
        "event": "tunnels", "time": 220.0, "accepted": 2, "open": 2, "received": 0, "sent": 0, "seconds": 60.0,
    }  # fmt: skip
    assert add_count.line(counts, now=280.0) is None
    counts.received, counts.sent, counts.tunnels = 7, 3, 0
    counts.connects["accepted"] += 1
    line = json.loads(add_count.line(counts, now=290.5) or "")
    assert (line["accepted"], line["open"], line["received"], line["sent"], line["seconds"]) == (1, 0, 7, 3, 10.5)
    counts.sent += 1
    assert json.loads(add_count.line(counts, now=200.0) or "")["seconds"] == 0.0  # the clock was set back
