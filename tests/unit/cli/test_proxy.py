import pytest

from headgate.cli.proxy import ProxyOptions, require_listener
from headgate.config.proxy_section import Proxy
from headgate.errors import ConfigurationError

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
    settings, name = ProxyOptions(file, {"brand": "Other", "allow_ports": (1, 2)}).read()
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
    settings, _ = ProxyOptions(file, flags).read()
    assert (settings.cert, settings.key, settings.self_signed, settings.plaintext) == expected


@pytest.mark.parametrize("flags", [{"self_signed": True, "plaintext": True}, {"cert": "a", "self_signed": True}])
def test_two_kinds_of_listener_are_an_error(file, flags):
    with pytest.raises(ConfigurationError, match="proxy"):
        ProxyOptions(file, flags).read()


@pytest.mark.parametrize(("flags", "said"), [({"idle": 0.0}, "proxy.idle"), ({"client_rate": "x"}, "client_rate")])
def test_the_value_of_a_flag_is_checked(flags, said):
    with pytest.raises(ConfigurationError, match=said):
        ProxyOptions(None, flags).read()


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "127.3.2.1:8443", "[::1]:8443", "localhost:8443"])
def test_on_loopback_the_default_is_a_self_signed_certificate(listen):
    settings, _ = ProxyOptions(None, {"listen": listen}).read()
    assert settings == Proxy(listen=listen, self_signed=True)
    assert not ProxyOptions(None, {"listen": listen, "plaintext": True}).read()[0].self_signed
    assert not ProxyOptions(None, {"listen": listen, "cert": "a.pem", "key": "b.pem"}).read()[0].self_signed


@pytest.mark.parametrize("listen", ["0.0.0.0:8443", ":8443", "[::]:8443", "*:8443", "192.0.2.1:8443", "example.com:1"])
def test_beyond_loopback_there_is_no_default_certificate(listen):
    assert not ProxyOptions(None, {"listen": listen}).read()[0].self_signed


def test_a_listener_needs_a_certificate_or_plaintext():
    with pytest.raises(ConfigurationError, match="--self-signed"):
        require_listener(Proxy())
    for one in ({"cert": "a"}, {"self_signed": True}, {"plaintext": True}):
        require_listener(Proxy(**one))
