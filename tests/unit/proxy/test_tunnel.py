"""Tunnels: their limits, their clock and their end."""

import gc
import weakref

import pytest

from headgate.proxy.connect import Limits
from headgate.proxy.net.poller import READ
from tests.unit.proxy.tunnel import Tunnelled, tunnelled


def send(one: Tunnelled, count: int) -> None:
    """Have the client send."""
    one.client.send(b"x" * count)
    one.tunnel.near.ready(READ)
    one.drain(one.target)


def receive(one: Tunnelled, count: int) -> None:
    """Have the client receive."""
    one.target.send(b"x" * count)
    one.tunnel.far.ready(READ)
    one.drain(one.client)


def test_what_was_sent_ahead_comes_first() -> None:
    with tunnelled(early=b"hello ") as one:
        one.client.send(b"world")
        one.tunnel.near.ready(READ)
        assert one.target.recv(100) == b"hello world"
    assert one.told == [(0, 11, "drained")]


def test_silence_ends_a_tunnel() -> None:
    with tunnelled(Limits(idle=10)) as one:
        one.relay.now += 9
        one.relay.look_after()
        receive(one, 1)
        one.relay.now += 9
        one.relay.look_after()
        assert not one.told
        one.relay.now += 1
        one.relay.look_after()
        assert one.told == [(1, 0, "idle")]


def test_a_tunnel_that_is_read_slowly_is_not_silent() -> None:
    with tunnelled(Limits(idle=10)) as one:
        one.tunnel.near.give(memoryview(b"x" * 5_000_000))
        for _ in range(3):
            one.relay.now += 9
            one.client.recv(300_000)
            one.tunnel.near.ready(4)
            one.relay.look_after()
        assert not one.told


def test_a_tunnel_lasts_so_long_at_most() -> None:
    with tunnelled(Limits(idle=10, max_seconds=15)) as one:
        for _ in range(2):
            one.relay.now += 7
            send(one, 1)
            one.relay.look_after()
        assert not one.told
        one.relay.now += 1
        one.relay.look_after()
        assert one.told == [(0, 2, "max_seconds")]


def test_so_many_bytes_pass_at_most() -> None:
    with tunnelled(Limits(max_bytes=100)) as one:
        send(one, 60)
        receive(one, 40)
        assert not one.told
        one.target.send(b"x")
        one.tunnel.far.ready(READ)
        assert one.told == [(40, 60, "max_bytes")]


def test_a_tunnel_may_end_with_its_last_byte() -> None:
    with tunnelled(Limits(max_bytes=100)) as one:
        send(one, 60)
        receive(one, 40)
        one.client.close()
        one.tunnel.near.ready(READ)
        one.target.close()
        one.tunnel.far.ready(READ)
        assert one.told == [(40, 60, "ended")]


def test_what_is_sent_ahead_is_limited_too() -> None:
    with tunnelled(Limits(max_bytes=100), early=b"x" * 101) as one:
        assert one.told == [(0, 0, "max_bytes")]


def test_a_client_may_not_send_more_than_its_share() -> None:
    with tunnelled(Limits(byte_ratio=2)) as one:
        send(one, 1 << 14)  # a handshake, a request
        receive(one, 4_000)
        send(one, 2_000)
        assert not one.told
        one.client.send(b"x")
        one.tunnel.near.ready(READ)
        assert [why for _, _, why in one.told] == ["byte_ratio"]


def test_a_client_may_not_send_more_than_its_share_in_one_go_either() -> None:
    """However much of it happens to be read at once."""
    with tunnelled(Limits(byte_ratio=2)) as one:
        one.client.send(bytes(60_000))
        one.tunnel.near.ready(READ)
        assert one.told == [(0, 0, "byte_ratio")]


def test_a_client_that_is_answered_in_turn_is_judged_by_what_it_was_answered() -> None:
    with tunnelled(Limits(byte_ratio=1)) as one:
        for _ in range(20):
            send(one, 10_000)
            receive(one, 10_000)
        assert not one.told


@pytest.mark.parametrize("ratio", [0, 1])
def test_a_client_may_receive_as_much_as_it_likes(ratio: float) -> None:
    with tunnelled(Limits(byte_ratio=ratio)) as one:
        for _ in range(20):
            send(one, 100)
            receive(one, 10_000)
        assert not one.told


def test_a_tunnel_ends_once() -> None:
    with tunnelled() as one:
        one.tunnel.end("idle")
        one.tunnel.end("drained")
        one.tunnel.expire()
        assert one.told == [(0, 0, "idle")]


def test_nothing_that_is_over_waits_for_the_collector() -> None:
    """Thousands of tunnels end per second; a search of the memory for each of their cycles would cost more."""
    gc.disable()
    try:
        with tunnelled() as one:
            gone = [weakref.ref(sock) for sock in (one.near, one.far)]
            one.near = one.far = one.client
            one.tunnel.end("idle")
            one.tunnel = None
            assert [each() for each in gone] == [None, None]
    finally:
        gc.enable()
