"""Several real origins behind a gate: killed and back under load, over TLS and a unix socket, replaced at a reload."""

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from tests import servers
from tests.e2e.programs import Program, gate

pytestmark = pytest.mark.needs("nginx")

CONF = """\
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{
    access_log off; keepalive_requests 1000000;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
    uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    server {{
        listen 127.0.0.1:{port}{listen};
        {server}
        location / {{ return 200 "{name} $http_host $request_uri $ssl_session_reused $ssl_client_s_dn"; }}
    }}
}}
"""


@contextmanager
def origin(folder: Path, name: str, port: int, server: str = "", listen: str = "") -> Iterator[servers.Server]:
    """Run nginx in one process at `port`; `server` and `listen` are further directives and parameters."""
    home = folder / name
    home.mkdir(exist_ok=True)
    conf = home / "nginx.conf"
    conf.write_text(CONF.format(folder=home, name=name, port=port, server=server, listen=listen))
    program = servers.find_program("nginx") or "nginx"
    with servers.started([program, "-e", home / "e.log", "-c", conf], port, home, stop=signal.SIGKILL) as running:
        yield running


def configured(folder: Path, *origins: str, more: str = "") -> Path:
    """Write a configuration with these tables [[origin]]."""
    tables = "".join(f"[[origin]]\n{one}\n" for one in origins)
    file = folder / "headgate.toml"
    file.write_text(f'{more}[[domain]]\nname = "default"\nrules = ["1000000/s burst 1000000"]\n{tables}')
    return file


def responses(running: Program, name: str) -> int:
    """Return how many responses an origin has given."""
    samples = re.findall(r"^headgate_upstream_responses_total{([^}]*)} (\S+)$", running.admin("/metrics"), re.MULTILINE)
    return sum(int(float(value)) for labels, value in samples if f'origin="{name}"' in labels)


@pytest.mark.needs("nginx", "wrk")
def test_one_origin_of_two_is_killed_and_comes_back_under_load_without_a_failed_request(tmp_path: Path) -> None:
    first, second = servers.free_port(), servers.free_port()
    tables = [f'url = "http://127.0.0.1:{port}"\nfailure_window = 1' for port in (first, second)]
    with origin(tmp_path, "second", second), gate(tmp_path, "--config", configured(tmp_path, *tables)) as running:
        wrk = ["wrk", "-t1", "-c16", "-d8s", f"http://127.0.0.1:{running.port}/"]
        with origin(tmp_path, "first", first):
            load = subprocess.Popen(wrk, stdout=subprocess.PIPE, text=True)
            running.until(lambda: responses(running, f"127.0.0.1:{first}") > 500, "responses of the first origin")
        # It is killed here.
        running.until(lambda: running.state()["origins"][f"127.0.0.1:{first}"]["failed"], "failure")
        running.wait_for(rf"origin 127\.0\.0\.1:{first} has failed \(unreachable: ")
        failed_at = responses(running, f"127.0.0.1:{second}")
        running.until(lambda: responses(running, f"127.0.0.1:{second}") > failed_at + 500, "responses of the second")
        with origin(tmp_path, "first", first):
            before = responses(running, f"127.0.0.1:{first}")
            running.until(lambda: responses(running, f"127.0.0.1:{first}") > before + 500, "responses of the first")
            report = load.communicate()[0]
        assert "Non-2xx" not in report, report
        assert "Socket errors" not in report, report
        text = running.admin("/metrics")
        failures = re.findall(r'^headgate_upstream_failures_total{[^}]*reason="(\w+)"} (\S+)$', text, re.MULTILINE)
        count = sum(float(value) for _, value in failures)
        # Those in flight at its end, and one attempt in each second.
        assert 3 <= count <= 16 + 3 + 10, failures
        assert "headgate_gateway_moved_total 0.0" not in text


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the certificates of an authority, of `app.example`, and of a client."""
    folder, ca = tmp_path_factory.mktemp("tls"), trustme.CA()
    ca.cert_pem.write_to_path(folder / "ca.pem")
    trustme.CA().cert_pem.write_to_path(folder / "other.pem")
    for name, leaf in (("app", ca.issue_cert("app.example")), ("client", ca.issue_cert("gate.example"))):
        leaf.private_key_pem.write_to_path(folder / f"{name}.key")
        for part in leaf.cert_chain_pems:
            part.write_to_path(folder / f"{name}.pem", append=True)
    return folder


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_an_https_origin_is_verified_and_gets_the_certificate_of_the_gate(
    tmp_path: Path, authority: Path, loop: str
) -> None:
    port = servers.free_port()
    server = (
        f"keepalive_timeout 0; ssl_session_cache shared:s:1m; ssl_certificate {authority}/app.pem;"
        f"ssl_certificate_key {authority}/app.key; ssl_client_certificate {authority}/ca.pem; ssl_verify_client on;"
    )
    table = f'url = "https://127.0.0.1:{port}/p"\nserver_name = "app.example"\nhost = "app.example"\n'
    identity = f'cert = "{authority}/client.pem"\nkey = "{authority}/client.key"\n'
    file = configured(tmp_path, f'{table}{identity}ca = "{authority}/ca.pem"', more=f'[gate]\nloop = "{loop}"\n')
    with origin(tmp_path, "app", port, server, " ssl"), gate(tmp_path, "--config", file) as running:
        texts = [running.get("/x").body.decode() for _ in range(3)]
        assert [text.split()[:3] for text in texts] == [["app", "app.example", "/p/x"]] * 3
        assert (texts[0].split()[3], texts[-1].split()[3]) == (".", "r")  # the session is resumed
        assert "O=" in texts[0]
        for wrong, reason in (
            (f'{table}{identity}ca = "{authority}/other.pem"', "certificate verify failed"),
            (f'url = "https://127.0.0.1:{port}"\nca = "{authority}/ca.pem"', "IP address mismatch"),
        ):
            configured(tmp_path, wrong, more=f'[gate]\nloop = "{loop}"\n')
            running.process.send_signal(signal.SIGHUP)
            line = rf"has failed \(tls: .*{reason}"
            running.until(lambda: running.get("/x").status == 502 and re.search(line, running.said()), line)  # noqa: B023  # called here
            assert json.loads(running.get("/x", Accept="application/problem+json").body)["status"] == 502


APP = """
import time
def app(environ, start_response):
    if environ["PATH_INFO"].endswith("slow"):
        time.sleep(2)
    body = f"{environ['PATH_INFO']} {environ['HTTP_HOST']}".encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""


def test_gunicorn_at_a_unix_socket_is_an_origin_until_a_reload_and_its_last_request_ends(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    path, port = tmp_path / "g.sock", servers.free_port()
    bind = ["-b", f"unix:{path}", "-b", f"127.0.0.1:{port}", "--threads", "2", "--chdir", tmp_path]
    file = configured(tmp_path, f'url = "unix:{path}:/app"\nhealth = "/app/ok"\nhealth_interval = 0.1')
    with (
        servers.started([sys.executable, "-m", "gunicorn", *bind, "app:app"], port, tmp_path),
        origin(tmp_path, "other", other := servers.free_port()),
        gate(tmp_path, "--config", file) as running,
    ):
        assert running.get("/x").body == b"/app/x 127.0.0.1:%d" % running.port
        found: list[bytes] = []
        name = f"unix:{path}:/app"
        waiting = threading.Thread(target=lambda: found.append(running.get("/slow").body))
        waiting.start()
        running.until(lambda: running.state()["upstream_connections"][name]["active"], "request in flight")
        configured(tmp_path, f'url = "http://127.0.0.1:{other}"')
        running.process.send_signal(signal.SIGHUP)
        running.until(lambda: running.get("/x").body.startswith(b"other"), "the other origin")
        waiting.join()
        assert found == [b"/app/slow 127.0.0.1:%d" % running.port]
        assert list(running.state()["origins"]) == [f"127.0.0.1:{other}"]
        file.write_text(file.read_text().replace("http://", ""))
        running.process.send_signal(signal.SIGHUP)
        running.wait_for(r"the scheme is missing; expected 'http://127\.0\.0\.1:\d+'")
        assert running.get("/x").body.startswith(b"other")


def test_checks_find_an_origin_that_fails_and_one_that_is_back(tmp_path: Path) -> None:
    first, second = servers.free_port(), servers.free_port()
    checks = 'health = "/ok"\nhealth_interval = 0.1\nhealth_timeout = 1\nfailure_window = 3600'
    tables = [f'url = "http://127.0.0.1:{port}"\n{checks}' for port in (first, second)]
    bad = "location = /ok { return 500; }"
    name = f"127.0.0.1:{first}"
    with (
        origin(tmp_path, "second", second),
        gate(tmp_path, "--config", configured(tmp_path, *tables)) as running,
    ):
        with origin(tmp_path, "first", first, bad):
            running.wait_for(rf"origin {name} has failed \(/ok: (status 500|Connect)")
            running.until(lambda: running.state()["origins"][name]["failed"], "failure")
            assert {running.get().body.split()[0] for _ in range(6)} == {b"second"}
        with origin(tmp_path, "first", first):
            running.until(lambda: not running.state()["origins"][name]["failed"], "success")
            assert running.until(lambda: running.get().body.split()[0] == b"first", "the first origin")
