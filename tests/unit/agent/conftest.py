"""What the tests of several transports need."""

import pytest

from headgate.agent import passage


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the pause before a retry shorter than the least there is."""
    monkeypatch.setattr(passage, "retry_pause", lambda *_, **__: 0.01)
