"""Lines of the log about the concurrency limit, and the classes that are refused for long."""

import pytest

from headgate.limit.concurrency import ConcurrencyState
from headgate.origin.concurrency_watch import PAUSE, ConcurrencyWatch

FIGURES = "limit 20, 3 in flight, 2 wait, baseline 0.1 s, last change: probe"


def state(
    limit: float = 20.0,
    *,
    overloaded: bool = False,
    full: int = 0,
    reason: str = "probe",
    mode: str = "enforce",
    baseline: float = 0.1,
) -> ConcurrencyState:
    return ConcurrencyState(
        limit,
        3,
        2,
        mode,
        reason,
        baseline,
        refused={"people": {"full": full}},
        overloaded=overloaded,  # type: ignore[arg-type]  # one of three texts
    )


class Watched:
    """A watch with its lines; each look is a second after the one before."""

    def __init__(self, *, warn_after: float = 86_400.0) -> None:
        self.lines: list[str] = []
        self.watch = ConcurrencyWatch(self.lines.append, warn_after=warn_after)
        self.now = 100.0

    def look(self, seen: ConcurrencyState, *, seconds: float = 1.0, admitted: int = 0) -> list[str]:
        """Return the lines of this look."""
        before = len(self.lines)
        self.now += seconds
        self.watch.look(seen, {"people": admitted}, now=self.now)
        return self.lines[before:]


def test_a_limit_that_changes_by_a_fifth_is_logged_at_most_every_ten_seconds() -> None:
    watched = Watched()
    assert watched.look(state(20)) == []
    assert watched.look(state(24)) == []
    assert watched.look(state(25)) == [
        "concurrency limit: 20 to 25: probe (limit 25, 3 in flight, 2 wait, baseline 0.1 s)"
    ]
    assert watched.look(state(50)) == []
    assert watched.look(state(60), seconds=PAUSE) == [
        "concurrency limit: 25 to 60: probe (limit 60, 3 in flight, 2 wait, baseline 0.1 s)"
    ]


def test_overload_is_logged_when_it_begins_and_ends() -> None:
    watched = Watched()
    assert watched.look(state()) == []
    assert watched.look(state(overloaded=True)) == [
        f"concurrency limit: requests wait too long for the origin: it is overloaded ({FIGURES})"
    ]
    assert watched.look(state(overloaded=True), seconds=PAUSE) == []
    assert watched.look(state()) == [f"concurrency limit: overload has ended ({FIGURES})"]
    assert watched.look(state(overloaded=True)) == []
    assert watched.look(state()) == []


def test_refusals_are_logged_when_they_begin_and_have_ended_for_ten_seconds() -> None:
    watched = Watched()
    assert watched.look(state()) == []
    (line,) = watched.look(state(full=1))
    assert line == f"concurrency limit: refuses requests ({FIGURES}, 1 refused so far)"
    assert [watched.look(state(full=1 + count)) for count in range(30)] == [[]] * 30
    assert watched.look(state(full=30), seconds=PAUSE - 1) == []
    (line,) = watched.look(state(full=30))
    assert line.startswith("concurrency limit: refuses no more requests (")
    assert line.endswith("30 refused so far)")


@pytest.mark.parametrize(
    ("reason", "baseline", "figures"),
    [
        ("start", 0.0, "limit 25, 3 in flight, 2 wait, baseline unknown"),
        ("start", 0.00123456, "limit 25, 3 in flight, 2 wait, baseline 0.00123 s"),
        ("configured", 0.0, "limit 25, 3 in flight, 2 wait"),
    ],
)
def test_only_a_learned_limit_has_a_baseline(reason: str, baseline: float, figures: str) -> None:
    watched = Watched()
    watched.look(state())
    (line,) = watched.look(state(25, reason=reason, baseline=baseline))
    assert line == f"concurrency limit: 20 to 25: {reason} ({figures})"
    (line,) = watched.look(state(25, full=1, reason=reason, baseline=baseline))
    assert ("last change: start" in line) == (reason == "start")


def test_monitor_would_refuse() -> None:
    assert "would refuse requests" in Watched().look(state(full=1, mode="monitor"))[0]


def test_a_class_that_is_refused_for_a_day_is_a_warning_and_has_a_figure() -> None:
    watched = Watched()
    lines = []
    for hour in range(26):
        lines += watched.look(state(full=60 * hour), seconds=3_600.0, admitted=100 * hour)
        assert watched.watch.refused_for(watched.now)["prefetch"] == 0.0
    warnings = [line for line in lines if line.startswith("warning: ")]
    (warning,) = warnings
    assert "most requests of the class people were refused for 24 hours" in warning
    assert watched.watch.refused_for(watched.now)["people"] > 86_400.0


def test_a_class_half_of_which_is_answered_is_not() -> None:
    watched = Watched(warn_after=7_200.0)
    lines = []
    for hour in range(26):
        lines += watched.look(state(full=50 * hour), seconds=3_600.0, admitted=100 * hour)
    assert [line for line in lines if line.startswith("warning: ")] == []
    assert watched.watch.refused_for(watched.now)["people"] == 0.0
