"""`headgate master` as a process, spoken to over plain ZeroMQ sockets and by gates."""

import json
import signal
import time

import pytest
import zmq

from tests.e2e import programs


@pytest.fixture
def join():
    """Return a function that makes a gatekeeper's two sockets, connected to the master."""
    context, sockets = zmq.Context(), []

    def joined(master, domain=b"default\0"):
        accounting, control = context.socket(zmq.XPUB), context.socket(zmq.SUB)
        sockets.extend((accounting, control))
        for sock in (accounting, control):
            sock.setsockopt(zmq.RCVTIMEO, int(programs.PATIENCE * 1_000))
        accounting.connect(master.ready["address"])
        control.connect(master.ready["control"])
        control.subscribe(domain)
        assert accounting.recv()[:1] == b"\1"
        return accounting, control

    yield joined
    for sock in sockets:
        sock.close(linger=0)
    context.term()


def accepted(domain=b"default\0", identifier=b"a"):
    return [domain, b"ACCEPTED", identifier, b"%d" % int(time.time() * 1_000), b"", b""]


def test_ready_line_and_control_address(tmp_path):
    with programs.headgate(tmp_path, "master", "--listen", "127.0.0.1:0", "--domain", "default=1/s") as master:
        accounting, control = (int(master.ready[name].rpartition(":")[2]) for name in ("address", "control"))
        assert control == accounting + 1
        assert master.end() == 0


def test_json_counts_every_second(tmp_path, join):
    words = ["master", "--listen", "127.0.0.1:0", "--domain", "default=1/s", "--domain", "other=1/s", "--json"]
    with programs.headgate(tmp_path, *words) as master:
        accounting, _ = join(master)
        accounting.send_multipart(accepted())
        accounting.send_multipart(accepted(domain=b"nobodys\0"))

        def counted():
            lines = [json.loads(line) for line in master.out.read_text().splitlines()]
            return [line for line in lines if line["accepted"] and line["unknown"]]

        line = master.until(counted, "counts")[0]
        assert (line["accepted"], line["delayed"], line["rejected"], line["unknown"]) == (1, 0, 0, 1)
        assert line["domains"]["default"] == {"accepted": 1, "delayed": 0, "rejected": 0}
        assert line["domains"]["other"]["accepted"] == 0


def test_admin_listener(tmp_path, join):
    words = ["master", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--domain", "default=1/min burst 1"]
    with programs.headgate(tmp_path, *words) as master:
        accounting, control = join(master)
        accounting.send_multipart(accepted())
        assert control.recv_multipart()[1] == b"DELAY_UNTIL"
        assert master.admin("/livez") == "alive\n"
        assert master.admin("/readyz") == "ready\n"
        assert "headgate_bus_accounted_total 1.0" in master.admin("/metrics").splitlines()
        state = master.state()
        assert master.totals() == (1, 0, 0)
        assert state["domains"][0]["holds"] == 1
        assert state["identifiers"] == 1
        assert state["store"] == "memory"


def test_unknown_domain_is_one_line_without_control_characters(tmp_path, join):
    words = ["master", "--listen", "127.0.0.1:0", "--domain", "default=1/s"]
    with programs.headgate(tmp_path, *words) as master:
        accounting, _ = join(master)
        for _ in range(3):
            accounting.send_multipart(accepted(domain=b"\x1b[2Jother\0"))
        (line,) = master.wait_for(r"^headgate: warning: .*$")[0].splitlines()
        assert line.startswith(r"headgate: warning: gatekeepers use the domain '\x1b[2Jother'")
        accounting.send_multipart(accepted(domain=b"another\0"))
        master.wait_for(r"'another'")
        assert master.said().count("warning") == 2


def test_sighup_reloads_rules_on_the_same_sockets(tmp_path, join):
    file = tmp_path / "master.toml"
    text = '[master]\nlisten = "127.0.0.1:0"\n[[domain]]\nname = "default"\nrules = ["1/min burst {}"]\n'
    file.write_text(text.format(100))
    with programs.headgate(tmp_path, "master", "--config", file) as master:
        accounting, control = join(master)
        file.write_text(text.format(1) + '[[domain]]\nname = "new"\nrules = ["1/min burst 1"]\n')
        master.process.send_signal(signal.SIGHUP)
        master.wait_for(
            r"master\.toml read again; domains changed: default \(rules\), new \(added\); nothing was forgotten$"
        )
        control.subscribe(b"new\0")
        time.sleep(0.2)
        accounting.send_multipart(accepted())
        assert control.recv_multipart()[0] == b"default\0"
        accounting.send_multipart(accepted(domain=b"new\0"))
        assert control.recv_multipart()[0] == b"new\0"
        file.write_text("[[domain]]\n")
        master.process.send_signal(signal.SIGHUP)
        assert "stays as it is" in master.wait_for(r"^headgate: .*domain\[0\].*$")[0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_stops_it_cleanly(tmp_path, number):
    with programs.headgate(tmp_path, "master", "--listen", "127.0.0.1:0", "--domain", "a=1/s") as master:
        assert master.ready
        assert master.end(number) == 0
        assert "Traceback" not in master.said()
