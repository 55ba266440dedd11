"""Decisions: the order of the checks, the reasons of refusals, and that everything taken is released."""

import asyncio
import math
import socket
from ipaddress import ip_address, ip_network

import pytest

from headgate.advice.decision import Advice
from headgate.advice.parser import UNREACHABLE, AdviceEntry
from headgate.fetch.destinations import AddressRules
from headgate.limit import Rule
from headgate.proxy.admission.authority import HostRules
from headgate.proxy.admission.decide import Admission, ProxyPolicy
from headgate.proxy.admission.destinations import Resolver
from headgate.proxy.admission.limits import Clients, TunnelSlots, create_slots
from headgate.proxy.admission.tokens import TokenCheck, create_replay_table
from headgate.proxy.connect import AcceptedConnect, ConnectRequest, RefusedConnect
from headgate.proxy.refusal import Refusal
from headgate.token import mint, new_key
from tests.e2e.tunnels import until
from tests.quotes import quotes

NOW = 1_700_000_000.0
HERE = ip_address("127.0.0.1")


class World:
    """Everything that an `Admission` uses; `calls` has the lookups and queries for advice in order."""

    def __init__(self, **options):
        self.calls = []
        self.now = NOW
        self.steady = 5.0
        self.log = []
        self.advice_of = {}
        self.known_of = {}
        self.unreachable_reason = None
        self.addresses = [HERE]
        self.lookup_gate = None
        self.pending = None
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.port = self.listener.getsockname()[1]
        self.slots = TunnelSlots(options.pop("slots", 3), create_slots(1))
        allowed = options.pop("allowed", [ip_network("127.0.0.0/8")])
        self.clients = Clients(tunnels=options.pop("client_tunnels", 10), rule=options.pop("rule", None))
        self.decision = Admission(
            ProxyPolicy(key=b"k" * 16, **options.pop("policy", {})),
            tokens=options.pop("tokens", None),
            clients=self.clients,
            slots=self.slots,
            hosts=HostRules(deny=["denied.example"], ports=[self.port]),
            resolver=Resolver(AddressRules(allowed, is_local_address=lambda address: False), self._lookup),
            advice=self,
            log=self,
            seconds_left=lambda: 12.0,
            clock=lambda: self.now,
            steady=lambda: self.steady,
            **options,
        )

    async def _lookup(self, host, client):
        self.calls.append(f"look up {host}")
        if self.lookup_gate is not None:
            await self.lookup_gate.wait()
        if not self.addresses:
            raise Refusal("name")
        return self.addresses

    def known(self, origin, *, now):
        return self.known_of.get(origin)

    def pending_fetch(self, origin):
        return self.pending

    async def advice(self, authority, endpoints):
        self.calls.append(f"ask {authority.origin}")
        if self.pending is not None:
            await asyncio.shield(self.pending)
        advice = self.advice_of.get(authority.host, None)
        return Advice(authority.origin, advice, "because", math.inf), self.unreachable_reason

    def refused(self, asked, origin, refusal):
        self.log.append((origin, refusal.reason))

    async def decide(self, host="www.example.org", port=None, **asked):
        asked = {"peer": ("192.0.2.1", 1234), "head_bytes": 100, **asked}
        return await self.decision.decide(ConnectRequest(authority=f"{host}:{port or self.port}", **asked))

    def taken(self):
        return self.slots.taken, sum(self.clients._open.values())

    def close(self):
        self.listener.close()
        self.slots.close()


@pytest.fixture
def world():
    worlds = []

    def make(**options):
        worlds.append(World(**options))
        return worlds[-1]

    yield make
    for each in worlds:
        each.close()


def refused(world, reason, **asked):
    """Check that a request is refused for `reason`, and that everything taken is released."""
    before = world.taken()
    outcome = asyncio.run(world.decide(**asked))
    assert isinstance(outcome, RefusedConnect)
    assert outcome.reason == reason
    assert world.log[-1][1] == reason
    assert world.taken() == before
    return outcome


def accepted(world, **asked):
    outcome = asyncio.run(world.decide(**asked))
    assert isinstance(outcome, AcceptedConnect), outcome
    return outcome


async def is_accepted(world, client, host="www.example.org"):
    """Return whether a client gets a tunnel, which is closed at once."""
    outcome = await world.decide(host, peer=(client, 1))
    if isinstance(outcome, AcceptedConnect):
        outcome.socket.close()
        outcome.on_closed(0, 0, "ended")
        return True
    assert outcome.reason == "advice_fraction"
    return False


def test_an_accepted_request_releases_its_slot_at_the_end(world):
    world = world(policy={"idle": 7.0})
    tunnel = accepted(world)
    assert world.calls == ["look up www.example.org", f"ask https://www.example.org:{world.port}"]
    assert tunnel.socket.getpeername() == world.listener.getsockname()
    assert not tunnel.socket.getblocking()
    assert tunnel.idle == 7.0
    assert world.taken() == (1, 1)
    assert world.decision.counts.tunnels == 1
    tunnel.on_closed(100, 10, "ended")
    tunnel.socket.close()
    assert world.taken() == (0, 0)
    counts = world.decision.counts
    assert (counts.tunnels, counts.received, counts.sent, counts.connects) == (0, 100, 10, {"accepted": 1})
    assert counts.connect_request_bytes == 100
    assert world.log == []


def test_a_malformed_target_is_refused(world):
    world = world()
    outcome = asyncio.run(world.decision.decide(ConnectRequest(authority="www.example.org", peer=("192.0.2.1", 1))))
    assert (outcome.status, outcome.reason) == (400, "malformed")
    assert "retry-after" not in dict(outcome.fields)
    assert world.calls == []


def test_requests_during_the_shutdown_are_refused(world):
    world = world()
    outcome = refused(world, "draining", draining=True)
    assert (outcome.status, dict(outcome.fields)["retry-after"]) == (503, "12")
    assert world.calls == []


class Counting(TokenCheck):
    """Counts the tokens that it checks."""

    checked = 0

    async def check(self, token, *, now, origin):
        self.checked += 1
        return await super().check(token, now=now, origin=origin)


def test_the_clients_limits_are_checked_before_the_token(world):
    key = new_key(entropy=lambda count: b"1" * count)
    tokens = Counting([key], create_replay_table(100))
    world = world(tokens=tokens, rule=Rule.parse("1 per 10s burst 2"), client_tunnels=1)
    refused(world, "token_missing")  # it counts towards the client's rate all the same
    token = mint(key, now=NOW, ttl=60.0, origin=None, entropy=lambda count: b"a" * count)
    accepted(world, fields=[("proxy-authorization", f"Bearer {token}")]).socket.close()
    assert tokens.checked == 2
    refused(world, "client_rate")
    world.steady += 10
    refused(world, "client_tunnels")
    assert tokens.checked == 2


def test_tokens_are_checked_before_the_lookup(world):
    key, other = (new_key(entropy=lambda count, seed=seed: seed * count) for seed in (b"1", b"2"))
    world = world(tokens=TokenCheck([key], create_replay_table(100)))

    def with_token(text):
        return {"fields": [("proxy-authorization", f"Bearer {text}")]}

    def minted(key, *, ttl=60.0, origin=None, now=NOW, seed=b"a"):
        return mint(key, now=now, ttl=ttl, origin=origin, entropy=lambda count: seed * count)

    for reason, asked in (
        ("token_missing", {}),
        ("token_missing", {"fields": [("proxy-authorization", "Basic eDp5")]}),
        ("token_invalid", with_token("nonsense")),
        ("token_invalid", with_token(minted(other))),
        ("token_invalid", with_token(minted(key, origin="https://elsewhere.example"))),
        ("token_expired", with_token(minted(key, now=NOW - 61))),
        ("token_invalid", {"fields": 2 * with_token(minted(key))["fields"]}),
    ):
        outcome = refused(world, reason, **asked)
        assert outcome.status == 407
        assert dict(outcome.fields)["retry-after"] == "0"
        assert dict(outcome.fields)["proxy-authenticate"].startswith("Bearer")
    assert world.calls == []
    good = with_token(minted(key))
    accepted(world, **good).socket.close()
    world.calls.clear()
    refused(world, "token_replayed", **good)
    assert world.calls == []
    # A token is used up when it is checked, also if the CONNECT is refused later.
    spent = with_token(minted(key, seed=b"b"))
    refused(world, "port", port=1, **spent)
    refused(world, "token_replayed", **spent)


def test_the_rate_uses_the_steady_clock(world):
    world = world(rule=Rule.parse("1 per 10s"))
    accepted(world).socket.close()
    world.now -= 86_400.0
    assert dict(refused(world, "client_rate").fields)["retry-after"] == "10"
    world.steady += 10.0
    accepted(world).socket.close()


def test_a_slot_is_taken_before_the_lookup(world):
    world = world(slots=1)
    accepted(world).socket.close()
    world.calls.clear()
    outcome = refused(world, "tunnels", peer=("192.0.2.2", 1))
    assert (outcome.status, dict(outcome.fields)["retry-after"]) == (503, "5")
    assert world.calls == []


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"port": 25}, "port"),
        ({"host": "denied.example"}, "host"),
        ({"host": "www.denied.example"}, "host"),
        ({"host": "10.0.0.1"}, "address"),
        ({"host": "[::ffff:127.0.0.1]"}, "address"),
    ],
)
def test_host_rules_are_checked_before_the_lookup(world, asked, reason):
    world = world(allowed=[])
    outcome = refused(world, reason, **asked)
    assert (outcome.status, dict(outcome.fields)["retry-after"]) == (403, "0")
    assert world.calls == []


def test_addresses_are_checked_before_the_advice(world):
    world = world(allowed=[])
    world.addresses = [ip_address("93.184.216.34"), ip_address("10.0.0.1")]
    refused(world, "address")
    assert world.calls == ["look up www.example.org"]


def test_a_failed_lookup_is_refused(world):
    world = world()
    world.addresses = []
    outcome = refused(world, "name")
    assert (outcome.status, dict(outcome.fields)["retry-after"]) == (502, "0")


def test_advice_can_refuse(world):
    world = world()
    world.advice_of["www.example.org"] = AdviceEntry(disallowed=True)
    outcome = refused(world, "advice_disallowed")
    assert (outcome.status, dict(outcome.fields)["retry-after"]) == (403, "0")
    assert 'details="advice_disallowed"' in dict(outcome.fields)["proxy-status"]
    world.advice_of["www.example.org"] = AdviceEntry(fraction=0.0)
    refused(world, "advice_fraction")


def test_known_advice_is_checked_before_the_lookup(world):
    world = world()
    origin = f"https://www.example.org:{world.port}"
    world.known_of[origin] = Advice(origin, AdviceEntry(disallowed=True), "", NOW + 600)
    refused(world, "advice_disallowed")
    assert world.calls == []
    world.known_of[origin] = Advice(origin, UNREACHABLE, "", NOW + 60)
    refused(world, "advice_unreachable")
    assert world.calls == []
    # An address needs no lookup, so it is checked first.
    literal = f"https://10.0.0.1:{world.port}"
    world.known_of[literal] = Advice(literal, AdviceEntry(disallowed=True), "", NOW + 600)
    refused(world, "address", host="10.0.0.1")
    # A name whose advice permits the request is looked up and checked.
    world.known_of[origin] = Advice(origin, AdviceEntry(), "", NOW + 600)
    world.addresses = [ip_address("10.0.0.1")]
    refused(world, "address")


@quotes(
    "traffic-advice 7",
    "Agents should avoid approaches which might bias the permitted connections or requests in ways that "
    "might make this scaling non-linear (e.g., by preferring certain kinds of connection or user).",
)
async def test_no_client_is_preferred(world):
    world, drawn = world(slots=10_000), []
    for host in ("www.example.org", "other.example.org"):
        world.advice_of[host] = AdviceEntry(fraction=0.5)
        drawn.append({number for number in range(200) if await is_accepted(world, f"198.51.100.{number}", host)})
    # Each half of the clients, by one origin, is halved by another: six standard deviations.
    here, there = drawn
    assert abs(len(here & there) - 50) < 37
    assert abs(len(here - there) - 50) < 37


def test_clients_of_one_subscriber_share_a_draw(world):
    world = world(slots=10_000)
    world.advice_of["www.example.org"] = AdviceEntry(fraction=0.5)

    async def drawn(subscriber):
        return {await is_accepted(world, f"2001:db8:0:{subscriber}::{host}") for host in range(1, 4)}

    drawn_by = [asyncio.run(drawn(subscriber)) for subscriber in range(20)]
    assert all(len(draws) == 1 for draws in drawn_by)
    assert {True} in drawn_by
    assert {False} in drawn_by


def test_a_client_has_another_draw_after_ten_minutes(world):
    world = world(slots=10_000)
    world.advice_of["www.example.org"] = AdviceEntry(fraction=0.5)

    def drawn(now):
        world.now = now
        return [asyncio.run(is_accepted(world, f"198.51.100.{number}")) for number in range(20)]

    begin = NOW // 600 * 600
    assert drawn(begin) == drawn(begin + 599.9) != drawn(begin + 600)


def test_the_first_request_learns_why_an_origin_is_unreachable(world):
    for policy in ({}, {"unreachable": "permit"}):
        made = world(policy=policy)
        made.listener.close()
        made.advice_of["www.example.org"] = UNREACHABLE
        made.unreachable_reason = Refusal("dial_refused")
        outcome = refused(made, "dial_refused")
        assert (outcome.status, dict(outcome.fields)["retry-after"]) == (502, "0")


def test_an_unreachable_origin_is_permitted_if_the_policy_says_so(world):
    made = world(policy={"unreachable": "permit"})
    made.advice_of["www.example.org"] = UNREACHABLE
    accepted(made).socket.close()
    made = world()
    made.advice_of["www.example.org"] = UNREACHABLE
    refused(made, "advice_unreachable")


async def test_a_cancelled_decision_releases_everything(world):
    world = world()
    world.lookup_gate = asyncio.Event()
    pending_request = asyncio.ensure_future(world.decide())
    await until(lambda: world.calls)
    assert world.taken() == (1, 1)
    pending_request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pending_request
    assert world.taken() == (0, 0)


async def test_a_pending_fetch_counts_as_a_tunnel_of_its_client(world):
    world = world(client_tunnels=2, slots=2)
    world.pending = asyncio.get_running_loop().create_future()
    for _ in range(2):
        world.calls.clear()
        pending_request = asyncio.ensure_future(world.decide())
        await until(lambda: any(call.startswith("ask ") for call in world.calls))
        pending_request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pending_request
    assert world.taken() == (0, 2)
    assert (await world.decide()).reason == "client_tunnels"
    world.pending.set_result(None)
    await asyncio.sleep(0)
    assert world.taken() == (0, 0)


def test_early_refusals_are_counted_and_logged(world):
    world = world()
    for reason, status in (("malformed", 400), ("method", 405), ("connections", 503)):
        outcome = world.decision.refuse_early(reason, ("192.0.2.1", 1))
        assert (outcome.status, outcome.reason) == (status, reason)
        assert world.log[-1] == (None, reason)
    assert world.decision.counts.connects == {"malformed": 1, "method": 1, "connections": 1}
