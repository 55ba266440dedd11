"""What the tests of several transports need."""

from collections.abc import Callable

import pytest

from headgate.advice.fetching import AdviceResponse
from headgate.agent import Courtesy, advice, passage
from headgate.throttle import Policy, Throttle

HALF = b'[{"user_agent":"*","fraction":0.5}]'


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the pause before a retry shorter than the least there is."""
    monkeypatch.setattr(passage, "retry_pause", lambda *_, **__: 0.01)


@pytest.fixture
def half_wanted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Courtesy]:
    """Return what makes a courtesy with these draws, for origins that want half of the traffic."""
    advised = AdviceResponse(200, [("Content-Type", "application/trafficadvice+json")], HALF)
    monkeypatch.setattr(advice, "begin_fetch", lambda request, *, tls, done: done(advised))

    def make(*draws: float) -> Courtesy:
        drawn = iter(draws)
        return Courtesy("ExampleBot", clock=lambda: 1000.0, draw=lambda: next(drawn))

    return make


@pytest.fixture
def broken() -> Courtesy:
    """Make a courtesy whose clock works until a request is sent, and then fails."""
    instants = iter([1000.0])
    return Courtesy(clock=lambda: next(instants), throttle=Throttle(Policy()), retry=1)
