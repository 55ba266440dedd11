"""`headgate master` as a process, spoken to over plain ZeroMQ sockets."""

import signal
import time

import pytest

from tests.e2e import programs
from tests.e2e.bus_setup import PlainGatekeeper

LISTEN = ("master", "--listen", "127.0.0.1:0")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_master_counts_and_publishes_until_it_is_stopped(tmp_path, number):
    words = ("--admin", "127.0.0.1:0", "--domain", "default=1/min burst 1", "--domain", "other=1/s", "--json")
    with programs.headgate(tmp_path, *LISTEN, *words) as master:
        accounting, control = (int(master.ready[name].rpartition(":")[2]) for name in ("address", "control"))
        assert control == accounting + 1
        with PlainGatekeeper(master.ready) as gatekeeper:
            gatekeeper.accept(b"a", domain=b"nobodys\0")
            gatekeeper.accept(b"a")
            assert gatekeeper.control.recv_multipart()[1] == b"DELAY_UNTIL"
        assert [master.admin(path) for path in ("/livez", "/readyz")] == ["alive\n", "ready\n"]
        assert "headgate_bus_accounted_total 2.0" in master.admin("/metrics").splitlines()
        state = master.state()
        assert master.totals() == (1, 0, 0)
        assert (state["domains"][0]["holds"], state["identifiers"], state["store"]) == (1, 1, "memory")

        master.until(lambda: master.counts().get("accepted"), "counts")
        line = master.counts()
        assert (line["accepted"], line["delayed"], line["rejected"], line["unknown"]) == (1, 0, 0, 1)
        assert line["domains"]["default"] == {"accepted": 1, "delayed": 0, "rejected": 0}
        assert line["domains"]["other"]["accepted"] == 0
        assert master.end(number) == 0
        assert "Traceback" not in master.said()


def test_unknown_domain_is_one_line_without_control_characters(tmp_path):
    with (
        programs.headgate(tmp_path, *LISTEN, "--domain", "default=1/s") as master,
        PlainGatekeeper(master.ready) as gatekeeper,
    ):
        gatekeeper.accept(*[b"a"] * 3, domain=b"\x1b[2Jother\0")
        (line,) = master.wait_for(r"^headgate: warning: .*$")[0].splitlines()
        assert line.startswith(r"headgate: warning: gatekeepers use the domain '\x1b[2Jother'")
        gatekeeper.accept(b"a", domain=b"another\0")
        master.wait_for(r"'another'")
        assert master.said().count("warning") == 2


def test_sighup_reloads_rules_on_the_same_sockets(tmp_path):
    file = tmp_path / "master.toml"
    text = '[master]\nlisten = "127.0.0.1:0"\n[[domain]]\nname = "default"\nrules = ["1/min burst {}"]\n'
    file.write_text(text.format(100))
    with programs.headgate(tmp_path, "master", "--config", file) as master, PlainGatekeeper(master.ready) as gatekeeper:
        file.write_text(text.format(1) + '[[domain]]\nname = "new"\nrules = ["1/min burst 1"]\n')
        master.process.send_signal(signal.SIGHUP)
        master.wait_for(
            r"master\.toml read again; domains changed: default \(rules\), new \(added\); nothing was forgotten$"
        )
        gatekeeper.control.subscribe(b"new\0")
        time.sleep(0.2)
        for domain in (b"default\0", b"new\0"):
            gatekeeper.accept(b"a", domain=domain)
            assert gatekeeper.control.recv_multipart()[0] == domain
        file.write_text("[[domain]]\n")
        master.process.send_signal(signal.SIGHUP)
        assert "stays as it is" in master.wait_for(r"^headgate: .*domain\[0\].*$")[0]
