"""Clients and their limits."""

from contextlib import suppress

import pytest

from headgate.limit import Rule
from headgate.proxy.admission import clients as room
from headgate.proxy.admission.clients import Clients, client_of
from headgate.proxy.refusal import Refusal


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("192.0.2.7", bytes([192, 0, 2, 7])),
        ("::ffff:192.0.2.7", bytes([192, 0, 2, 7])),
        ("2001:db8:1:2:3:4:5:6", bytes.fromhex("20010db800010002")),
        ("fe80::1%eth0", bytes.fromhex("fe80000000000000")),
    ],
)
def test_clients_are_identified_by_address(host, client):
    assert client_of(host) == client


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


def test_clients_without_tunnels_are_forgotten():
    clients = Clients(tunnels=2)
    for number in range(100):
        clients.admit(b"%d" % number, now=0)
        clients.leave(b"%d" % number)
    assert clients._open == {}


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
    monkeypatch.setattr(room, "_MAX_CLIENTS", 64)
    clients = Clients(tunnels=1, rule=Rule.parse("1/h"))
    for number in range(1_000):
        clients.admit(b"%d" % number, now=5.0)
        clients.leave(b"%d" % number)
    assert len(clients._gate.master) <= 64
