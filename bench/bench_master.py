"""A master on the bus against a loop over `recv_multipart` without logic, and batches against the document's frames.

Every run, the timed ones too, has to count each message and to publish exactly the holds that the core works out when
it is handed the same accounting directly; and the sender has to have waited for the receiver most of the time.
"""

import json
import subprocess
import sys
from functools import partial

from bench.bus_load import DOMAIN, MESSAGES, NOW, accountings
from bench.measure import Row, compare, verify
from headgate.limit import Master

_PATIENCE = 120.0


def seconds(receiver: str, way: str, expected: dict[str, float]) -> float:
    """Let one receiver read everything that is sent one way; give the seconds it took, its results being right."""
    program = [sys.executable, "-m"]
    with subprocess.Popen([*program, "bench.bus_receiver", receiver], stdout=subprocess.PIPE) as receiving:
        assert receiving.stdout is not None
        port = receiving.stdout.readline().decode().strip()
        with subprocess.Popen([*program, "bench.bus_load", way, port], stdout=subprocess.PIPE) as sending:
            result = json.loads(receiving.communicate(timeout=_PATIENCE)[0])
            sender = json.loads(sending.communicate(timeout=_PATIENCE)[0])
    verify(f"{receiver} has read all {MESSAGES} that were sent", right=result["count"] == MESSAGES)
    verify("the sender waited for the receiver", right=sender["computed"] < result["seconds"] / 2)
    if receiver == "master":
        verify("the master counts every verdict", right=result["accepted"] + result["rejected"] == MESSAGES)
        verify("the master holds whom it should, until when it should", right=result["holds"] == expected)
        verify("it published each hold", right=result["controls"] >= len(expected))
    else:
        verify("each message has six frames", right=result["frames"] == 6 * MESSAGES)
    return float(result["seconds"])


def run(rounds: int) -> list[Row]:
    """Give the two rows, in messages a second."""
    core = Master([DOMAIN])
    for accounting in accountings():
        core.account(accounting, NOW)
    expected = {control.identifier.decode(): control.release for control in core.holds(DOMAIN.name, now=NOW)}
    verify("some are held", right=len(expected) > 100)
    bare = partial(seconds, "bare", "frames", {})
    frames, batch = (partial(seconds, "master", way, expected) for way in ("frames", "batch"))
    rows = []
    for what, peer, slow, fast, target in (
        ("master, six-frame messages/s", "recv_multipart, no logic", bare, frames, 0.4),
        ("master, batched records/s", "the same, six-frame", frames, batch, 3.0),
    ):
        measured = compare(slow, fast, rounds=rounds)
        context = f"{MESSAGES / measured.peer / 1e3:.0f}k/s against {MESSAGES / measured.ours / 1e3:.0f}k/s"
        rows.append(Row(what, peer, measured.ratio, "≥", target, context))
    return rows
