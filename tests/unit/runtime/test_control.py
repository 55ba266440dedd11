"""What `headgate ctl` reads and does in one process, behind `run_control`."""

import asyncio
import time

import msgspec
import pytest

from headgate.errors import ConfigurationError, HeadgateError
from headgate.http.h1 import RequestLimits, parse_request_head
from headgate.limit import Domain, Gatekeeper, Rule
from headgate.limit.messages import header_identifier
from headgate.observe.state import identifier_digest
from headgate.origin.gateway.record import RequestRecord
from headgate.origin.identify import client_address
from headgate.runtime.control import ProcessControl, run_control
from headgate.runtime.lifecycle import Backend, Server

PEER = "127.0.0.1:5"
SECRET = header_identifier(b"x-api-key", b"secret")
RULES = {"api": ("1/s burst 2", "1/min burst 3"), "other": ("1/min burst 1",)}
DOMAINS = tuple(Domain(name, tuple(map(Rule.parse, rules))) for name, rules in RULES.items())


class Gate(Backend):
    def __init__(self):
        self.control = ProcessControl(lambda *_: "embedded")
        self.gatekeeper = Gatekeeper.embedded(DOMAINS, max_delay=0.0)
        self.control.configure(self.gatekeeper, DOMAINS, client_address())

    async def answer(self, name, argument):
        return msgspec.msgpack.decode(msgspec.msgpack.encode(getattr(self.control, name)(**argument)))

    def request(self, identifier=b"192.0.2.1", number=0, domain="api", path=b"/a", later=0.0):
        now = time.time() + later
        accounting = self.gatekeeper.admit(domain, identifier, now=now)
        head = parse_request_head(b"GET " + path + b" HTTP/1.1\r\nHost: a\r\n\r\n", RequestLimits())
        reason, status = ("rule", 503) if accounting.status.value == "REJECTED" else ("", 200)
        values = {"accounting": accounting, "reason": reason, "status": status, "request_id": b"id%d" % number}
        self.control.add(RequestRecord("192.0.2.1", now, 1.0, head, **values))
        return status


def ask(gate, name, **arguments):
    server = Server()
    server.backend = gate
    return asyncio.run(run_control(server, name, arguments, PEER))


def test_why_names_the_rule_that_holds_longest_and_recent_requests():
    gate = Gate()
    assert [gate.request(number=number) for number in range(5)] == [200, 200, 503, 503, 503]
    assert [gate.request(number=number, later=1.5) for number in (5, 6)] == [200, 503]
    assert "held by the rule 1/s burst 2, applied" in ask(gate, "why", request="id4")["requests"][0]["cause"]
    answer = ask(gate, "why", request="id6")
    (request,), (held,) = answer["requests"], answer["held"]
    assert (request["status"], request["path"], request["identifier"]) == (503, "/a", "192.0.2.1")
    cause = "in domain 'api', the client is held by the rule 1/min burst 3, applied by the embedded master"
    assert request["cause"] == cause
    assert held["until"] == pytest.approx(request["held_until"], abs=0.01)
    answer = ask(gate, "why", identifier="192.0.2.1")
    assert [one["request_id"] for one in answer["requests"]] == ["id6", "id5", "id4", "id3", "id2", "id1", "id0"]
    assert ask(gate, "holds", identifier="192.0.2.1").keys() == {"held"}


def test_rejected_requests_are_kept_whatever_follows_and_only_so_many():
    gate = Gate()
    for number in range(5):
        gate.request(number=number)
    for number in range(3_000):
        gate.request(b"%d" % number, 10 + number, path=b"/" + b"x" * 4_000)
    assert ask(gate, "why", request="id4")["requests"][0]["status"] == 503
    assert len(ask(gate, "why", request="id3009")["requests"][0]["path"]) == 200
    with pytest.raises(HeadgateError, match=r"no request 'id10' is among the last 1000 .*use --identifier"):
        ask(gate, "why", request="id10")


def test_hold_and_release(capsys):
    gate = Gate()
    ask(gate, "hold", identifier="192.0.2.1", seconds="7200")
    assert gate.request() == gate.request(domain="other") == 503  # longer than any rule holds
    assert all(one["seconds"] > 7_000 for one in ask(gate, "holds", identifier="192.0.2.1")["held"])
    assert ask(gate, "why", request="id0")["requests"][0]["cause"].endswith("is held by an operator")
    assert "release 192.0.2.1, holds: 2" in ask(gate, "release", identifier="192.0.2.1")["done"]
    assert gate.request() == gate.request(domain="other") == 200
    assert gate.request(domain="other") == 503
    ask(gate, "release", identifier="192.0.2.1")
    assert gate.request(domain="other") == 200  # the requests before are forgotten, too
    with pytest.raises(HeadgateError, match=r"^192\.0\.2\.9 was not held"):
        ask(gate, "release", identifier="192.0.2.9")
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == [
        f"headgate: ctl: hold 192.0.2.1 for 7200 s, domains: 2, by {PEER}",
        f"headgate: ctl: release 192.0.2.1, holds: 2, by {PEER}",
    ]


def test_a_hold_outlives_a_reload():
    gate, new = Gate(), Gate()
    ask(gate, "hold", identifier="192.0.2.1", seconds="7200")
    new.gatekeeper.adopt(gate.gatekeeper, ["api"], now=time.time())  # the rules of `other` have changed
    assert [new.request(), new.request(domain="other")] == [503, 503]
    assert all(one["seconds"] > 7_000 for one in ask(new, "holds", identifier="192.0.2.1")["held"])
    assert "an operator" in str(ask(new, "why", identifier="192.0.2.1"))


@pytest.mark.parametrize("named", ["secret", identifier_digest(SECRET)])
def test_credentials_are_named_by_their_value_or_digest_and_never_shown(named, capsys):
    gate = Gate()
    assert [gate.request(SECRET, number) for number in range(3)] == [200, 200, 503]
    answers = [str(ask(gate, name, identifier=named)) for name in ("why", "release")]
    assert [identifier_digest(SECRET) in answer for answer in answers] == [True, True]
    assert "secret" not in "".join(answers) + capsys.readouterr().err
    assert gate.request(SECRET) == 200


def test_an_ipv6_address_means_its_network():
    gate = Gate()
    ask(gate, "hold", identifier="2001:db8::7", seconds="60")
    assert gate.request(b"2001:db8::/64") == 503
    assert ask(gate, "holds", identifier="2001:db8::/64")["held"]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("hold", {"identifier": "a", "seconds": "0"}, "seconds must be a number"),
        ("hold", {"identifier": "a", "seconds": "nan"}, "seconds must be a number"),
        ("hold", {"identifier": "a", "seconds": "5_0"}, "seconds must be a number"),
        ("hold", {"identifier": "a", "seconds": "1e9"}, "seconds must be a number"),
        ("hold", {"identifier": "192.0.2.0/24", "seconds": "1"}, "is a network"),
        ("hold", {"seconds": "1"}, "1 to 255 bytes"),
        ("release", {"identifier": "x" * 256}, "1 to 255 bytes"),
        ("mode", {"domain": "api", "mode": "off"}, "mode must be enforce or shadow, got 'off'"),
    ],
)
def test_wrong_arguments(name, arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        ask(Gate(), name, **arguments)


def test_servers_without_gatekeepers_say_so():
    for name, arguments in [("why", {"request": "a"}), ("hold", {"identifier": "a", "seconds": "1"})]:
        with pytest.raises(HeadgateError, match="ask a gate or a master"):
            ask(Backend(), name, **arguments)
    with pytest.raises(HeadgateError, match="applies no rules"):
        ask(Backend(), "mode", domain="api", mode="shadow")
