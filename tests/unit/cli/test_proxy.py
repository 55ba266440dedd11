import pytest

from headgate.cli.proxy import ProxyOptions
from headgate.config.proxy_section import Proxy

FILE = """
[proxy]
brand = "TollKeeper"
cert = "chain.pem"
key = "key.pem"
allow_ports = [8443]
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "headgate.toml"
    path.write_text(FILE)
    return str(path)


def test_flags_override_the_file(file):
    tree, name = ProxyOptions(file, {"proxy.brand": "Other", "proxy.allow_ports": (1, 2)}).read()
    settings = tree.proxy
    assert name == file
    assert settings == Proxy(brand="Other", cert="chain.pem", key="key.pem", allow_ports=(1, 2))


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, ("chain.pem", "key.pem", False, False)),
        ({"key": "other.pem"}, ("chain.pem", "other.pem", False, False)),
        ({"cert": "a.pem", "key": "b.pem"}, ("a.pem", "b.pem", False, False)),
        ({"self_signed": True}, ("", "", True, False)),
        ({"plaintext": True}, ("", "", False, True)),
    ],
)
def test_a_flag_for_the_kind_of_listener_replaces_that_of_the_file(file, flags, expected):
    settings = ProxyOptions(file, {f"proxy.{name}": value for name, value in flags.items()}).read()[0].proxy
    assert (settings.cert, settings.key, settings.self_signed, settings.plaintext) == expected


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "127.3.2.1:8443", "[::1]:8443", "localhost:8443"])
def test_on_loopback_the_default_is_a_self_signed_certificate(listen):
    settings = ProxyOptions(None, {"proxy.listen": listen}).read()[0].proxy
    assert settings == Proxy(listen=listen, self_signed=True)
    for flags in ({"proxy.plaintext": True}, {"proxy.cert": "a.pem", "proxy.key": "b.pem"}):
        assert not ProxyOptions(None, {"proxy.listen": listen, **flags}).read()[0].proxy.self_signed


@pytest.mark.parametrize("listen", ["0.0.0.0:8443", ":8443", "[::]:8443", "*:8443", "192.0.2.1:8443", "example.com:1"])
def test_beyond_loopback_there_is_no_default_certificate(listen):
    assert not ProxyOptions(None, {"proxy.listen": listen}).read()[0].proxy.self_signed


WRONG_USES = [
    (["--listen", "0.0.0.0:0"], "no certificate: add --cert FILE and --key FILE, or --self-signed"),
    (["--cert", "a.pem"], "needs its key"),
    (["--cert", "a.pem", "--key", "b.pem"], "'a.pem'"),
    (["--self-signed", "--plaintext"], "exclude each other"),
    (["--plaintext", "--listen", "0.0.0.0:0"], "add --insecure"),
    (["--plaintext", "--listen", "0.0.0.0:0", "--workers", "2"], "add --insecure"),
    (["--self-signed", "--client-rate", "often"], "--client-rate"),
    (["--self-signed", "--allow-address", "10.0.0.1/8"], "such as '10.0.0.0/8'"),
    (["--self-signed", "--allow-port", "0"], "--allow-port"),
    (["--self-signed", "--resolve", "a"], "proxy.resolve: invalid address 'a'"),
    (["--self-signed", "--idle", "0"], "--idle"),
    (["--self-signed", "--max-tunnels", "0"], "--max-tunnels"),
    (["--self-signed", "--listen", "nowhere"], "such as '127.0.0.1:8080'"),
    (["--self-signed", "--brand", "\t"], "proxy.brand"),
    (["--self-signed", "--token-key", "none.json"], "none.json"),
    (["--self-signed", "--advice-ca", "none.pem"], "none.pem"),
    (["--config", "none.toml"], "none.toml"),
]


def test_wrong_use_is_one_line_and_exit_code_2(headgate, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words, said in WRONG_USES:
        ran = headgate("proxy", *words)
        assert (ran.code, ran.out) == (2, b""), words
        assert said in ran.err, words
        assert ran.err.count("\n") == 1, words
