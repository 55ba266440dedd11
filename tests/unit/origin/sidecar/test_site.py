import pytest

from headgate.config import Address
from headgate.errors import ConfigurationError
from tests.unit.origin.sidecar.sites import site


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://[::1]:81", ("::1", 81)),
        ("http://app", ("app", 80)),
        ("http://app.example:8000/", ("app.example", 8000)),
    ],
)
def test_address_of_the_origin(url, address):
    assert site(origin=url).origin_address == address


@pytest.mark.parametrize(
    ("identify", "header"),
    [(None, None), ("client-address", None), ("header:X-Api-Key", "x-api-key"), (" header: X-A ", "x-a")],
)
def test_identifying_header(identify, header):
    assert site(identify=identify).header == header


@pytest.mark.parametrize("domain", ["api", "API v2 'quoted' \"twice\" ; { } \\ $x #", "größe"])
def test_domain_with_any_printable_character_is_accepted(domain):
    assert site(domain=domain).domain == domain


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"origin": ""}, "--origin: invalid origin ''; expected http://HOST:PORT, such as 'http://127.0.0.1:8000'"),
        ({"origin": "http://a;b"}, "--origin: invalid host 'a;b'; expected a name or an address"),
        ({"origin": "http://*:80"}, "--origin: invalid host '*'"),
        ({"origin": "http://[::1%lo]"}, "--origin: invalid host '::1%lo'"),
        ({"origin": "http://%2e"}, "--origin: invalid host '%2e'"),
        ({"origin": "http://a/path"}, "--origin: invalid origin"),
        ({"listen": Address("a;b", 80)}, "--listen: invalid host 'a;b'"),
        ({"listen": Address("127.0.0.1", 0)}, "--listen: the server needs a port, got 0"),
        ({"rlqs": Address("a{b", 80)}, "--rlqs: invalid host 'a{b'"),
        ({"identify": "header:a b"}, "--identify: invalid identify 'header:a b'"),
        ({"identify": ""}, "--identify: invalid identify ''"),
        ({"domain": ""}, "--domain: the name is empty"),
        ({"domain": "a\nb"}, "--domain: 'a\\nb' contains the character '\\n'; expected a text without control"),
        ({"domain": "a\x85b"}, "--domain: 'a\\x85b' contains the character '\\x85'"),
        ({"domain": "a\udcffb"}, "--domain: 'a\\udcffb' contains the character '\\udcff'"),
        ({"socket": "/run/a\rb"}, "--socket: '/run/a\\rb' contains the character '\\r'"),
        ({"socket": "s" * 200}, "--socket: path too long"),
        ({"table": "a\0b"}, "--table: 'a\\x00b' contains the character '\\x00'"),
    ],
)
def test_invalid_value_is_refused_with_the_name_of_its_flag(changes, message):
    with pytest.raises(ConfigurationError) as raised:
        site(**changes)
    assert str(raised.value).startswith(message)
