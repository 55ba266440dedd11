"""`headgate master --rlqs` with a client of gRPC in place of an Envoy, and with a gatekeeper on the bus."""

import signal
import time
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import grpc
import zmq

from headgate.limit.messages import decode_control
from headgate.runtime.prefetch_proxy_process import self_signed
from tests.e2e import programs
from tests.unit.rlqs.envoys import METHOD, bucket_id, decode_actions, encode_report


class QuotaClient:
    """One stream to a quota service."""

    def __init__(self, address, cert=None):
        credentials = grpc.ssl_channel_credentials(cert) if cert else None
        self._channel = grpc.secure_channel(address, credentials) if cert else grpc.insecure_channel(address)
        self._reports = SimpleQueue()
        self._answers = self._channel.stream_stream(METHOD)(iter(self._reports.get, None))

    def report(self, identifier, allowed, denied=0):
        """Send a report of one bucket."""
        self._reports.put(encode_report(b"api", [(bucket_id(identifier), 0, allowed, denied)]))

    def answer(self):
        """Return the kind and the numbers of the next action."""
        ((_, kind, numbers),) = decode_actions(next(self._answers))
        return kind, numbers

    def close(self):
        """Close the connection."""
        self._reports.put(None)
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


def test_reports_hold_an_identifier_on_the_bus_too(tmp_path):
    with served(tmp_path, "--domain", "api=1/min burst 2", "--admin", "127.0.0.1:0") as (master, client):
        with zmq.Context() as context, context.socket(zmq.SUB) as bus:
            bus.setsockopt(zmq.RCVTIMEO, int(programs.PATIENCE * 1_000))
            bus.connect(master.ready["control"])
            bus.subscribe(b"api\0")
            time.sleep(0.2)
            client.report(b"c", 2)
            kind, numbers = client.answer()
            control = decode_control(bus.recv_multipart())
        assert (kind, control.identifier) == ("deny", b"c")
        assert 0 <= numbers["ttl"] - (control.release - time.time()) < 2
        state = master.state()
        assert state["quotas"]["streams"] == state["quotas"]["buckets"] == 1
        assert master.totals("api") == (2, 0, 0)
        assert 'headgate_quota_reports_total{outcome="assigned"} 1.0' in master.admin("/metrics").splitlines()


def test_a_reload_applies_to_envoys_and_an_end_does_not_wait_for_them(tmp_path):
    file = tmp_path / "master.toml"
    text = '[[domain]]\nname = "api"\nrules = ["1/min burst 1"]\nmode = "{}"\n'
    file.write_text(text.format("enforce"))
    with served(tmp_path, "--config", file) as (master, client):
        client.report(b"c", 1)
        assert client.answer()[0] == "deny"
        file.write_text(text.format("shadow"))
        master.process.send_signal(signal.SIGHUP)
        master.wait_for(r"master\.toml read again; domains changed: api \(mode\); nothing was forgotten$")
        client.report(b"c", 0, 5)
        assert client.answer() == ("allow", {"ttl": 10})
        assert master.end(signal.SIGTERM) == 0
        assert "Traceback" not in master.said()


def test_an_address_that_other_machines_can_reach_is_refused(tmp_path):
    words = ("--listen", "127.0.0.1:0", "--rlqs", "0.0.0.0:0", "--domain", "a=1/s")
    ran = programs.command("master", *words, folder=tmp_path)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "set insecure (--insecure) on a network that only Envoys reach" in ran.err


def test_tls_beyond_loopback(tmp_path):
    words = ["master", "--listen", "127.0.0.1:0", "--rlqs", "0.0.0.0:0", "--domain", "api=1/h burst 1"]
    with (
        self_signed("127.0.0.1") as (cert, key),
        programs.headgate(tmp_path, *words, "--rlqs-cert", cert, "--rlqs-key", key) as master,
    ):
        client = QuotaClient(master.ready["rlqs"].replace("0.0.0.0", "127.0.0.1"), Path(cert).read_bytes())
        client.report(b"c", 2)
        assert client.answer()[0] == "deny"
        client.close()
        assert "which asks no Envoy for a certificate" in master.said()
