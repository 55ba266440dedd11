"""What the tests of several transports need."""

import pytest

from headgate.agent import Courtesy, attempt
from headgate.throttle import Policy, Throttle


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the pause before a retry shorter than the least there is."""
    monkeypatch.setattr(attempt, "retry_pause", lambda *_, **__: 0.01)


@pytest.fixture
def broken() -> Courtesy:
    """Make a courtesy whose clock works until a request is sent, and then fails."""
    instants = iter([1000.0])
    return Courtesy(clock=lambda: next(instants), throttle=Throttle(Policy()), retry=1)
