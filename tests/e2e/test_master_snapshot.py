"""`headgate master --snapshot` stopped, killed and started again, spoken to over plain ZeroMQ sockets."""

import signal
import time

from headgate.link.batch import batch_topic, encode_batch
from tests.e2e import programs
from tests.e2e.bus_setup import PlainGatekeeper

LISTEN = ["master", "--listen", "127.0.0.1:0", "--domain", "api=10/h", "--domain", "probe=1/h"]


class Gatekeeper(PlainGatekeeper):
    """A gatekeeper for both domains."""

    def __init__(self, master):
        super().__init__(master.ready, b"api\0", b"probe\0")
        self.probes = 0

    def held(self):
        """Return the identifiers of `api` held by what was sent so far: that of a probe comes after them."""
        self.probes += 1
        probe = b"probe %d" % self.probes
        self.accept(probe, domain=b"probe\0")
        identifiers = set()
        while True:
            domain, _, identifier, _ = self.control.recv_multipart()
            if identifier == probe:
                return identifiers
            if domain == b"api\0":
                identifiers.add(identifier)


def test_restart_gives_no_new_budget(tmp_path):
    words = [*LISTEN, "--snapshot", tmp_path / "snapshot"]
    with programs.headgate(tmp_path, *words) as master:
        with Gatekeeper(master) as gatekeeper:
            gatekeeper.accept(*[b"\xff\0"] * 4, *[b"held"] * 10, domain=b"api\0")
            assert gatekeeper.held() == {b"held"}
        assert master.end() == 0
    assert (tmp_path / "snapshot").stat().st_mode & 0o777 == 0o600
    with programs.headgate(tmp_path, *words) as master:
        master.wait_for(r"^headgate: snapshot \S+: 3 histories restored, saved \d+ s ago$")
        with Gatekeeper(master) as gatekeeper:
            gatekeeper.accept(*[b"\xff\0"] * 5, domain=b"api\0")
            # The master may read the accounting before the subscription for which it repeats its holds.
            held = next(filter(None, (gatekeeper.held() for _ in range(1_000))), None)
            assert held == {b"held"}
            gatekeeper.accept(b"\xff\0", domain=b"api\0")
            assert gatekeeper.held() >= {b"\xff\0"}


def test_master_killed_while_it_writes_keeps_the_previous_snapshot(tmp_path):
    snapshot, new = tmp_path / "snapshot", tmp_path / ".snapshot.new"
    file = tmp_path / "master.toml"
    file.write_text(
        f'[master]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\nsnapshot = "{snapshot}"\n'
        'snapshot_interval = 0.1\n[[domain]]\nname = "api"\nrules = ["10/h"]\n'
    )
    count = 100 * 256
    with programs.headgate(tmp_path, "master", "--config", file) as master, Gatekeeper(master) as gatekeeper:
        now = int(time.time() * 1_000)
        for batch in range(100):
            records = [(0, b"%d" % (256 * batch + number), now, 0, b"") for number in range(256)]
            gatekeeper.accounting.send_multipart([batch_topic("api"), encode_batch(records)])
        state = master.until(lambda: [s for s in [master.state()] if s["identifiers"] == count], "histories")[0]
        saved = state["counters"]["snapshot_writes"]["saved"]
        master.until(
            lambda: master.state()["counters"]["snapshot_writes"]["saved"] > saved + 1, "snapshots of all of them"
        )
        deadline = time.monotonic() + programs.PATIENCE
        while not new.exists():
            assert time.monotonic() < deadline
        master.end(signal.SIGKILL)
    with programs.headgate(tmp_path, "master", "--config", file) as master:
        master.wait_for(rf"^headgate: snapshot \S+: {count} histories restored")
        assert master.ready
        assert master.end() == 0
    assert not new.exists()


def test_master_that_cannot_listen_leaves_the_snapshot_as_it_is(tmp_path):
    snapshot = tmp_path / "snapshot"
    snapshot.write_bytes(b"content")
    with programs.headgate(tmp_path, *LISTEN) as master:
        address = master.ready["address"].removeprefix("tcp://")
        words = ["--listen", address, "--domain", "a=1/s", "--snapshot", snapshot]
        code, said = programs.refused(tmp_path, "master", *words)
    assert code == 2
    assert address in said
    assert snapshot.read_bytes() == b"content"
