"""Gates and a master with CURVE keys: who shares holds, who is refused, and what both sides report.

The programs are real; the keys are those that `headgate keys new` creates.
"""

import re
import signal

import pytest

from headgate.link.curve import read_public_key
from tests.e2e import programs

MASTER = ("master", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--domain", "default=1/min burst 2", "--json")


@pytest.fixture
def origin():
    with programs.origin() as running:
        yield running


class Keys:
    """The key files of one machine, and a line for a list of allowed keys."""

    def __init__(self, folder, name):
        ran = programs.command("keys", "new", "-o", name, folder=folder)
        assert (ran.code, ran.err) == (0, "")
        self.secret, self.public = folder / name / "secret.key", folder / name / "public.key"
        self.key = read_public_key(str(self.public)).decode()


@pytest.fixture
def keys(tmp_path):
    """Return a function that creates the keys of a machine."""
    return lambda name: Keys(tmp_path, name)


@pytest.fixture
def allowed(tmp_path):
    """Return the file of allowed keys."""
    return tmp_path / "allowed.keys"


def secured(master, allowed):
    return (*MASTER, "--curve-key", master.secret, "--curve-allow", allowed)


def gate(folder, origin, master, *options):
    return programs.gate(folder, "--origin", origin.url, "--master", master.ready["address"], *options)


def has_counted(program, **least):
    """Wait until a master has counted at least so many."""
    return program.until(
        lambda: (found := program.counts()) and all(found.get(name, -1) >= least[name] for name in least) and found,
        str(least),
    )


def holds(program, status=503):
    """Wait until the gate rejects a request."""
    return program.until(lambda: program.get().status == status, "rejection")


def test_gates_with_allowed_keys_share_the_holds_of_a_master(tmp_path, origin, keys, allowed):
    server, one, other = keys("master"), keys("one"), keys("other")
    allowed.write_text(f"# gates\n{one.key} one\n{other.key}\n")
    with programs.headgate(tmp_path, *secured(server, allowed)) as master:
        options = ("--max-delay", "0", "--curve-server")
        with (
            gate(tmp_path, origin, master, *options, server.public, "--curve-key", one.secret) as first,
            gate(tmp_path, origin, master, *options, server.key, "--curve-key", other.secret) as second,
        ):
            assert first.statuses(2) == [200, 200]
            holds(first)
            holds(second)
            counted = has_counted(master, accepted=2)
            assert counted["refused_keys"] == counted["failed_handshakes"] == 0
            assert "handshake" not in first.said() + second.said() + master.said()
            gates = {name: master.metrics()[f"headgate_master_gates {name}"] for name in ("one", other.key)}
            assert gates == {"one": 1, other.key: 1}
            first.process.kill()
            master.until(lambda: master.metrics()["headgate_master_gates one"] == 0, "end of a gate")


def test_a_gate_with_another_key_limits_nothing_says_so_once_and_disturbs_no_other(tmp_path, origin, keys, allowed):
    server, good, bad = keys("master"), keys("good"), keys("bad")
    allowed.write_text(good.key)
    with programs.headgate(tmp_path, *secured(server, allowed)) as master:
        options = ("--max-delay", "0", "--curve-server", server.public, "--curve-key")
        with (
            gate(tmp_path, origin, master, *options, good.secret) as admitted,
            gate(tmp_path, origin, master, *options, bad.secret) as refused,
        ):
            assert admitted.statuses(2) == [200, 200]
            holds(admitted)
            assert refused.statuses(5) == [200] * 5
            # Both sockets, and again when the gate connects again.
            has_counted(master, refused_keys=4)
            assert refused.said().count(f"the master refuses the public key {bad.key}; add it") == 1
            assert f"refused a peer at 127.0.0.1: its public key {bad.key} is not in the list" in master.said()
            assert master.said().count("refused a peer") == 1
            assert refused.state()["counters"]["link_failed_handshakes"] >= 2
            assert "headgate_bus_refused_keys_total" in master.admin("/metrics")
            allowed.write_text("")
            master.process.send_signal(signal.SIGHUP)
            master.wait_for(r"allowed\.keys: no key in it.*stays as it is$")
            allowed.write_text(f"{good.key}\n{bad.key}\n")
            master.process.send_signal(signal.SIGHUP)
            master.wait_for(r"allowed\.keys read again$")
            holds(refused)


def test_a_gate_reads_its_key_again(tmp_path, origin, keys, allowed):
    server, good, bad = keys("master"), keys("good"), keys("bad")
    allowed.write_text(good.key)
    with programs.headgate(tmp_path, *secured(server, allowed)) as master:
        options = ("--max-delay", "0", "--curve-server", server.public, "--curve-key", bad.secret)
        with gate(tmp_path, origin, master, *options) as running:
            assert running.statuses(5) == [200] * 5
            bad.secret.write_bytes(good.secret.read_bytes())
            running.process.send_signal(signal.SIGHUP)
            running.wait_for("a new gate in this process has taken over, because of the keys for the master$")
            holds(running)


def test_a_key_may_be_limited_to_domains_and_a_removed_key_loses_its_connection(tmp_path, origin, keys, allowed):
    server, good, limited = keys("master"), keys("good"), keys("limited")
    allowed.write_text(f"{good.key} good\n{limited.key} limited other\n")
    with programs.headgate(tmp_path, *secured(server, allowed), "--domain", "other=1/min burst 2") as master:
        options = ("--max-delay", "0", "--curve-server", server.public, "--curve-key")
        with (
            gate(tmp_path, origin, master, *options, good.secret) as first,
            gate(tmp_path, origin, master, *options, limited.secret) as second,
        ):
            second.until(lambda: second.statuses(1) and master.counts().get("dropped", {}).get("not_permitted"), "drop")
            master.wait_for("the key limited uses the domain 'default', which curve_allow does not list for it$")
            assert first.statuses(2) == [200, 200]
            first.until(lambda: first.state()["domains"][0]["held"], "hold")  # a request before it would count
            assert has_counted(master, accepted=2)["accepted"] == 2
            assert second.statuses(2) == [200, 200]  # the hold did not arrive
            assert second.state()["counters"]["link_controls"] == 0
            allowed.write_text(f"{good.key} good\n{limited.key} limited other default\n")
            master.process.send_signal(signal.SIGHUP)
            holds(second)  # also without a new subscription, once the connection is made again
            allowed.write_text(f"{good.key}\n")
            master.process.send_signal(signal.SIGHUP)
            second.wait_for("the master refuses the public key")
            first.until(lambda: first.state()["counters"]["link_controls"] > 1, "holds on a new connection")


def test_a_router_with_keys_for_both_sides(tmp_path, origin, keys, allowed):
    """The router is a server to gates, and a client of its masters."""
    server, middle, one = keys("master"), keys("router"), keys("gate")
    gates = tmp_path / "gates.keys"
    allowed.write_text(middle.key)
    gates.write_text(one.key)
    with programs.headgate(tmp_path, *secured(server, allowed)) as master:
        words = ["router", "--listen", "127.0.0.1:0", "--master", master.ready["address"].removeprefix("tcp://")]
        words += ["--curve-key", middle.secret, "--curve-allow", gates, "--curve-server", server.public]
        with programs.headgate(tmp_path, *words) as router:
            options = ("--max-delay", "0", "--curve-server", middle.public, "--curve-key")
            with gate(tmp_path, origin, router, *options, one.secret) as admitted:
                holds(admitted)
                with gate(tmp_path, origin, router, *options, server.secret) as refused:
                    assert refused.statuses(5) == [200] * 5
                    refused.wait_for("the master refuses the public key")
                router.wait_for(f"refused a peer at 127.0.0.1: its public key {re.escape(server.key)} is not in")
            counted = has_counted(master, refused_keys=0)
            assert counted["refused_keys"] == counted["failed_handshakes"] == 0
