"""Listening sockets."""

import asyncio
import socket

import pytest

from headgate.proxy.net.listener import listening_sockets, prepare
from headgate.proxy.net.sockets import receive_buffer


def test_every_address_of_a_host_has_the_same_port() -> None:
    sockets = asyncio.run(listening_sockets("localhost", 0, reuse_port=False))
    try:
        assert len({sock.getsockname()[1] for sock in sockets}) == 1
        for sock in sockets:
            with socket.socket(sock.family) as client:
                client.connect(sock.getsockname())
    finally:
        for sock in sockets:
            sock.close()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="there is no IPv6 here")
def test_both_families_are_listened_to_by_sockets_of_their_own() -> None:
    sockets = asyncio.run(listening_sockets("*", 0, reuse_port=False))
    try:
        assert {sock.getsockname()[0] for sock in sockets} == {"0.0.0.0", "::"}
        assert len({sock.getsockname()[1] for sock in sockets}) == 1
    finally:
        for sock in sockets:
            sock.close()


def test_several_workers_may_share_a_port() -> None:
    [first] = asyncio.run(listening_sockets("127.0.0.1", 0, reuse_port=True))
    with first:
        [second] = asyncio.run(listening_sockets("127.0.0.1", first.getsockname()[1], reuse_port=True))
        second.close()
        with pytest.raises(OSError, match="in use"):
            asyncio.run(listening_sockets("127.0.0.1", first.getsockname()[1], reuse_port=False))


def test_an_address_of_another_machine_is_an_error() -> None:
    with pytest.raises(OSError, match="assign"):
        asyncio.run(listening_sockets("192.0.2.1", 0, reuse_port=False))


def test_an_address_that_is_not_here_is_passed_over_where_there_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0)) for host in ("192.0.2.1", "127.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    [listener] = asyncio.run(listening_sockets("somewhere", 0, reuse_port=False))
    assert listener.getsockname()[0] == "127.0.0.1"
    listener.close()


@pytest.mark.skipif(not hasattr(socket, "TCP_KEEPIDLE"), reason="told in another way here")
def test_accepted_sockets_inherit_what_tunnels_need() -> None:
    [listener] = asyncio.run(listening_sockets("127.0.0.1", 0, reuse_port=False))
    with listener, socket.socket() as client:
        prepare(listener)
        client.connect(listener.getsockname())
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= receive_buffer()
