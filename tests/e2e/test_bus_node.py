"""The bus against peers in Node.js that behave on the wire as the original implementation does."""

import json
import os
import subprocess
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

import pytest
import zmq

from headgate.link.sockets import bind_pair
from headgate.release import Status
from tests import servers
from tests.e2e import programs
from tests.e2e.bus_setup import Gate, running_master, until

pytestmark = pytest.mark.needs("node-zeromq")
SCRIPTS = Path(__file__).parent / "node"
PATIENCE = 15.0


@contextmanager
def node(script, *arguments):
    """Run a script with Node.js; give the queue of the lines it prints."""
    command = [servers.find_program("node"), SCRIPTS / script, servers.NODE_MODULES / "zeromq", *arguments]
    process = subprocess.Popen(
        [str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ
    )
    lines = Queue()
    reading = threading.Thread(target=lambda: [lines.put(line) for line in process.stdout])
    reading.start()
    try:
        yield lines
    finally:
        process.kill()
        process.wait()
        reading.join()
        for pipe in (process.stdin, process.stdout):
            pipe.close()


def control_of(address):
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + 1}"


def free_address():
    """Give an address whose port and the next one are free, below those that the system gives to other tests."""
    with zmq.Context() as context, context.socket(zmq.SUB) as accounting, context.socket(zmq.PUB) as control:
        return bind_pair(accounting, control, f"tcp://127.0.0.1:{servers.free_port()}").accounting


def test_a_node_gatekeeper_obeys_our_master():
    """Integer milliseconds, four frames: what the original reads."""
    with (
        running_master("tcp://127.0.0.1:0", "api=1/min burst 5") as master,
        node("gatekeeper.mjs", master.address, control_of(master.address), "api", "192.0.2.1") as lines,
    ):
        control = json.loads(lines.get(timeout=PATIENCE))
        counts = master.counts()
    assert (control["topic"], control["command"], control["name"]) == ("api\0", "DELAY_UNTIL", "192.0.2.1")
    assert len(control["rest"]) == 1
    assert control["rest"][0].isdigit()
    assert time.time() < control["until"] / 1_000 < time.time() + 61
    assert counts["accepted"] >= 5
    assert counts["dropped"]["malformed"] == counts["unknown"] == 0


async def test_our_gatekeeper_obeys_a_node_master(run):
    """It receives frames, not batches, and reads each as the original does."""

    address = free_address()
    with node("master.mjs", address, control_of(address), "5") as lines:
        assert lines.get(timeout=PATIENCE) == "ready\n"
        async with Gate(address) as gate:
            await until(lambda: gate.link.has_master, PATIENCE)
            assert gate.admit(times=5) == [Status.ACCEPTED] * 5
            await until(gate.holds, PATIENCE)
            assert gate.admit() == [Status.REJECTED]
        messages = [json.loads(lines.get(timeout=PATIENCE)) for _ in range(5)]
        assert {message["size"] for message in messages} == {6}
        assert {(message["topic"], message["status"], message["name"]) for message in messages} == {
            ("api\0", "ACCEPTED", "id")
        }
        assert all(message["received"].isdigit() and message["delayed"] == "" for message in messages)
        assert gate.link.counters.batches == 0


def test_peers_in_node_work_through_a_router_between_them(tmp_path):
    address = free_address()
    with (
        node("master.mjs", address, control_of(address), "5") as master,
        programs.headgate(tmp_path, "router", "--listen", "127.0.0.1:0", "--master", address) as router,
        node("gatekeeper.mjs", *map(router.ready.get, ("address", "control")), "api", "192.0.2.1") as gatekeeper,
    ):
        assert master.get(timeout=PATIENCE) == "ready\n"
        control = json.loads(gatekeeper.get(timeout=PATIENCE))
    assert (control["command"], control["name"]) == ("DELAY_UNTIL", "192.0.2.1")
