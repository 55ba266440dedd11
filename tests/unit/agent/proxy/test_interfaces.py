"""Which addresses are this machine's, asked of this machine."""

import errno
import socket
import struct
import sys
from ipaddress import ip_address
from types import SimpleNamespace

import pytest

from headgate.agent.proxy import interfaces
from headgate.agent.proxy.interfaces import can_bind, is_local, route_is_local

OWN = ["127.0.0.1", "127.44.5.6"]
FOREIGN = ["192.0.2.77", "8.8.8.8", "2001:db8::77", "2606:4700::1111"]


def own_addresses() -> list[str]:
    """Loopback, and what this machine sends from towards others, if there is a way to them; no packet is sent."""
    found = list(OWN)
    for family, there in ((socket.AF_INET, "192.0.2.78"), (socket.AF_INET6, "2001:db8::78"), (socket.AF_INET6, "::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as asking:
                asking.connect((there, 9))
                found.append(asking.getsockname()[0])
        except OSError:
            continue
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="rtnetlink is Linux's")
def test_the_routes_know_what_is_local() -> None:
    for address in own_addresses():
        assert route_is_local(ip_address(address)) is True, address
    for address in FOREIGN:
        assert not route_is_local(ip_address(address)), address


def test_a_socket_can_be_bound_to_what_is_local() -> None:
    for address in own_addresses():
        assert can_bind(ip_address(address)), address
    for address in FOREIGN:
        assert not can_bind(ip_address(address)), address


def test_either_way_tells() -> None:
    assert is_local(ip_address("127.0.0.1"))
    assert not is_local(ip_address("192.0.2.77"))


def test_where_routes_cannot_be_asked_binding_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "AF_NETLINK")
    assert route_is_local(ip_address("127.0.0.1")) is None
    assert is_local(ip_address("127.0.0.1"))
    assert not is_local(ip_address("192.0.2.77"))


def test_where_there_is_no_route_binding_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unreachable(socket.socket):
        def recv(self, *_: int) -> bytes:
            return struct.pack("=IHHIIi", 36, 2, 0, 0, 0, -errno.ENETUNREACH) + bytes(16)  # netlink(7): NLMSG_ERROR

    with monkeypatch.context() as patched:
        patched.setattr(interfaces, "socket", SimpleNamespace(**{**vars(socket), "socket": Unreachable}))
        assert route_is_local(ip_address("127.0.0.1")) is None
        assert is_local(ip_address("127.0.0.1"))
        assert not is_local(ip_address("192.0.2.77"))


def test_routes_are_believed_before_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    # Where foreign addresses can be bound to, nearly all of the world would seem to be here.
    monkeypatch.setattr(interfaces, "can_bind", lambda address: True)
    monkeypatch.setattr(interfaces, "route_is_local", lambda address: False)
    assert not is_local(ip_address("192.0.2.77"))
