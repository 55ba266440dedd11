"""The decision on a request: local responses, domain, identifier, verdict and rejections."""

import time
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from headgate.http.h1 import RequestHead
from headgate.identity import asks_for_signature
from headgate.limit import DelayUntil, Domain, Gatekeeper
from headgate.origin import Response, Route, Routes, client_address
from headgate.origin.gateway.arrivals import ArrivalClasses, ArrivalMeter
from headgate.origin.gateway.policy import MAX_NAMED_PEERS, ClientView, GatewayPolicy
from headgate.origin.gateway.policy import decide as decide_on
from headgate.origin.gateway.record import GatewayCounters, RequestRecord
from headgate.release import Status
from tests.unit.origin.gateway.stub import StubTransport, make_policy, parse_request


def request(target: bytes = b"/", *fields: bytes) -> RequestHead:
    return parse_request(b"GET " + target + b" HTTP/1.1", *fields)


def view(address: str = "192.0.2.1", **settings: Any) -> ClientView:
    return ClientView.of(msgspec.structs.replace(make_policy(), **settings), StubTransport(address=address))


def holding(seconds: float) -> Gatekeeper:
    gatekeeper = Gatekeeper.embedded([Domain("default")])
    gatekeeper.obey(DelayUntil("default", b"192.0.2.1", time.time() + seconds))
    return gatekeeper


def decide(
    request: RequestHead, client: ClientView, counters: GatewayCounters | None = None
) -> tuple[Any, RequestRecord]:
    record = RequestRecord("192.0.2.1", time.time(), 0.0, request)
    return decide_on(record, request, client, counters or GatewayCounters()), record


@pytest.mark.parametrize(("seconds", "status"), [(-1, Status.ACCEPTED), (2, Status.DELAYED), (100, Status.REJECTED)])
def test_each_verdict_is_recorded_and_a_rejection_is_answered(seconds: float, status: Status) -> None:
    response, record = decide(request(), view(gatekeeper=holding(seconds)))
    assert record.accounting is not None
    assert (record.accounting.status, record.domain) == (status, "default")
    assert (record.reason, response is None) == (("rule", False) if status is Status.REJECTED else ("", True))


def test_a_local_response_needs_no_verdict() -> None:
    here, gatekeeper = Response(200, [], b""), holding(100)
    policy = {"local": lambda one: here if one.path == b"/here" else None, "gatekeeper": gatekeeper}
    response, record = decide(request(b"/here?x"), view(**policy))
    assert (response, record.reason, record.domain) == (here, "local", "")
    assert gatekeeper.totals == {}
    assert decide(request(), view(**policy))[1].reason == "rule"


def test_a_verified_agent_is_of_the_domain_and_the_class_of_advice_that_name_it() -> None:
    routes = Routes([Route("bots", agent="https://bot.example/keys"), Route("default")])
    found = SimpleNamespace(cached=lambda key, now: "https://bot.example/keys" if b"Signature: s" in key else "x")
    meter = ArrivalMeter(ArrivalClasses(("Bot",), {"bots": "Bot"}))
    for value in (b"s", b"other"):
        fields = b"Signature-Agent: a", b"Signature-Input: i", b"Signature: " + value
        decide(request(b"/", *fields), view(routes=routes, agents=found, arrivals=meter))
    assert meter.take() == {"Bot": 1, "": 1}


def test_a_domain_that_takes_all_requests_can_ask_for_signatures() -> None:
    response, record = decide(request(), view(challenged=frozenset({"default"})))
    assert (response.status, record.reason) == (403, "challenge")
    assert asks_for_signature([dict(response.fields)[b"accept-signature"].decode()])


def test_the_lifeboat_answers_instead_of_a_rejection() -> None:
    saved, counters = Response(200, [], b""), GatewayCounters()
    policy = {"lifeboat": lambda one: saved if one.path == b"/saved" else None, "gatekeeper": holding(100)}
    response, record = decide(request(b"/saved"), view(**policy), counters)
    assert (response, record.reason, counters.lifeboat) == (saved, "lifeboat", 1)
    assert (decide(request(), view(**policy), counters)[0].status, counters.lifeboat) == (503, 1)


def test_all_lines_of_accept_choose_the_form_of_a_rejection() -> None:
    client = view(gatekeeper=holding(100))
    for fields, media_type in (
        ((b"Accept: text/plain;q=0.5", b"accept: application/json"), b"application/problem+json"),
        ((), b"text/plain; charset=utf-8"),
    ):
        assert dict(decide(request(b"/", *fields), client)[0].fields)[b"content-type"] == media_type


def test_a_request_without_a_domain_is_forwarded_and_not_counted() -> None:
    gatekeeper = holding(100)
    response, record = decide(request(), view(gatekeeper=gatekeeper, routes=Routes([])))
    assert (response, record.accounting, gatekeeper.totals) == (None, None, {})


def test_fields_are_split_for_rules_that_read_one_only() -> None:
    for route, is_split in ((Route("a", methods=("POST",)), False), (Route("a", user_agent="Bot"), True)):
        decide(asked := request(), view(routes=Routes([route, Route("default")])))
        assert (asked._fields is not None) == is_split


def test_a_client_is_seen_by_its_address() -> None:
    assert view("::ffff:192.0.2.1").info.address == "192.0.2.1"
    assert view("2001:db8::1").identifier == b"2001:db8::/64"
    trusting: GatewayPolicy = msgspec.structs.replace(make_policy(), trusted=client_address(["10.0.0.1/32"]))
    for address, trusted in (("10.0.0.1", True), ("192.0.2.1", False)):
        info = ClientView.of(trusting, StubTransport(address=address)).info
        assert (info.trusted, info.tls) == (trusted, False)


def test_forwarding_fields_that_are_not_used_are_counted_and_their_peer_is_named_once() -> None:
    lines: list[str] = []
    both = client_address(["10.0.0.0/8"], fields=["Forwarded", "X-Forwarded-For"])
    policy: GatewayPolicy = msgspec.structs.replace(make_policy(), trusted=both, log=lines.append)
    counters, fields = GatewayCounters(), (b"Forwarded: for=192.0.2.7", b"X-Forwarded-For: 192.0.2.8")

    def ask(address: str, *sent: bytes) -> None:
        decide(request(b"/", *sent), ClientView.of(policy, StubTransport(address=address)), counters)

    for _ in range(2):
        ask("192.0.2.1", fields[1])
        ask("10.0.0.1", *fields)
        ask("10.0.0.2", fields[0])
        ask("192.0.2.2", b"Via: x")
    assert counters.forwarding_unused == {"untrusted": 2, "disagree": 2}
    assert [line.split()[:2] for line in lines] == [["192.0.2.1", "sends"], ["the", "forwarding"]]
    assert 'set gate.trusted_proxies = ["192.0.2.1"]' in lines[0]
    assert "the proxy 10.0.0.1 disagree" in lines[1]
    for number in range(3, 100):
        ask(f"192.0.2.{number}", fields[0])
    assert (len(lines), len(policy.named)) == (MAX_NAMED_PEERS, MAX_NAMED_PEERS)


def test_a_denied_client_is_answered_403_and_counts_nowhere() -> None:
    gatekeeper, counters = holding(-1), GatewayCounters()
    policy = {"gatekeeper": gatekeeper, "denies": {"192.0.2.1"}.__contains__, "trusted": client_address(["10.0.0.1"])}
    response, record = decide(request(), view(**policy), counters)
    assert (response.status, record.reason, record.domain, counters.denied) == (403, "denied", "", 1)
    named = request(b"/", b"X-Forwarded-For: 192.0.2.1")
    assert [decide(named, view(address, **policy))[0] is None for address in ("10.0.0.1", "10.0.0.2")] == [False, True]
