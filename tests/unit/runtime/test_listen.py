import errno
import os
import socket

import pytest

from headgate.config import Address
from headgate.errors import ConfigurationError
from headgate.runtime.listen import listen_error, reserve_addresses


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


def test_reserved_address_is_open_to_sockets_that_share_only():
    with reserve_addresses("--listen", Address("127.0.0.1", 0)) as [address]:
        assert address[1]
        with listening(address, sharing=True), listening(address, sharing=True):
            pass
        with pytest.raises(OSError, match="in use"):
            listening(address, sharing=False)
    listening(address, sharing=False).close()


def test_address_that_another_program_shares_is_not_available():
    with (
        listening(("127.0.0.1", 0), sharing=True) as taken,
        pytest.raises(ConfigurationError, match=r"is taken by another program; .* with --listen$"),
        reserve_addresses("--listen", Address(*taken.getsockname())),
    ):
        pass


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="there is no IPv6 here")
def test_star_reserves_both_families_at_one_port():
    with reserve_addresses("--listen", Address("*", 0)) as found:
        assert {host for host, _ in found} == {"0.0.0.0", "::"}
        assert len({port for _, port in found}) == 1


def test_missing_address_is_skipped_if_the_host_has_another(monkeypatch):
    found = [(socket.AF_INET, 1, 6, "", ("192.0.2.1", 0)), (socket.AF_INET, 1, 6, "", ("127.0.0.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with reserve_addresses("--listen", Address("both", 0)) as [address]:
        assert address[0] == "127.0.0.1"
    del found[1]
    with (
        pytest.raises(ConfigurationError, match=os.strerror(errno.EADDRNOTAVAIL).lower()),
        reserve_addresses("--listen", Address("both", 0)),
    ):
        pass


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.EADDRINUSE, "x"), "127.0.0.1:1 is taken by another program; stop that one, or choose"),
        (OSError(errno.EACCES, "x"), "cannot listen at 127.0.0.1:1 (permission denied); choose"),
        (socket.gaierror(socket.EAI_NONAME, "Unknown"), "cannot listen at 127.0.0.1:1 (Unknown); choose"),
    ],
)
def test_error_names_address_reason_and_flag(error, message):
    found = str(listen_error("--listen", Address("127.0.0.1", 1), error))
    assert found == f"{message} another address with --listen"
