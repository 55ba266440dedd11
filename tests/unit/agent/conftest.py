"""What the tests of several transports need."""

from collections.abc import Callable

import pytest

from headgate.advice.fetching import AdviceResponse
from headgate.agent import Courtesy, attempt
from headgate.throttle import Policy, Throttle

HALF = b'[{"user_agent":"*","fraction":0.5}]'


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the pause before a retry shorter than the least there is."""
    monkeypatch.setattr(attempt, "retry_pause", lambda *_, **__: 0.01)


@pytest.fixture
def half_wanted() -> Callable[..., Courtesy]:
    """Return what makes a courtesy with these draws, which knows that https://example.com wants half of the traffic."""
    advised = AdviceResponse(200, [("Content-Type", "application/trafficadvice+json")], HALF)

    def make(*draws: float) -> Courtesy:
        drawn = iter(draws)
        courtesy = Courtesy("ExampleBot", clock=lambda: 1000.0, draw=lambda: next(drawn))
        assert courtesy._state.advice is not None
        courtesy._state.advice.ask("https://example.com", now=1000.0, start=lambda _, report: report(advised))
        return courtesy

    return make


@pytest.fixture
def broken() -> Courtesy:
    """Make a courtesy whose clock works until a request is sent, and then fails."""
    instants = iter([1000.0])
    return Courtesy(clock=lambda: next(instants), throttle=Throttle(Policy()), retry=1)
