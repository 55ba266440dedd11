"""Gatekeepers that know the rules, before their master has answered: they share memory, or know each other's holds."""

import os

import pytest

from headgate.limit import DelayUntil, Domain, Gatekeeper, Rule
from headgate.limit.arrivals import MEMORY_SIZE, Arrivals
from headgate.release import ASAP, Status

START = 1_700_000_000.0


def new_memory():
    return memoryview(bytearray(os.urandom(32).ljust(MEMORY_SIZE, b"\0")))


def gatekeepers(count, *rules, memory=None, **domain):
    """Return gatekeepers that account to a master which never answers, with one memory."""
    domains = [Domain("api", tuple(map(Rule.parse, rules)), **domain)]
    memory = memory or new_memory()
    return [Gatekeeper(lambda *_: None, max_delay=0, arrivals=Arrivals(domains, memory)) for _ in range(count)]


def accepted(group, times, identifier=b"a", domain="api"):
    verdicts = [group[n % len(group)].admit(domain, identifier, now=now).status for n, now in enumerate(times)]
    return verdicts.count(Status.ACCEPTED)


@pytest.mark.parametrize("count", [1, 4])
def test_workers_admit_the_rule_together(count):
    group = gatekeepers(count, "10/s burst 20", "1000/min burst 40")
    assert accepted(group, [START + n / 1_000 for n in range(2_000)]) == 20 + 19
    assert accepted(group, [START + 2.0 + n / 10 for n in range(20)]) >= 19
    assert accepted(group, [START] * 50, b"b") == 20


def test_a_hold_of_the_master_shows_what_others_have_admitted():
    (gate,) = gatekeepers(1, "10/s burst 20")
    assert accepted([gate], [START] * 5) == 5
    gate.obey(DelayUntil("api", b"a", START + 3.0), now=START)
    assert accepted([gate], [START + 3.0 + n / 1_000 for n in range(999)]) == 10


def test_delayed_requests_count_at_their_release():
    gate = Gatekeeper(lambda *_: None, arrivals=Arrivals([Domain("api", (Rule.parse("1/s burst 1"),))], new_memory()))
    assert [gate.admit("api", b"a", now=START).wait for _ in range(7)] == pytest.approx([*range(6), 6], abs=1e-5)


@pytest.mark.parametrize("domain", [{"algorithm": "log"}, {"mode": "shadow"}, {"mode": "off"}, {"exempt": ("a",)}])
def test_what_is_left_to_the_master(domain):
    assert accepted(gatekeepers(2, "1/min burst 1", **domain), [START] * 9) == 9


def test_an_entry_in_use_is_not_given_to_another_identifier():
    memory = new_memory()
    group = gatekeepers(1, "1/min burst 1", memory=memory)
    memory[32 + MEMORY_SIZE // 2 - 16 :].cast("d")[:] = memoryview(b"\x7f" * (MEMORY_SIZE // 2 - 16)).cast("d")
    assert accepted(group, [START] * 9) == 9


def test_changed_rules_count_anew_and_others_go_on():
    memory = new_memory()
    assert accepted(gatekeepers(1, "1/min burst 3", memory=memory), [START] * 9) == 3
    assert accepted(gatekeepers(1, "1/min burst 3", memory=memory), [START] * 9) == 0
    arrivals = Arrivals([Domain("api", (Rule.parse("1/min burst 4"),))], memory)
    assert arrivals.release(arrivals.entries("api", b"a")) == ASAP == arrivals.release(arrivals.entries("other", b"a"))
