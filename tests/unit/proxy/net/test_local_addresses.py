"""Which addresses are this machine's, asked of this machine."""

import socket
from ipaddress import ip_address

import pytest

from headgate.proxy.net.local_addresses import is_local


def own_addresses() -> list[str]:
    """What this machine sends from towards others, if there is a way to them; no packet is sent."""
    found = []
    for family, there in ((socket.AF_INET, "192.0.2.78"), (socket.AF_INET6, "2001:db8::78")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as asking:
                asking.connect((there, 9))
                found.append(asking.getsockname()[0])
        except OSError:
            continue
    return found


@pytest.mark.parametrize("address", ["127.0.0.1", "127.44.5.6", "::1", *own_addresses()])
def test_an_address_of_this_machine_is_local(address: str) -> None:
    assert is_local(ip_address(address))


@pytest.mark.parametrize("address", ["192.0.2.77", "8.8.8.8", "2001:db8::77", "2606:4700::1111"])
def test_any_other_is_not(address: str) -> None:
    assert not is_local(ip_address(address))


def test_an_address_of_an_interface_is_local_by_what_the_system_would_send_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Routed(socket.socket):
        def connect(self, address: tuple[str, int]) -> None:
            self.asked = address[0]

        def getsockname(self) -> tuple[str, int]:
            return ("198.51.100.7" if self.family == socket.AF_INET else "2001:db8::7"), 40_000

    monkeypatch.setattr(socket, "socket", Routed)
    assert [is_local(ip_address(one)) for one in ("198.51.100.7", "198.51.100.8")] == [True, False]
    assert [is_local(ip_address(one)) for one in ("2001:db8::7", "2001:db8::8")] == [True, False]
