"""The gate that limits each client."""

from types import SimpleNamespace

from headgate.lab.ticks.client_limit import ClientLimit
from headgate.limit import Rule

NOW = 2.0**30


def agents(*clients):
    return [SimpleNamespace(client=client) for client in clients]


def gate(text):
    return ClientLimit(SimpleNamespace(name="site"), None, Rule.parse(text))


def test_each_client_may_send_what_the_rule_permits():
    one = gate("1/min burst 2")
    arrivals = agents(1, 1, 1, 2)
    admission = one.admit(arrivals, now=NOW)
    assert list(admission.admitted) == [arrivals[0], arrivals[1], arrivals[3]]
    ((refused, status, fields),) = admission.refused
    assert refused is arrivals[2]
    assert (status, fields) == (503, (("Retry-After", "60"),))


def test_a_request_that_is_held_for_a_short_time_is_admitted_in_a_later_tick():
    one = gate("1/s burst 1")
    arrivals = agents(1, 1, 1)
    assert list(one.admit(arrivals, now=NOW).admitted) == arrivals[:1]
    assert [list(one.admit([], now=NOW + second).admitted) for second in (0.5, 1.0, 2.0)] == [
        [],
        arrivals[1:2],
        arrivals[2:],
    ]


def test_a_client_that_returns_after_its_retry_after_is_admitted():
    one = gate("1/min burst 1")
    one.admit(agents(7), now=NOW)
    ((_, _, fields),) = one.admit(agents(7), now=NOW + 10.0).refused
    assert fields == (("Retry-After", "50"),)
    assert one.admit(agents(7), now=NOW + 60.0).refused == []
