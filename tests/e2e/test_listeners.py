"""Listeners of `headgate serve`, with curl, OpenSSL and HAProxy as clients."""

import os
import re
import signal
import socket
import ssl
import stat
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.e2e import programs
from tests.e2e.programs import PATIENCE, Program, headgate, refused
from tests.servers import find_program, free_port, nginx_module, wait_for

DOMAIN = '[[domain]]\nname = "default"\npath_prefix = "/limited"\nrules = ["2/h burst 2"]\n'


class Site:
    """A folder with a configuration file, and certificates of one authority."""

    def __init__(self, folder: Path, origin: str) -> None:
        self.folder = folder
        self.origin = origin
        self.authority = trustme.CA()
        self.authority.cert_pem.write_to_path(folder / "roots.pem")

    def issue(self, file: str, *names: str, authority: trustme.CA | None = None) -> None:
        leaf = (authority or self.authority).issue_cert(*names)
        (self.folder / f"{file}.pem").write_bytes(b"".join(pem.bytes() for pem in leaf.cert_chain_pems))
        leaf.private_key_pem.write_to_path(self.folder / f"{file}.key")

    def serve(self, tables: str, gate: str = "", *arguments: object) -> Any:
        text = f'[gate]\norigin = "{self.origin}"\nadmin = "127.0.0.1:0"\n{gate}\n{tables}\n{DOMAIN}'
        (self.folder / "gate.toml").write_text(text)
        return headgate(self.folder, "serve", "--config", self.folder / "gate.toml", *arguments)

    def curl(self, *arguments: str) -> str:
        command = ["curl", "-s", "-m", "10", "--cacert", "roots.pem", *arguments]
        return subprocess.run(
            command, cwd=self.folder, capture_output=True, timeout=PATIENCE, check=False
        ).stdout.decode()

    def names(self, port: int, server_name: str) -> set[str]:
        """The names of the certificate that a client of a name gets."""
        context = ssl.create_default_context(cafile=self.folder / "roots.pem")
        context.check_hostname = False
        with (
            socket.create_connection(("127.0.0.1", port), PATIENCE) as plain,
            context.wrap_socket(plain, server_hostname=server_name) as sock,
        ):
            certificate: Any = sock.getpeercert()
        return {value for _, value in certificate["subjectAltName"]}

    def begin_handshake(self, port: int, server_name: str, sent: bytes) -> None:
        """Begin a handshake with other bytes, as many, as the server name; return at the end of the connection."""
        outgoing = ssl.MemoryBIO()
        with suppress(ssl.SSLWantReadError):
            context = ssl.create_default_context()
            context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=server_name).do_handshake()
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as plain, suppress(ConnectionError):
            plain.sendall(outgoing.read().replace(server_name.encode(), sent))
            while plain.recv(65_536):
                pass


@pytest.fixture
def site(tmp_path: Path) -> Any:
    with programs.origin() as origin:
        yield Site(tmp_path, origin.url)


def ports(running: Program) -> list[int]:
    """The ports of all listeners, in order."""
    first = running.port
    return [
        first,
        *(int(port) for port in re.findall(r"^headgate: also listening at \S+:(\d+)$", running.said(), re.M)),
    ]


SECURE = """
[[listener]]
address = "127.0.0.1:0"
redirect = true
[[listener]]
address = "127.0.0.1:0"
tls = true
[[listener]]
address = "127.0.0.1:0"
tls = true
client_ca = "roots.pem"
[[tls]]
cert = "two.pem"
key = "two.key"
names = ["two.example", "*.three.example"]
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_redirect_names_and_certificates_of_clients(site: Site, workers: int) -> None:
    site.issue("one", "localhost")
    site.issue("two", "two.example", "*.three.example")
    site.issue("client", "someone@example.org")
    site.issue("other", "someone@example.org", authority=trustme.CA())
    watches = workers == 1
    flags = "--cert", site.folder / "one.pem", "--key", site.folder / "one.key"
    with site.serve(SECURE, f"workers = {workers}\nwatch_files = {str(watches).lower()}", *flags) as running:
        plain, tls, mutual = ports(running)
        assert site.curl("-L", f"http://localhost:{plain}/") == "ok\n"
        assert "location: https://a.org/x?y" in site.curl("-i", "-H", "Host: a.org", f"http://localhost:{plain}/x?y")
        assert " 400 " in site.curl("-i", "-0", "-H", "Host:", f"http://localhost:{plain}/")
        for name in ("Two.Example", "a.three.example"):
            assert "two.example" in site.names(tls, name), name
        for name in ("localhost", "a.b.three.example", "three.example"):
            assert site.names(tls, name) == {"localhost"}, name
        for port, name in ((mutual, "localhost"), (mutual, "two.example")):  # the authority is that of each name
            url = ["--resolve", f"{name}:{port}:127.0.0.1", f"https://{name}:{port}/"]
            answers = [site.curl("--cert", f"{one}.pem", "--key", f"{one}.key", *url) for one in ("client", "other")]
            assert [*answers, site.curl(*url)] == ["ok\n", "", ""]
        site.begin_handshake(tls, "one.example", b"one\xffexample")
        assert "Traceback" not in running.said()
        site.issue("two", "renewed.example")
        if not watches:
            running.process.send_signal(signal.SIGHUP)
        running.until(
            lambda: set().union(*(site.names(tls, "two.example") for _ in range(4))) == {"renewed.example"},
            "renewed certificate",
        )
        site.issue("three", "new.example")
        file = site.folder / "gate.toml"
        file.write_text(file.read_text() + '[[tls]]\ncert = "three.pem"\nkey = "three.key"\nnames = ["new.example"]\n')
        running.process.send_signal(signal.SIGHUP)
        running.until(lambda: site.names(tls, "new.example") == {"new.example"}, "certificate added by a reload")
        if watches:
            (site.folder / "two.key").write_text("nonsense")
            running.wait_for(
                r"^headgate: certificate 'two.pem' and key 'two.key' cannot be used: .*; the certificates in"
            )
            assert site.names(tls, "two.example") == {"renewed.example"}


@pytest.mark.parametrize("workers", [1, 2])
def test_unix_socket_has_its_mode_and_is_removed_at_the_end(site: Site, workers: int) -> None:
    path = site.folder / "gate.sock"
    with site.serve(f'[[listener]]\naddress = "unix:{path}"\nmode = "0640"', f"workers = {workers}") as running:
        assert running.ready["address"] == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        assert site.curl("--unix-socket", str(path), "http://a/") == "ok\n"
        flags = ("--origin", site.origin, "--rule", "1/s", "--listen", f"unix:{path}")
        code, said = refused(site.folder, "serve", *flags)
        assert code == 2
        assert said.startswith(f"headgate: --listen: '{path}' is in use (another process listens); stop that process,")
        for pid in running.children() if workers > 1 else []:
            os.kill(pid, signal.SIGKILL)
        running.until(lambda: site.curl("--unix-socket", str(path), "http://a/") == "ok\n", "response")
        assert running.end() == 0
    assert not path.exists()


HAPROXY = """
defaults
  mode {mode}
  timeout connect 5s
  timeout client 5s
  timeout server 5s
frontend in
  bind 127.0.0.1:{port}
  default_backend gate
backend gate
  server gate 127.0.0.1:{gate} {option} source 127.0.0.2
"""


NGINX = """
load_module {module}; daemon off; pid nginx.pid; error_log stderr; events {{}}
stream {{ server {{
  listen 127.0.0.1:{port}; proxy_pass 127.0.0.1:{gate}; proxy_protocol on; proxy_bind 127.0.0.2;
}} }}
"""
HAPROXY_SENDS = pytest.mark.needs("haproxy")


@pytest.mark.parametrize(
    "option",
    [
        pytest.param("send-proxy", marks=HAPROXY_SENDS),
        pytest.param("send-proxy-v2", marks=HAPROXY_SENDS),
        pytest.param("nginx", marks=pytest.mark.needs("nginx-stream")),
    ],
)
@pytest.mark.parametrize("tls", ["false", "true"])
def test_haproxy_and_nginx_name_their_clients(site: Site, option: str, tls: str) -> None:
    site.issue("one", "localhost")
    listener = f'[[listener]]\naddress = "127.0.0.1:0"\nproxy_protocol = true\ntls = {tls}\n'
    certificate = '[[tls]]\ncert = "one.pem"\nkey = "one.key"\n' if tls == "true" else ""
    port = free_port()
    with site.serve(listener + certificate, 'trusted_proxies = ["127.0.0.2"]\nmax_delay = 0') as running:
        mode = "tcp" if tls == "true" else "http"
        text = HAPROXY.format(mode=mode, port=port, gate=running.port, option=option)
        command = [find_program("haproxy") or "haproxy", "-db", "-f", str(site.folder / "sender.conf")]
        if option == "nginx":
            text = NGINX.format(module=nginx_module("nginx-stream"), port=port, gate=running.port)
            command = [find_program("nginx") or "nginx", "-p", str(site.folder), "-c", "sender.conf"]
        (site.folder / "sender.conf").write_text(text)
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            wait_for(port, process)
            for host in ("127.0.0.1", "127.0.0.3"):  # each client has its own burst
                url = f"http{'s' if tls == 'true' else ''}://localhost:{port}/limited"
                command = ["-o", "out", "-w", "%{http_code}", "--interface", host, url]
                assert [site.curl(*command) for _ in range(3)] == ["200", "200", "503"]
            assert site.curl(f"http://localhost:{running.port}/") == ""  # not a trusted proxy
            refusals = {key: value for key, value in running.metrics().items() if "proxy_headers_refused_total" in key}
            assert {key.split()[1]: value for key, value in refusals.items() if value}.keys() == {"untrusted"}
        finally:
            process.terminate()  # a worker of nginx outlives one that is killed
            process.wait(PATIENCE)
