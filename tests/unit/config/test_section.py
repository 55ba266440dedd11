import pytest

from headgate.config import Address
from headgate.config.section import parse_mode
from headgate.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "host", "port", "written"),
    [
        ("127.0.0.1:8080", "127.0.0.1", 8080, "127.0.0.1:8080"),
        ("[::1]:0", "::1", 0, "[::1]:0"),
        ("localhost:65535", "localhost", 65535, "localhost:65535"),
        (":80", "0.0.0.0", 80, "0.0.0.0:80"),
        (" 127.0.0.1:80 ", "127.0.0.1", 80, "127.0.0.1:80"),
    ],
)
def test_an_address_is_parsed_and_written(text, host, port, written):
    address = Address.parse(text)
    assert (address.host, address.port, str(address)) == (host, port, written)
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize(
    "text",
    ["", "8080", "127.0.0.1", "a:65536", "::1:80", "a:-1", "a:b", "http://a:1", "a b:1", "a..b:1", "x" * 64 + ":1"],
)
def test_an_invalid_address_is_quoted_in_the_error(text):
    with pytest.raises(ConfigurationError) as caught:
        Address.parse(text)
    assert repr(text) in str(caught.value)
    assert "127.0.0.1:8080" in str(caught.value)


@pytest.mark.parametrize(("text", "mode"), [("0666", 0o666), ("660", 0o660), ("0o600", 0o600), ("000", 0)])
def test_mode_is_octal(text, mode):
    assert parse_mode(text) == mode


@pytest.mark.parametrize("text", ["", "66", "0888", "1777", "0x1ff", "-660", "rw-", "0666 "])
def test_invalid_mode_is_quoted_in_the_error(text):
    with pytest.raises(ConfigurationError) as raised:
        parse_mode(text)
    assert str(raised.value).startswith(f"invalid mode {text!r}; expected permissions in octal")
