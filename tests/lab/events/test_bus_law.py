import msgspec
import pytest

from headgate.release import NEVER
from lab.events.bus_law import GatekeeperLaw
from lab.events.laws import Decision, Outcome
from tests.lab.events.worlds import Request


def law(draws=(0.0,), **keys):
    remaining = iter(draws)
    settings = msgspec.convert({"rule": "1/s burst 1", "algorithm": "gcra", **keys}, GatekeeperLaw.Settings)
    return GatekeeperLaw(settings, lambda: next(remaining, 0.0))


def test_a_request_is_accepted_and_then_rejected_until_the_control_has_expired():
    bus = law()
    assert [decision.starts for decision in bus.arrived(Request(), now=0.0)] == [True]
    (refused,) = bus.arrived(Request(), now=0.25)
    assert (refused.starts, refused.retry_after) == (False, pytest.approx(0.75))
    assert bus.arrived(Request("other"), now=0.25)[0].starts  # each flow is an identifier
    assert bus.arrived(Request(), now=1.0)[0].starts
    assert bus.signals()["controls"] == 2.0  # that of the last request is on its way


def test_a_gatekeeper_admits_until_the_control_of_another_arrives():
    bus = law(draws=[0.0, 0.5, 0.5], gatekeepers=2, control_delay=0.5)
    started = [bus.arrived(Request(), now=now)[0].starts for now in (0.0, 0.499, 0.5)]
    assert started == [True, True, False]


def test_a_delayed_request_starts_at_its_release():
    bus, requests = law(max_delay=5.0), [Request() for _ in range(3)]
    assert bus.arrived(requests[0], now=0.0)[0].starts
    assert bus.wakeup == NEVER
    assert bus.arrived(requests[1], now=0.0) == bus.arrived(requests[2], now=0.0) == ()
    assert bus.signals()["queued"] == 2.0
    assert bus.wakeup == pytest.approx(1.0)
    assert bus.awake(now=0.5) == []
    assert bus.awake(now=bus.wakeup) == [Decision(requests[1], starts=True)]
    assert bus.wakeup == pytest.approx(2.0)


def test_a_delayed_request_whose_client_leaves_does_not_start():
    bus, request = law(max_delay=5.0), Request()
    bus.arrived(Request(), now=0.0)
    bus.arrived(request, now=0.0)
    assert bus.left(request, now=0.5) == ()
    assert bus.signals()["queued"] == 0.0
    assert bus.awake(now=1.0) == []
    assert bus.completed(request, 1.0, Outcome.ANSWERED, now=1.0) == ()
