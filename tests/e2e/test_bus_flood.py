"""A flood of identifiers at a master: it stays within its bound, and keeps every hold that is in force."""

import json
import time

import psutil
import pytest
import zmq

from headgate.link.batch import MAX_RECORDS, batch_topic, encode_batch
from tests.e2e import programs

HELD = 1_000
CONFIGURATION = """
[master]
listen = "127.0.0.1:0"
max_identifiers = {}
[[domain]]
name = "api"
rules = ["1/h burst 5"]
"""


def records(names):
    """Return batches with one accepted request of each of the identifiers `names`."""
    received = int(time.time() * 1_000)
    for start in range(0, len(names), MAX_RECORDS):
        part = names[start : start + MAX_RECORDS]
        yield [batch_topic("api"), encode_batch([(0, name, received, 0, b"") for name in part])]


def send_all(publisher, names):
    for message in records(names):
        publisher.send_multipart(message)


def counts(master):
    lines = master.out.read_text().splitlines()
    return json.loads(lines[-1]) if lines else {"accepted": 0}


def wait_for(master, total):
    """Wait until the master has counted all requests, as long as it makes progress."""
    before, deadline = -1, 0.0
    while (accepted := counts(master)["accepted"]) < total:
        if accepted > before:
            before, deadline = accepted, time.monotonic() + programs.PATIENCE
        assert time.monotonic() < deadline, counts(master)
        time.sleep(0.05)


def held_names(context, master):
    """Return the identifiers whose holds a gatekeeper receives that connects now."""
    control = context.socket(zmq.SUB)
    control.set_hwm(0)
    control.connect(master.ready["control"])
    control.subscribe(b"api\0")
    found, deadline = set(), time.monotonic() + programs.PATIENCE
    while len(found) < HELD and control.poll(max(0, deadline - time.monotonic()) * 1_000):
        found.add(control.recv_multipart()[2])
    control.close(linger=0)
    return found


@pytest.mark.parametrize(
    ("bound", "flood", "megabytes"),
    [
        pytest.param(10_000, 100_000, 150, id="small"),
        pytest.param(1_000_000, 2_000_000, 600, id="two million", marks=pytest.mark.deep),
    ],
)
def test_a_flood_of_identifiers_stays_within_the_bound_and_ends_no_hold(tmp_path, bound, flood, megabytes):
    file = tmp_path / "master.toml"
    file.write_text(CONFIGURATION.format(bound))
    with programs.headgate(tmp_path, "master", "--config", file, "--json") as master, zmq.Context() as context:
        publisher = context.socket(zmq.XPUB)
        publisher.set_hwm(100)
        publisher.setsockopt(zmq.XPUB_NODROP, 1)  # a full queue makes the sender wait
        publisher.connect(master.ready["address"])
        assert publisher.poll(programs.PATIENCE * 1_000)
        names = [b"held %d" % number for number in range(HELD)]
        for _ in range(5):
            send_all(publisher, names)
        start, process = time.monotonic(), psutil.Process(master.process.pid)
        for first in range(0, flood, 10_000):
            send_all(publisher, [b"%d" % number for number in range(first, first + 10_000)])
        wait_for(master, 5 * HELD + flood)
        seconds, times = time.monotonic() - start, process.cpu_times()
        resident = process.memory_info().rss / 1e6
        print(f"{flood} identifiers in {seconds:.1f} s, CPU {times.user + times.system:.1f} s, {resident:.0f} MB")
        assert counts(master)["identifiers"] == bound
        assert held_names(context, master) == set(names)
        assert resident < megabytes
        context.destroy(linger=0)
