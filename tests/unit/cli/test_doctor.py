import json
import resource
import socket
import subprocess
import sys
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headgate.cli import doctor

SECRET = "s3cretpassword"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(doctor, "_TIMEOUT", 0.5)
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)  # the limit of this process stays
    return tmp_path


@pytest.fixture
def server():
    """A server that answers /livez as an admin listener does; `ahead` is the error of its clock."""

    class Answers(BaseHTTPRequestHandler):
        ahead = 0.0
        body = b"alive\n"

        def do_GET(self):
            date = formatdate(time.time() + self.ahead, usegmt=True).encode()
            self.wfile.write(b"HTTP/1.1 200 OK\r\nServer: test\x1b\r\nDate: %s\r\n\r\n%s" % (date, self.body))

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as running:
        threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield running, Answers
        running.shutdown()


def diagnose(headgate, text, *arguments):
    """Return the exit code, and status, text and advice of each check of a file."""
    Path("headgate.toml").write_text(text)
    done = headgate("doctor", "--json", *arguments)
    assert done.err == ""
    assert all(bool(one["advice"]) == (one["status"] != "ok") for one in done.json["findings"])
    return done.code, {one["check"]: (one["status"], one["text"], one["advice"]) for one in done.json["findings"]}


GATE = '[gate]\norigin = "http://127.0.0.1:1"\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:{}"\n'
RULE = '[[domain]]\nname = "a"\nrules = ["1/s"]\n'


def test_a_sound_machine_has_no_failure_and_the_report_names_libraries(headgate):
    code, found = diagnose(headgate, GATE.format(0) + RULE)
    assert code == 0
    assert "msgspec " in found["libraries"][1]
    assert {found[check][0] for check in ("tls", "libzmq", "configuration", "port of gate.listen")} == {"ok"}
    text = headgate("doctor").out.decode()
    assert "ok      configuration: headgate.toml is valid\n" in text
    assert text.endswith("0 failed, 0 warnings\n")


def test_an_invalid_configuration_fails_and_its_password_is_hidden(headgate):
    store = f'[master]\nstore = "redis://u:{SECRET}@127.0.0.1/0?password={SECRET}&x=1"\n'
    code, found = diagnose(headgate, store)
    assert (code, found["configuration"][0]) == (1, "failed")
    assert "master.store" in found["configuration"][1]
    assert SECRET not in str(found)
    assert doctor._redact(f"Bearer {SECRET} at redis://:{SECRET}@h") == "Bearer *** at redis://:***@h"


def test_a_port_in_use_is_a_failure_unless_the_server_of_the_file_has_it(headgate, server):
    running, answers = server
    port = running.server_address[1]
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        text = GATE.format(port).replace("127.0.0.1:0", f"127.0.0.1:{silent.getsockname()[1]}") + RULE
        code, found = diagnose(headgate, text)
        assert (code, "gate of headgate answers" in found["port of gate.listen"][1]) == (0, True)
        answers.body = b"other"
        code, found = diagnose(headgate, text)
    assert (code, found["port of gate.admin"][0]) == (1, "failed")
    assert "an HTTP server answers 200, Server: test\\x1b" in found["port of gate.admin"][1]
    assert "stop that one, or choose another address with gate.admin" in found["port of gate.admin"][2]
    assert "no answer: timed out" in found["port of gate.listen"][1]


def test_the_next_port_of_a_bus_is_checked(headgate):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        code, found = diagnose(headgate, f'[router]\nlisten = "127.0.0.1:{port - 1}"\nmaster = "127.0.0.1:1"\n')
    assert (code, found["port of router.listen (control)"][0]) == (1, "failed")
    assert f"127.0.0.1:{port} is taken" in found["port of router.listen (control)"][1]


def test_each_server_of_a_file_has_its_ports_checked(headgate):
    code, found = diagnose(
        headgate,
        '[master]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\nrlqs = "127.0.0.1:0"\n' + RULE
        + '[proxy]\nlisten = "127.0.0.1:0"\nself_signed = true\n[sidecar]\nmaster = "127.0.0.1:1"\ndomain = "a"\n'
        'nginx_lua = "/run/a"\nadmin = "127.0.0.1:0"\n[[listener]]\naddress = "unix:/missing/a"\n'
        '[gate]\norigin = "http://127.0.0.1:1"\nadmin = ""\n',
    )  # fmt: skip
    ports = {check.removeprefix("port of ") for check in found if check.startswith("port of ")}
    assert ports == {
        "master.listen",
        "master.listen (control)",
        "master.admin",
        "master.rlqs",
        "proxy.listen",
        "sidecar.admin",
    }
    assert found["gate.listen"][:2] == ("failed", "the socket unix:/missing/a cannot be written")
    assert found["sidecar.master"][:2] == ("failed", "127.0.0.1:1: Connection refused")
    assert code == 1


@pytest.mark.parametrize(("ahead", "status"), [(0, "ok"), (60, "failed"), (-60, "failed")])
def test_the_clock_is_compared_with_other_servers(headgate, server, ahead, status):
    running, answers = server
    answers.ahead = ahead
    code, found = diagnose(headgate, "", "--admin", f"127.0.0.1:{running.server_address[1]}", "--admin", "127.0.0.1:1")
    assert found[f"clock of 127.0.0.1:{running.server_address[1]}"][0] == status
    assert found["clock of 127.0.0.1:1"][1] == "not compared: no answer: Connection refused"
    assert code == 1


def test_secret_files_are_for_few_eyes_and_logs_are_writable(headgate, folder):
    for name, mode in (("open.key", 0o644), ("closed.key", 0o640)):
        (folder / name).write_text(SECRET * 2)
        (folder / name).chmod(mode)
    code, found = diagnose(
        headgate,
        GATE.format(0) + RULE + '[admin]\ntoken = "open.key"\n[master]\nsnapshot = "missing/state"\n'
        '[proxy]\ntoken_keys = ["closed.key", "none.key"]\n[log]\naccess = "/missing/access.log"\n'
        'identifiers = "hashed"\nidentifiers_key = "closed.key"\n',
    )  # fmt: skip
    assert found["admin.token"][0] == "warning"
    assert found["admin.token"][2] == "use: chmod 600 open.key"
    assert found["log.identifiers_key"][:2] == ("ok", "closed.key is readable")
    assert found["proxy.token_keys"][1] == "none.key: No such file or directory"
    assert found["log.access"][0] == found["master.snapshot"][0] == "failed"
    assert SECRET not in str(found)
    assert code == 1


def test_too_few_open_files_and_a_slow_clock_are_warnings(headgate, folder, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    monkeypatch.setattr(doctor, "_CLOCK_SOURCE", folder / "source")
    (folder / "source").write_text("hpet\n")
    code, found = diagnose(headgate, "")
    assert found["limits"][:2] == ("warning", "1024 open files for 10000 connections of each worker")
    assert "raise it to 20064" in found["limits"][2]
    assert (code, found["clock"][0]) == (0, "warning")


def test_without_the_servers_libraries_it_says_what_it_did_not_check():
    Path("headgate.toml").write_text(GATE.format(0) + RULE)
    code = "import sys; sys.modules['zmq'] = None; from headgate.cli import main; main()"  # in a process of its own
    done = subprocess.run([sys.executable, "-c", code, "doctor", "--json"], capture_output=True, timeout=60, check=True)
    found = {one["check"]: one["text"] for one in json.loads(done.stdout)["findings"]}
    assert found["configuration"] == "not all is checked without the library zmq"
    assert "libzmq" not in found
