"""`headgate sidecar`: flags, the file that they override, and the configuration of servers."""

import pytest

from headgate.cli import sidecar as module
from headgate.cli.config import Options

FILE = """\
[sidecar]
master = "10.0.0.5:10004"
domain = "api"
haproxy = "/run/haproxy.sock"
table = "some"
max_hold = 7200
rejection_status = 429
ipv6_prefix = 56
identify = "header:X-Api-Key"
"""
SITE = ("--listen", "127.0.0.1:8080", "--origin", "http://127.0.0.1:8000")


@pytest.fixture
def site(headgate, monkeypatch):
    """Run --print-conf; return the site that the writer of the configuration was given."""

    def run(server, *arguments):
        sites = []
        monkeypatch.setattr(module, "write_configuration", lambda name, site: sites.append((name, site)) or "written\n")
        ran = headgate("sidecar", "--print-conf", server, *SITE, *arguments)
        assert (ran.code, ran.out) == (0, b"written\n"), ran.err
        ((name, found),) = sites
        assert name == server
        return found

    return run


def test_options_override_the_file(tmp_path):
    path = tmp_path / "some.toml"
    path.write_text(FILE)
    tree, name = Options(str(path), {"sidecar.domain": "search", "sidecar.table": "other"}).read()
    assert name == str(path)
    assert (tree.sidecar.domains, tree.sidecar.table, tree.sidecar.haproxy) == (
        ("search",),
        "other",
        "/run/haproxy.sock",
    )
    assert Options(str(path)).read()[0].sidecar.domains == ("api",)


SERVER = "--master a:1 --domain b"
PRINT = "--listen a:1 --origin http://b --domain c --print-conf"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", ": no master: add --master 10.0.0.5:10004, or sidecar.master to the configuration"),
        ("--master a:1", ": no domain: add --domain NAME, or sidecar.domain to the configuration"),
        (SERVER, ": no server: add --nginx-lua SOCKET, --auth-request SOCKET or --haproxy"),
        (f"{SERVER} --nginx-lua c --haproxy e", ": sidecar: --nginx-lua and --haproxy exclude each other; set"),
        (f"{SERVER} --domain c --haproxy d", ": sidecar: HAProxy has one domain, got 2; run a sidecar for each"),
        (f"{SERVER} --domain b --nginx-lua c", ": sidecar.domain: 'b' is listed twice; list"),
        (f"{SERVER} --master a:1 --nginx-lua c", ": sidecar.master: 'a:1' is listed twice"),
        ("--master a:0 --domain b --nginx-lua c", ": sidecar.master: invalid master 'a:0': port 0 is for"),
        (f"{SERVER} --nginx-lua c --identify d", ": sidecar.identify: invalid identify 'd'; ex"),
        ("--socket-mode 999", " sidecar: invalid value for '--socket-mode': invalid mode '999'; expected per"),
        (
            f"--nginx-lua {'x' * 121}",
            f" sidecar: invalid value for '--nginx-lua': path too long: '{'x' * 121}' has",
        ),
        ("--listen a:1", " sidecar: --listen is for the configuration of a server; add --print-conf, or leave"),
        ("--rlqs a:1", " sidecar: --rlqs is for the configuration of a server; add --print-conf, or leave"),
        ("--print-conf envoy --listen a:1 --domain b", " sidecar: --print-conf needs --listen HOST:PORT and --ori"),
        ("--print-conf envoy --domain b --origin http://c", " sidecar: --print-conf needs --listen HOST:PORT and"),
        ("--print-conf envoy --listen a:1 --origin http://b", " sidecar: --print-conf needs one --domain NAME, got 0"),
        (f"{PRINT} nginx-lua --domain d", " sidecar: --print-conf needs one --domain NAME, got 2;"),
        (f"{PRINT} nginx-lua --origin https://b", ": --origin: invalid origin 'https://b'; expected http://HOST:PORT,"),
        (f"{PRINT} haproxy --rlqs d:1", " sidecar: --rlqs is for --print-conf envoy, not for haproxy;"),
        (f"{PRINT} envoy --socket d", " sidecar: --socket is for nginx and HAProxy; Envoy asks a master: use --rlqs;"),
        (f"{PRINT} auth-request --table d", " sidecar: --table is for --print-conf haproxy, not for auth-request;"),
        (f"{PRINT} nginx-lua --nginx-lua d", " sidecar: --nginx-lua runs a sidecar; with --print-conf, use --socket;"),
    ],
)
def test_errors(headgate, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    ran = headgate("sidecar", *arguments.split())
    assert (ran.code, ran.out) == (2, b"")
    assert ran.err.startswith(f"headgate{message}")
    assert ran.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_flags_of_a_generated_configuration(site, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = ("--domain", "b", "--socket", "some.sock", "--identify", "header:X-A", "--rejection-status", "429")
    found = site("auth-request", *flags, "--max-delay", "2")
    assert (found.domain, found.socket) == ("b", str(tmp_path / "some.sock"))
    assert (found.identify, found.rejection_status) == ("header:X-A", 429)


def test_configuration_of_envoy_names_the_quota_service_only(site):
    found = site("envoy", "--domain", "api")
    assert (found.socket, found.table, found.rlqs) == ("", "", None)
    assert str(site("envoy", "--domain", "api", "--rlqs", "[::1]:7").rlqs) == "[::1]:7"


def test_file_gives_what_no_flag_does_except_the_identification_of_nginx_with_lua(site, tmp_path):
    """The configuration of the server says how to identify clients, except where the sidecar can."""
    path = tmp_path / "some.toml"
    path.write_text(FILE)
    found = site("haproxy", "--config", str(path))
    assert (found.domain, found.socket, found.table) == ("api", "/run/haproxy.sock", "some")
    assert (found.rejection_status, found.identify) == (429, "header:X-Api-Key")
    assert (found.ipv6_prefix, found.max_hold) == (56, 7200.0)
    assert site("nginx-lua", "--config", str(path)).identify is None
    assert site("auth-request", "--config", str(path)).identify == "header:X-Api-Key"
    found = site("haproxy", "--config", str(path), "--table", "other", "--socket", "/s")
    assert (found.socket, found.table) == ("/s", "other")


def test_rejections_of_haproxy_name_the_policy_of_the_file(headgate, tmp_path):
    path = tmp_path / "some.toml"
    path.write_text(FILE + '[[domain]]\nname = "api"\nrules = ["5/min burst 5"]\n')
    ran = headgate("sidecar", "--print-conf", "haproxy", *SITE, "--config", str(path))
    assert ran.code == 0, ran.err
    assert ran.out.count(b"""hdr ratelimit-policy '"api";q=5;w=60'""") == 2
    assert ran.out.count(b"status 429 ") == 2


@pytest.mark.parametrize(
    ("server", "flag"),
    [
        ("nginx-lua", "--max-delay 1"),
        ("auth-request", "--rejection-status 429"),
        ("haproxy", "--socket-mode 0600"),
        ("envoy", "--master a:1"),
    ],
)
def test_flag_without_effect_on_a_configuration_is_a_warning(headgate, server, flag):
    ran = headgate("sidecar", "--print-conf", server, *SITE, "--domain", "api", *flag.split())
    assert ran.code == 0
    assert ran.err == f"headgate: warning: {flag.split()[0]} changes nothing in this configuration\n"
