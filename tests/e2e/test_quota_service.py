"""`headgate master --rlqs` with a client of gRPC in place of an Envoy, and with gatekeepers on the bus."""

import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import grpc
import pytest
import zmq

from headgate.limit.messages import decode_control
from tests.e2e import programs
from tests.unit.rlqs.envoys import bucket_id, decode_actions, encode_report

METHOD = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas"


class QuotaClient:
    """One stream to a quota service."""

    def __init__(self, address):
        self._channel = grpc.insecure_channel(address)
        self._requests = []
        self._closed = False
        self._answers = self._channel.stream_stream(METHOD)(self._read())

    def _read(self):
        while not self._closed:
            if self._requests:
                yield self._requests.pop(0)
            time.sleep(0.005)

    def report(self, identifier, allowed, denied=0, domain=b"api"):
        """Send a report of one bucket."""
        self._requests.append(encode_report(domain, [(bucket_id(identifier), 0, allowed, denied)]))

    def answer(self):
        """Return the kind and the numbers of the next action."""
        ((_, kind, numbers),) = decode_actions(next(self._answers))
        return kind, numbers

    def close(self):
        """Close the connection."""
        self._closed = True
        self._channel.close()


@contextmanager
def served(folder, *words):
    """Run a master with a quota service; give it, and a client."""
    with programs.headgate(folder, "master", "--listen", "127.0.0.1:0", "--rlqs", "127.0.0.1:0", *words) as master:
        client = QuotaClient(master.ready["rlqs"])
        try:
            yield master, client
        finally:
            client.close()


@contextmanager
def subscribed(master, topic=b"api\0"):
    """Subscribe to the controls of a master; give a function that returns the next."""
    context = zmq.Context()
    control = context.socket(zmq.SUB)
    control.setsockopt(zmq.RCVTIMEO, int(programs.PATIENCE * 1_000))
    control.connect(master.ready["control"])
    control.subscribe(topic)
    time.sleep(0.2)
    try:
        yield lambda: decode_control(control.recv_multipart())
    finally:
        context.destroy(linger=0)


def test_reports_hold_an_identifier_on_the_bus_too(tmp_path):
    with served(tmp_path, "--domain", "api=1/min burst 2", "--admin", "127.0.0.1:0") as (master, client):
        with subscribed(master) as next_control:
            client.report(b"c", 2)
            kind, numbers = client.answer()
            control = next_control()
        assert (kind, control.identifier) == ("deny", b"c")
        assert 0 <= numbers["ttl"] - (control.release - time.time()) < 2
        state = master.state()
        assert state["quotas"]["streams"] == state["quotas"]["buckets"] == 1
        assert master.totals("api") == (2, 0, 0)
        assert 'headgate_quota_reports_total{outcome="assigned"} 1.0' in master.admin("/metrics").splitlines()


def test_a_reload_applies_to_envoys(tmp_path):
    file = tmp_path / "master.toml"
    text = '[[domain]]\nname = "api"\nrules = ["1/min burst 1"]\nmode = "{}"\n'
    file.write_text(text.format("enforce"))
    with served(tmp_path, "--config", file) as (master, client):
        client.report(b"c", 1)
        assert client.answer()[0] == "deny"
        file.write_text(text.format("shadow"))
        master.process.send_signal(signal.SIGHUP)
        master.wait_for(r"master\.toml read again$")
        client.report(b"c", 0, 5)
        assert client.answer() == ("allow", {"ttl": 10})


def test_it_stops_while_an_envoy_is_connected(tmp_path):
    with served(tmp_path, "--domain", "api=10/s") as (master, client):
        client.report(b"c", 1)
        client.answer()
        assert master.end(signal.SIGTERM) == 0
        assert "Traceback" not in master.said()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--rlqs", "0.0.0.0:0"], "set insecure (--insecure) on a network that only Envoys reach"),
        (["--rlqs", "127.0.0.1"], "invalid address '127.0.0.1'"),
        (["--rlqs", "TAKEN"], "--rlqs: cannot listen at 127.0.0.1:"),
    ],
)
def test_an_address_that_is_refused(tmp_path, words, sentence):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = [word.replace("TAKEN", f"127.0.0.1:{taken.getsockname()[1]}") for word in words]
        ran = programs.command("master", "--listen", "127.0.0.1:0", "--domain", "a=1/s", *words, folder=tmp_path)
    assert ran.code == 2
    assert sentence in ran.err
    assert ran.err.count("\n") == 1


def test_beyond_loopback_it_is_a_warning_with_insecure(tmp_path):
    words = ["master", "--listen", "127.0.0.1:0", "--rlqs", "0.0.0.0:0", "--insecure", "--domain", "a=1/s"]
    with programs.headgate(tmp_path, *words) as master:
        assert master.ready
        assert "other machines can reach the quota service, which has no TLS" in master.said()


def test_the_extra_is_named_if_it_is_missing(tmp_path):
    code = (
        "import sys; sys.modules['grpc'] = None; from headgate.cli import main; "
        "main(['master', '--listen', '127.0.0.1:0', '--rlqs', '127.0.0.1:0', '--domain', 'a=1/s'])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert run.returncode == 2
    assert "pip install '.[envoy]'" in run.stderr
    assert run.stderr.count("\n") == 1
