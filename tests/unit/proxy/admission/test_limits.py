"""Limits of clients, and slots for tunnels: never more than the maximum, and none lost with a worker that dies."""

import asyncio
import os
from contextlib import suppress

import pytest

from headgate.limit import Rule
from headgate.proxy.admission import limits as module
from headgate.proxy.admission.limits import Clients, TunnelSlots, client_of, create_slots, locked
from headgate.proxy.refusal import Refusal
from tests.unit.proxy.admission.locks import locked_by_another


def test_clients_are_identified_by_address():
    for host, client in (
        ("192.0.2.7", bytes([192, 0, 2, 7])),
        ("::ffff:192.0.2.7", bytes([192, 0, 2, 7])),
        ("2001:db8:1:2:3:4:5:6", bytes.fromhex("20010db800010002")),
        ("fe80::1%eth0", bytes.fromhex("fe80000000000000")),
    ):
        assert client_of(host) == client, host


def test_addresses_of_one_ipv6_prefix_are_one_client():
    assert client_of("2001:db8::1") == client_of("2001:db8::ffff:1")
    assert client_of("2001:db8::1") != client_of("2001:db8:0:1::1")


def refused(clients, client, now=0.0):
    with pytest.raises(Refusal) as caught:
        clients.admit(client, now=now)
    return caught.value


def test_tunnels_of_a_client_are_limited():
    clients = Clients(tunnels=2)
    clients.admit(b"one", now=0)
    clients.admit(b"one", now=0)
    refusal = refused(clients, b"one")
    assert (refusal.reason, refusal.rule.status) == ("client_tunnels", 429)
    clients.admit(b"other", now=0)
    clients.leave(b"one")
    clients.admit(b"one", now=0)


def test_the_rate_limit_reports_the_delay():
    clients = Clients(tunnels=100, rule=Rule.parse("1 per 3s burst 2"))
    clients.admit(b"one", now=1000.0)
    clients.admit(b"one", now=1000.0)
    refusal = refused(clients, b"one", now=1000.75)
    assert (refusal.reason, refusal.rule.status, refusal.retry_after) == ("client_rate", 429, 3)
    clients.admit(b"other", now=1000.75)
    clients.admit(b"one", now=1003.0)


def test_a_rate_limited_request_takes_no_tunnel():
    clients = Clients(tunnels=1, rule=Rule.parse("1/h burst 1"))
    clients.admit(b"one", now=1000.0)
    clients.leave(b"one")
    refused(clients, b"one", now=1000.0)
    assert clients._open == {}


def test_expired_rates_are_forgotten():
    clients = Clients(tunnels=1, rule=Rule.parse("1/s"))
    for number in range(2_000):
        for _ in range(2):
            with suppress(Refusal):
                clients.admit(b"%d" % number, now=5.0 + number)
                clients.leave(b"%d" % number)
    assert len(clients._gate.master) + clients._gate._tables.size < 100


def test_the_number_of_clients_is_limited(monkeypatch):
    monkeypatch.setattr(module, "_MAX_CLIENTS", 64)
    clients = Clients(tunnels=1, rule=Rule.parse("1/h"))
    for number in range(1_000):
        clients.admit(b"%d" % number, now=5.0)
        clients.leave(b"%d" % number)
    assert len(clients._gate.master) <= 64


@pytest.fixture
def descriptor():
    descriptor = create_slots(4)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def slots(descriptor):
    made = []

    def make(most, worker=0):
        made.append(TunnelSlots(most, os.dup(descriptor), worker=worker))
        return made[-1]

    yield make
    for each in made:
        each.close()


async def test_no_more_than_the_maximum_are_taken(slots):
    some = slots(3)
    assert [await some.take() for _ in range(5)] == [True, True, True, False, False]
    assert some.taken == 3
    some.release()
    assert await some.take()
    assert not await some.take()


async def test_one_worker_alone_takes_no_more():
    alone = TunnelSlots(2, create_slots(1))
    assert [await alone.take() for _ in range(3)] == [True, True, False]
    alone.release()
    assert [await alone.take() for _ in range(2)] == [True, False]
    alone.close()


async def test_workers_share_them(slots):
    one, other = slots(2, 0), slots(2, 1)
    assert await one.take()
    assert await other.take()
    assert not await one.take()
    other.release()
    assert await one.take()
    assert other.taken == 2


async def test_slots_of_an_ended_worker_are_reclaimed(slots):
    parent, worker = slots(2, 0), slots(2, 1)
    assert await worker.take()
    assert await worker.take()
    assert not await parent.take()
    parent.reclaim(1)
    assert await parent.take()


def test_a_stopped_holder_of_the_lock_blocks_no_other_worker(slots, descriptor, monkeypatch):
    monkeypatch.setattr(module, "_MAX_TRIES", 3)
    some = slots(5)
    with locked_by_another(descriptor):
        assert asyncio.run(some.take()) is False
    assert asyncio.run(some.take()) is True


def test_the_lock_is_released_after_an_exception(descriptor):
    async def fail():
        with pytest.raises(ZeroDivisionError):
            async with locked(descriptor):
                raise ZeroDivisionError
        async with locked(descriptor):
            return True

    assert asyncio.run(fail())
