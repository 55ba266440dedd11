import pytest

from headgate.errors import ConfigurationError
from headgate.link.sockets import endpoints


@pytest.mark.parametrize(
    ("address", "accounting", "control"),
    [
        ("127.0.0.1", "tcp://127.0.0.1:10004", "tcp://127.0.0.1:10005"),
        ("127.0.0.1:9000", "tcp://127.0.0.1:9000", "tcp://127.0.0.1:9001"),
        ("tcp://master.example", "tcp://master.example:10004", "tcp://master.example:10005"),
        ("tcp://master.example:7", "tcp://master.example:7", "tcp://master.example:8"),
        ("tcp://*:10004", "tcp://*:10004", "tcp://*:10005"),
        ("tcp://127.0.0.1:0", "tcp://127.0.0.1:0", "tcp://127.0.0.1:0"),
        ("tcp://127.0.0.1:65534", "tcp://127.0.0.1:65534", "tcp://127.0.0.1:65535"),
        ("[::1]:9000", "tcp://[::1]:9000", "tcp://[::1]:9001"),
        ("tcp://[2001:db8::7]", "tcp://[2001:db8::7]:10004", "tcp://[2001:db8::7]:10005"),
        ("tcp://[fe80::1%eth0]:7", "tcp://[fe80::1%eth0]:7", "tcp://[fe80::1%eth0]:8"),
        ("::1", "tcp://[::1]:10004", "tcp://[::1]:10005"),
        ("ipc:///run/headgate.sock", "ipc:///run/headgate.sock", "ipc:///run/headgate.sock.control"),
        ("ipc://@headgate", "ipc://@headgate", "ipc://@headgate.control"),
        ("inproc://bus", "inproc://bus", "inproc://bus.control"),
    ],
)
def test_one_address_names_both_sockets(address, accounting, control):
    assert endpoints(address) == (accounting, control)


@pytest.mark.parametrize(
    "address",
    [
        "",
        " ",
        "127.0.0.1:",
        ":10004",
        "127.0.0.1:65535",
        "127.0.0.1:99999",
        "127.0.0.1:-1",
        "tcp://",
        "tcp://a b",
        "tcp://host:1:2",
        "tcp://a..b:1",
        "x" * 64 + ":1",
        "tcp://host/path",
        "udp://127.0.0.1:1",
        "http://127.0.0.1:1",
        "ipc://",
        "inproc://",
        "[::1",
        "tcp://eth0;127.0.0.1:5555",
    ],
)
def test_what_is_no_address_is_quoted_beside_one_that_works(address):
    with pytest.raises(
        ConfigurationError, match=r"invalid master address .*; expected one such as 'tcp://127\.0\.0\.1:10004'"
    ) as told:
        endpoints(address)
    assert repr(address) in str(told.value)
