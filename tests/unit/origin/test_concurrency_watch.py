"""Lines of the log about the concurrency limit."""

import pytest

from headgate.limit.concurrency import ConcurrencyState
from headgate.limit.concurrency.values import Mode
from headgate.origin.permits import PAUSE, ConcurrencyWatch


def state(rejected: int, mode: Mode = "enforce") -> ConcurrencyState:
    return ConcurrencyState(20.0, 3, 2, mode, rejected={"people": {"full": rejected}})


@pytest.mark.parametrize(("mode", "verb"), [("enforce", "rejects"), ("monitor", "would reject")])
def test_rejections_are_logged_when_they_begin_and_end(mode: Mode, verb: str) -> None:
    lines: list[str] = []
    watch = ConcurrencyWatch(lines.append)
    for now, rejected in ((100.0, 0), (101.0, 5), (102.0, 9), (101.9 + PAUSE, 9), (102.0 + PAUSE, 9), (200.0, 9)):
        watch.look(state(rejected, mode), now=now)
    figures = "limit 20, 3 in flight, 2 wait, {} rejected so far"
    assert lines == [
        f"concurrency limit: {verb} requests ({figures.format(5)})",
        f"concurrency limit: rejects no more requests ({figures.format(9)})",
    ]
    watch.look(state(10, mode), now=300.0)
    assert len(lines) == 3
