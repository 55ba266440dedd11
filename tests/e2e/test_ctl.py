"""`headgate ctl` against real gates and masters: one process and three, an embedded master and one elsewhere."""

import json
import re
import signal
from pathlib import Path

import pytest

from tests.e2e import programs

RULES = '[admin]\ncontrol = true\n[gate]\ntrusted_proxies = ["127.0.0.1"]\nmax_delay = 0\n'
DOMAIN = '[[domain]]\nname = "default"\nrules = ["1/min burst 2"]\n'


def configured(folder: Path, text: str) -> Path:
    file = folder / f"{len(list(folder.iterdir()))}.toml"
    file.write_text(text)
    return file


def ctl(program, *words):
    """Run a command; return its exit code and its answer."""
    ran = programs.command("ctl", *words, "--json", "--admin", program.ready["admin"].removeprefix("http://"))
    return ran.code, json.loads(ran.out) if ran.code == 0 else ran.err


def statuses(gate, client, count=6):
    return gate.statuses(count, X_Forwarded_For=client)


def rejected(gate, client):
    """Ask until the client is rejected by each worker that it meets; return the last response."""
    gate.until(lambda: set(statuses(gate, client)) == {503}, "hold")
    return gate.get(X_Forwarded_For=client)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_gate_explains_holds_releases_changes_a_mode_and_drains(tmp_path, workers):
    file = configured(tmp_path, RULES + DOMAIN)
    words = ["--config", file, "--workers", workers]
    with programs.origin() as origin, programs.gate(tmp_path, "--origin", origin.url, *words) as gate:
        request = rejected(gate, "192.0.2.1").getheader("X-Request-Id")
        _, answer = gate.until(lambda: (found := ctl(gate, "why", request))[0] == 0 and found, "record")
        assert answer["requests"][0]["status"] == 503
        cause = "in domain 'default', the client is held by the rule 1/min burst 2, applied by the embedded master"
        assert answer["requests"][0]["cause"] == cause
        _, answer = ctl(gate, "why", "--identifier", "192.0.2.1")
        assert {one["status"] for one in answer["requests"]} >= {503}
        assert [one["domain"] for one in answer["held"]] == ["default"]
        assert ctl(gate, "holds")[1]["domains"][0]["longest"][0]["identifier"] == "192.0.2.1"
        assert ctl(gate, "release", "192.0.2.1")[0] == 0
        assert statuses(gate, "192.0.2.1", 2) == [200, 200]
        assert ctl(gate, "hold", "192.0.2.2", "7200")[0] == 0
        assert set(statuses(gate, "192.0.2.2")) == {503}
        assert "an operator" in str(ctl(gate, "why", "--identifier", "192.0.2.2")[1]["held"])
        assert ctl(gate, "mode", "default", "shadow")[0] == 0
        gate.until(lambda: set(statuses(gate, "192.0.2.3")) == {200}, "shadow mode")
        gate.process.send_signal(signal.SIGHUP)
        gate.until(lambda: 503 in statuses(gate, "192.0.2.4"), "mode of the file")
        assert ctl(gate, "why", "\x1b")[0] == 1
        assert ctl(gate, "mode", "\x1b", "shadow")[0] == 2
        assert ctl(gate, "drain")[0] == 0
        assert gate.process.wait(programs.PATIENCE) == 0
        acts = [re.split(", (?:holds|domains|by)", line)[0] for line in gate.said().splitlines() if "ctl:" in line]
    assert acts == [
        "headgate: ctl: release 192.0.2.1",
        "headgate: ctl: hold 192.0.2.2 for 7200 s",
        "headgate: ctl: mode 'default' shadow",
        "headgate: ctl: drain",
    ]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_master_elsewhere_holds_at_its_gates_and_is_released_first(tmp_path, workers):
    file, token = configured(tmp_path, RULES), tmp_path / "token"
    token.write_text("0123456789abcdef")
    central = configured(tmp_path, f"[admin]\ncontrol = true\ntoken = '{token}'\n{DOMAIN}")
    master_words = ["master", "--config", central, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    with programs.origin() as origin, programs.headgate(tmp_path, *master_words) as master:
        address = master.ready["address"].removeprefix("tcp://")
        words = ["--origin", origin.url, "--master", address, "--config", file, "--workers", workers]
        with programs.gate(tmp_path, *words) as gate:
            rejected(gate, "192.0.2.1")
            _, answer = ctl(gate, "why", "--identifier", "192.0.2.1")
            assert f"a rule that this process does not know, applied by the master {address}" in str(answer["held"])
            assert "the token is missing or wrong" in ctl(master, "holds")[1]
            _, answer = ctl(master, "why", "--identifier", "192.0.2.1", "--token", token)
            assert answer["held"][0]["by"] == "the rule 1/min burst 2"
            assert "release the client there, too" in ctl(master, "release", "192.0.2.1", "--token", token)[1]["done"]
            assert f"release it first at the master {address}" in ctl(gate, "release", "192.0.2.1")[1]["done"]
            assert statuses(gate, "192.0.2.1", 1) == [200]
            assert ctl(master, "hold", "192.0.2.2", "600", "--token", token)[0] == 0
            gate.until(lambda: set(statuses(gate, "192.0.2.2")) == {503}, "hold of the master")
            assert f"set the mode at {address}" in ctl(gate, "mode", "default", "shadow")[1]
            assert ctl(master, "mode", "default", "shadow", "--token", token)[0] == 0
            assert set(statuses(gate, "192.0.2.3")) == {200}
            assert "no request" in ctl(master, "why", "a", "--token", token)[1]
            assert ctl(master, "drain", "--token", token)[0] == 0
            assert master.process.wait(programs.PATIENCE) == 0
