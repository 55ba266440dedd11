"""`headgate config`: a file is named as the first argument, or with --config.

Options that are generated from the configuration.
"""

from pathlib import Path

import click
import pytest

from headgate.cli.config import Options, config_options, given, name_flags
from headgate.config.proxy_section import Proxy

FILE = '[gate]\norigin = "http://127.0.0.1:8000"\n[[domain]]\nname = "a"\nrules = ["1/s"]\n'


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Give the name of a file, and stand in an empty folder."""
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    path = tmp_path / "some.toml"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize("option", [[], ["--config"]])
@pytest.mark.parametrize(("command", "words"), [("check", "valid, 1 domain\n"), ("show", "http://127.0.0.1:8000")])
def test_the_named_file_is_read(headgate, file, option, command, words):
    ran = headgate("config", command, *option, file)
    assert ran.code == 0
    assert words in ran.out.decode()


def test_check_without_a_file_is_an_error(headgate, file):
    ran = headgate("config", "check")
    assert (ran.code, ran.out) == (2, b"")
    assert ran.err == "headgate: headgate.toml does not exist here; name a file: headgate config check FILE\n"


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ('[master]\ncurve_key = "absent"', "master.curve_key needs master.curve_allow"),
        ('[master]\ncurve_key = "absent"\ncurve_allow = "absent"', "absent: No such file or directory"),
        ('[router]\ncurve_key = "absent"', "router.curve_key needs router.curve_allow"),
        ('[router]\ncurve_key = "absent"\ncurve_allow = "absent"', "absent: No such file or directory"),
        ('[gate]\norigin = "http://a"\nmaster = "b:1"\ncurve_key = "c"', "gate.curve_key needs gate.curve_server"),
        ('[router]\nlisten = ":10004"\nmaster = "a:1"', "router.listen: tcp://0.0.0.0:10004: other machines can reach"),
        ('[router]\ncurve_server = "absent"\nmaster = "a:1"', "router.curve_server needs router.curve_key"),
        ('[router]\nadmin = "127.0.0.1:8094"', "no master: add --master"),
        ('[master]\nsnapshot = "absent/file"', "master.snapshot: invalid file"),
        ('[sidecar]\nmaster = "a:1"', "no domain: add --domain NAME"),
        ('[master]\nrlqs_cert = "a"', "master: a certificate needs its key; set both `rlqs_cert` and `rlqs_key`"),
        ('[master]\nrlqs = ":1"\nrlqs_cert = "a"\nrlqs_key = "b"', "master.rlqs_cert: certificate 'a' and key"),
        ('[sidecar]\nmaster = "a:1"\ndomain = "b"\nnginx_lua = "c"\nidentify = "d"', "sidecar.identify: invalid"),
    ],
)
def test_check_reports_what_the_servers_of_the_bus_refuse(headgate, file, table, reason):
    file.write_text(f"{table}\n")
    ran = headgate("config", "check", file)
    assert ran.code == 2
    assert f"{file}: {reason}" in ran.err


def test_check_accepts_a_sidecar_and_show_prints_it(headgate, file):
    file.write_text('[sidecar]\nmaster = "a:1"\ndomain = "api"\nnginx_lua = "/run/headgate.sock"\n')
    ran = headgate("config", "check", file)
    assert (ran.code, ran.err) == (0, "")
    shown = headgate("config", "show", file).out.decode()
    assert "\n[sidecar]\n" in shown
    assert '\nnginx_lua = "/run/headgate.sock"' in shown


@pytest.mark.parametrize(("mode", "lines"), [(0o644, 3), (0o640, 0)])
def test_check_warns_of_a_secret_key_that_every_user_can_read(headgate, file, mode, lines):
    assert headgate("keys", "new", "-o", "keys").code == 0
    secret = Path("keys/secret.key")
    secret.chmod(mode)
    files = f'curve_key = "{secret}"\ncurve_allow = "keys/public.key"\nlisten = "0.0.0.0:0"'
    gate = (
        f'[gate]\norigin = "http://a"\nmaster = "tcp://b:1"\ncurve_key = "{secret}"\ncurve_server = "keys/public.key"'
    )
    table = f'[sidecar]\nmaster = "c:1"\ndomain = "d"\nnginx_lua = "e"\ncurve_key = "{secret}"'
    file.write_text(f'{gate}\n[master]\n{files}\n{table}\ncurve_server = "keys/public.key"\n')
    ran = headgate("config", "check", file)
    assert ran.code == 0
    expected = f"headgate: warning: {secret}: every user of this machine can read this secret key; use: chmod 600"
    assert ran.err.count(expected) == lines


@pytest.mark.parametrize(
    ("key", "error", "warning"),
    [
        ("listen", "master.listen: tcp://{}: other machines", "tcp://{}: other machines can reach this"),
        ("rlqs", "master.rlqs: {}: other machines can reach", "{}: other machines can reach the quota service"),
    ],
)
def test_check_refuses_or_warns_of_what_others_can_reach(headgate, file, key, error, warning):
    for more, code, words in (("", 2, error), ("insecure = true", 0, f"headgate: warning: {warning}")):
        file.write_text(f'[master]\n{key} = "0.0.0.0:10004"\n{more}\n')
        ran = headgate("config", "check", file)
        assert ran.code == code
        assert words.format("0.0.0.0:10004") in ran.err


@click.command()
@config_options("proxy")
def keys(**flags):
    """Print the options that were given."""
    click.echo(repr(given(flags)))


def run(capsys, *arguments):
    keys.main(arguments, standalone_mode=False)
    return capsys.readouterr().out.strip()


def test_options_that_are_not_given_override_nothing(capsys):
    assert run(capsys) == "{}"


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (["--listen", "[::]:1"], {"listen": "[::]:1"}),
        (["--self-signed"], {"self_signed": True}),
        (["--allow-port", "1", "--allow-port", "2"], {"allow_ports": (1, 2)}),
        (["--allow-address", "10.0.0.0/8"], {"allow_addresses": ("10.0.0.0/8",)}),
        (["--resolve", "*=127.0.0.1"], {"resolve": ("*=127.0.0.1",)}),
        (["--unreachable", "permit", "--idle", "2.5"], {"unreachable": "permit", "idle": 2.5}),
        (["--client-rate", "off"], {"client_rate": "off"}),
        (["--client-connections", "0"], {"client_connections": 0}),
    ],
)
def test_values_have_the_types_of_their_keys(capsys, arguments, values):
    assert run(capsys, *arguments) == repr({f"proxy.{name}": value for name, value in values.items()})


def test_help_is_the_first_sentence_of_the_docstring_with_the_default():
    helps = {option.name.removeprefix("proxy__"): option.help for option in keys.params}
    assert helps["unreachable_hold"].endswith("unless a Retry-After says otherwise.  [default: 60]")
    assert helps["allow_hosts"] == "Allow only this host and its subdomains; repeatable."
    assert helps["listen"].endswith("on IPv4 and IPv6.  [default: 127.0.0.1:8443]")
    assert helps["admin"] == "Address that serves the dashboard at /, /livez, /readyz, /metrics and /api/state."
    assert helps["log_client"] == "Include client addresses in the log."


def test_help_and_errors_name_other_keys_by_their_flags(headgate, tmp_path, monkeypatch):
    helps = {option.name.removeprefix("proxy__"): option.help for option in keys.params}
    assert helps["cert"] == "TLS certificate chain, PEM; needs --key."
    assert helps["plaintext"].endswith("beyond loopback this also needs --insecure.")
    assert name_flags(Proxy, "set `token_keys`, not `ssh`") == "set --token-key, not `ssh`"
    monkeypatch.chdir(tmp_path)
    assert "proxy: a certificate needs its key; set both --cert and --key" in headgate("proxy", "--cert", "a.pem").err
    (tmp_path / "headgate.toml").write_text('[gate.tls]\ncert = "a.pem"\n')
    assert "gate.tls: a certificate needs its key; set both `cert` and `key`" in headgate("config", "check").err


def test_show_says_where_each_value_comes_from(headgate, file, monkeypatch):
    monkeypatch.setenv("HEADGATE_GATE_TIMEOUTS_RESPONSE", "30")
    monkeypatch.setenv("HEADGATE_GATE_DRAN", "3")
    file.write_text(
        '[gate]\nlisten = "127.0.0.1:1"\n[gate.timeouts]\nresponse = 9\nidle = 5\n[[advice]]\nuser_agent = "*"\n'
        '[[domain]]\nname = "a"\nnot = { path_prefix = "/b" }\n'
    )
    ran = headgate("config", "show", file)
    assert ran.err == ("headgate: warning: HEADGATE_GATE_DRAN: unknown variable; did you mean HEADGATE_GATE_DRAIN?\n")
    notes = {line.split(" = ")[0]: line.partition("  # ")[2] for line in ran.lines if "  # " in line}
    assert notes == {"response": "HEADGATE_GATE_TIMEOUTS_RESPONSE"} | dict.fromkeys(
        ("listen", "idle", "user_agent", "name", "not"), str(file)
    )
    file.write_bytes(ran.out)  # the output is a configuration
    assert headgate("config", "check", file).code == 0


def test_flags_override_the_environment_which_overrides_the_file(file, monkeypatch):
    monkeypatch.setenv("HEADGATE_GATE_DRAIN", "1")
    monkeypatch.setenv("HEADGATE_GATE_ADMIN", "127.0.0.1:1")
    file.write_text('[gate]\nadmin = "127.0.0.1:3"\nmax_delay = 3\n')
    tree, _ = Options(str(file), {"gate.drain": 2.0}).read()
    assert (tree.gate.drain, tree.gate.admin, tree.gate.max_delay) == (2.0, "127.0.0.1:1", 3.0)


def test_check_reads_the_environment_with_or_without_a_file(headgate, file, monkeypatch):
    monkeypatch.setenv("HEADGATE_GATE_TLS_CERT", "absent.pem")
    file.write_text('[gate]\norigin = "http://a"\n')
    for arguments in ((file,), ()):
        ran = headgate("config", "check", *arguments)
        assert (ran.code, ran.err) == (
            2,
            "headgate: gate.tls: a certificate needs its key; set both `cert` and `key`\n",
        )
    monkeypatch.setenv("HEADGATE_GATE_TLS_KEY", "absent.pem")
    monkeypatch.setenv("HEADGATE_GATE_ORIGIN", "http://b")
    assert "the environment: no rule: add --rule" in headgate("config", "check").err
