import asyncio
import time

import pytest

from headgate.config import parse
from headgate.limit import DelayUntil, Domain, Gatekeeper, Rule
from headgate.link import GatekeeperLink
from headgate.runtime import gatekeeping
from tests.unit.runtime.serving import until

RULES = (Rule.parse("1/s burst 2"),)


def test_rejections_are_those_of_the_sections():
    sections = parse(
        '[[domain]]\nname = "a"\nrules = ["1/s burst 2"]\npath_prefix = "/a/"\n[[domain]]\nname = "b"\n'
    ).domain
    reject = gatekeeping.new_rejections(sections, [section.domain() for section in sections], status=429)
    gatekeeper = Gatekeeper()
    fields = {}
    for name in ("a", "b"):
        gatekeeper.obey(DelayUntil(name, b"id", 200.0))
        response = reject(gatekeeper.admit(name, b"id", now=100.0), now=100.0)
        assert response.status == 429
        fields[name] = dict(response.fields)
    assert (fields["a"][b"ddos-bucket-with"], fields["a"][b"ratelimit-policy"]) == (b"/a/", b'"a";q=2;w=2')
    assert fields["b"][b"ddos-bucket-with"] == b"/"
    assert b"ratelimit-policy" not in fields["b"]


async def test_wait_for_masters_ends_when_all_are_connected(monkeypatch):
    link = GatekeeperLink("127.0.0.1:9", ["api"])
    monkeypatch.setattr(GatekeeperLink, "has_all_masters", property(lambda self: next(connected)))
    monkeypatch.setattr(GatekeeperLink, "has_master", True)
    connected = iter([False, False, True])
    await gatekeeping.wait_for_masters(link)
    assert list(connected) == []
    link.close()


async def test_wait_for_masters_ends_without_one(monkeypatch):
    monkeypatch.setattr(gatekeeping, "_SUBSCRIBE_TIMEOUT", 0.0)
    link = GatekeeperLink("127.0.0.1:9", ["api"])
    await gatekeeping.wait_for_masters(link)
    link.close()


async def test_expired_holds_of_the_gatekeeper_in_force_are_forgotten(monkeypatch):
    monkeypatch.setattr(gatekeeping, "_FORGET_INTERVAL", 0.0)
    now = time.time()
    old, new = Gatekeeper(), Gatekeeper()
    for gatekeeper in (old, new):
        gatekeeper.obey(DelayUntil("api", b"ended", now - 1.0))
    work = asyncio.ensure_future(gatekeeping.forget_expired(lambda: new))
    async with asyncio.timeout(10):
        await until(lambda: not new._tables.size)
    assert old._tables.size == 1
    work.cancel()


def test_short_holds_are_reported_once_there_are_some(monkeypatch):
    monkeypatch.setattr(gatekeeping, "_REPORT_INTERVAL", 0.0)
    limits, messages = iter([None, None, 60.0]), []
    asyncio.run(gatekeeping.report_short_holds("gate.max_hold", lambda: next(limits), messages.append))
    (message,) = messages
    assert message.startswith("warning: a master holds a client for longer than gate.max_hold, 60 s, so its hold was")


@pytest.mark.parametrize("domain", ["api", "unknown"])
def test_longest_holds_are_listed_with_their_ends(domain):
    now = time.time()
    gatekeeper = Gatekeeper()
    for number in range(12):
        gatekeeper.obey(DelayUntil("api", b"%d" % number, now + 60.0 + number))
    held = asyncio.run(gatekeeping.longest_holds(gatekeeper, domain, bytes.decode))
    expected = [str(number) for number in range(11, 1, -1)] if domain == "api" else []
    assert [one.identifier for one in held] == expected
    assert [one.release for one in held] == [round(now + 60.0 + int(name), 3) for name in expected]


def test_state_of_a_domain_has_its_rules_and_totals():
    gatekeeper = Gatekeeper()
    gatekeeper.admit("api", b"alice", now=100.0)
    state = gatekeeping.domain_state(gatekeeper, Domain("api", RULES, "gcra"), ())
    assert (state.rules, state.algorithm, state.accepted, state.rejected) == (("1/s burst 2",), "gcra", 1, 0)
    assert gatekeeping.domain_state(gatekeeper, Domain("other"), ()).accepted == 0
    assert "other" not in gatekeeper.totals


@pytest.mark.parametrize("has_link", [False, True])
def test_counters_are_those_of_the_gatekeeper_and_its_link(has_link):
    gatekeeper = Gatekeeper(max_hold=60.0)
    gatekeeper.obey(DelayUntil("api", b"alice", 300.0), now=100.0)
    link = GatekeeperLink("127.0.0.1:9", ["api"]) if has_link else None
    counters = gatekeeping.gatekeeper_counters(gatekeeper, link)
    assert (counters["gatekeeper_evicted"], counters["gatekeeper_shortened"], counters["gatekeeper_clock_steps"]) == (
        0,
        1,
        0,
    )
    assert ("link_sent" in counters) is has_link
    if link is not None:
        link.close()
