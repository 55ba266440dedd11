"""Masters that share a store: real servers, real masters, and plain ZeroMQ sockets as gatekeepers."""

import signal
import time
from contextlib import ExitStack

import pytest

from tests import servers
from tests.e2e import programs
from tests.e2e.bus_setup import PlainGatekeeper

pytestmark = pytest.mark.needs("redis-server")

IDENTIFIER = b"al;i}c{e%"


class Peer(PlainGatekeeper):
    """A gatekeeper of one master."""

    def __init__(self, master):
        super().__init__(master.ready)
        self.master = master

    def held(self):
        """Wait for the next control; return its identifier and release in seconds."""
        _, _, identifier, release = self.control.recv_multipart()
        return identifier, int(release) / 1_000

    def until(self, **counts):
        """Wait until each count of the store has reached a value."""

        def reached():
            found = self.master.counts()
            store = {**found["store_records"], "learned": found["store_learned"]} if found else {}
            return bool(found) and all(store[name] >= value for name, value in counts.items())

        self.master.until(reached, str(counts))


@pytest.fixture
def start(tmp_path):
    """Return a function that starts a master with a store, and returns a peer of it."""
    with ExitStack() as stack:

        def started(store, *words, rules="6/h burst 4"):
            folder = tmp_path / str(len(list(tmp_path.iterdir())))
            folder.mkdir()
            words = ["--listen", "127.0.0.1:0", "--domain", f"default={rules}", "--store", store, "--json", *words]
            master = stack.enter_context(programs.headgate(folder, "master", *words))
            master.wait_for(r"store .*: connected$")
            return stack.enter_context(Peer(master))

        yield started


@pytest.fixture
def server(tmp_path):
    (tmp_path / "redis").mkdir()
    with servers.redis(tmp_path / "redis") as running:
        yield running


def url(server):
    return f"redis://127.0.0.1:{server.port}"


def test_any_master_may_take_any_message(server, start):
    peers = [start(url(server)) for _ in range(2)]
    for index in range(5):
        peers[index % 2].accept(IDENTIFIER)
        peers[index % 2].until(shared=index // 2 + 1)
    identifier, release = peers[0].held()
    assert identifier == IDENTIFIER
    assert release > time.time() + 300


@pytest.mark.parametrize("workers", [1, 2])
def test_gates_with_masters_of_their_own_share_a_rule(server, tmp_path, workers):
    """A gate learns from the store with its own next request, so each admits at most one more."""
    file = tmp_path / "gate.toml"
    with programs.origin() as origin, ExitStack() as stack:
        file.write_text(
            f"""
            [gate]
            origin = "{origin.url}"
            listen = "127.0.0.1:0"
            admin = "127.0.0.1:0"
            workers = {workers}
            max_delay = 0
            [master]
            store = "{url(server)}"
            [[domain]]
            name = "default"
            rules = ["6/h burst 6"]
            """
        )
        gates = [stack.enter_context(programs.headgate(tmp_path, "serve", "--config", file)) for _ in range(2)]
        for gate in gates:
            gate.wait_for(r"^headgate: store 127\.0\.0\.1:\d+: connected$")
        first, second = gates

        def shared(gate, count):
            gate.until(lambda: gate.state()["counters"]["store_records"]["shared"] >= count, f"{count} shared")

        assert first.statuses(4) == [200] * 4
        shared(first, 4)
        for count in (1, 2):
            assert second.statuses(1) == [200]
            shared(second, count)
        second.until(lambda: second.statuses(1) == [503], "hold")
        assert first.statuses(1) == [200]
        first.until(lambda: first.statuses(1) == [503], "hold")
        shared(first, 5)
        assert "headgate_store_records_total{" in first.admin("/metrics")


def test_reload_keeps_the_store_and_what_is_shared(server, tmp_path, start):
    file = tmp_path / "master.toml"
    text = '[master]\nlisten = "127.0.0.1:0"\nstore = "{}"\n[[domain]]\nname = "default"\nrules = ["{}"]\n'
    file.write_text(text.format(url(server), "6/h burst 4"))
    with programs.headgate(tmp_path, "master", "--config", file, "--json") as master:
        master.wait_for(r"store .*: connected$")
        peer, other = Peer(master), start(url(server))
        other.accept(*[IDENTIFIER] * 3)
        other.until(shared=3)
        file.write_text(text.format("memory", "6/h burst 4"))
        master.process.send_signal(signal.SIGHUP)
        master.wait_for(r"master\.toml read again; a restart is needed for .*master\.store")
        with peer:
            peer.accept(IDENTIFIER)
            assert peer.held()[0] == IDENTIFIER
            peer.until(shared=1, learned=1)
