import errno
import os
import socket

import pytest

from headgate.config import Address
from headgate.runtime.listen import reserved


def listening(address, *, sharing):
    sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
    if sharing:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        sock.bind(address)
        sock.listen()
    except OSError:
        sock.close()
        raise
    return sock


def test_who_shares_may_listen_there_and_others_not():
    with reserved(Address("127.0.0.1", 0)) as [address]:
        assert address[1]
        with listening(address, sharing=True), listening(address, sharing=True):
            pass
        with pytest.raises(OSError, match="in use"):
            listening(address, sharing=False)
    listening(address, sharing=False).close()


def test_an_address_that_others_share_is_not_to_be_had():
    with (
        listening(("127.0.0.1", 0), sharing=True) as taken,
        pytest.raises(OSError, match="in use"),
        reserved(Address(*taken.getsockname())),
    ):
        pass


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="there is no IPv6 here")
def test_every_address_there_is_has_the_same_port():
    with reserved(Address("*", 0)) as found:
        assert {host for host, _ in found} == {"0.0.0.0", "::"}
        assert len({port for _, port in found}) == 1


def test_every_address_of_a_host_has_the_same_port(monkeypatch):
    found = [(socket.AF_INET, 1, 6, "", ("127.0.0.1", 0)), (socket.AF_INET, 1, 6, "", ("127.0.0.2", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with reserved(Address("both", 0)) as [one, other]:
        assert (one[0], other[0]) == ("127.0.0.1", "127.0.0.2")
        assert one[1] == other[1]


def test_an_address_that_this_machine_does_not_have_is_passed_over_where_there_is_another(monkeypatch):
    found = [(socket.AF_INET, 1, 6, "", ("192.0.2.1", 0)), (socket.AF_INET, 1, 6, "", ("127.0.0.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with reserved(Address("both", 0)) as [address]:
        assert address[0] == "127.0.0.1"
    del found[1]
    with pytest.raises(OSError, match=os.strerror(errno.EADDRNOTAVAIL)), reserved(Address("both", 0)):
        pass
