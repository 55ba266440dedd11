"""Classes that are refused for a day."""

from headgate.limit.concurrency import LongRefusals, RequestCounts

HOUR = 3600.0


class Site:
    """Updates a guard every ten minutes with a share of refusals."""

    def __init__(self, **settings: float) -> None:
        self.guard = LongRefusals(**settings)
        self.now = 1000.0
        self.answered = self.refused = 0
        self.guard.update({}, now=self.now)

    def run(self, hours: float, answered: int, refused: int) -> list[float]:
        """Return the hours after which there was a warning of automated requests."""
        start, warnings = self.now, []
        while self.now < start + hours * HOUR - 1.0:
            self.now += 600.0
            self.answered += answered
            self.refused += refused
            counts = {
                "automated": RequestCounts(self.answered, self.refused),
                "people": RequestCounts(self.answered, 0),
            }
            found = self.guard.update(counts, now=self.now)
            assert set(found) <= {"automated"}
            warnings += [(self.now - start) / HOUR] * len(found)
        return warnings


def test_a_class_that_is_refused_in_every_hour_of_a_day_is_a_warning_once_a_day() -> None:
    site = Site()
    assert site.run(60, 4, 6) == [24.0, 48.0]
    assert site.guard.refused_for("automated", now=site.now) == 60 * HOUR
    assert site.guard.refused_for("people", now=site.now) == 0.0


def test_one_hour_that_is_served_ends_it() -> None:
    site = Site()
    assert site.run(23, 0, 1) == []
    assert site.run(1, 1, 1) == []
    assert site.guard.refused_for("automated", now=site.now) == 0.0
    assert site.run(30, 0, 1) == [24.0]


def test_after_a_warning_and_a_good_hour_the_day_begins_anew() -> None:
    site = Site(warn_after=2 * HOUR)
    assert site.run(3, 0, 1) == [2.0]
    assert site.run(5, 1, 0) == []
    assert site.run(3, 0, 1) == [2.0]


def test_hours_without_requests_neither_begin_nor_end_it() -> None:
    site = Site()
    assert site.run(30, 0, 0) == []
    assert site.run(10, 0, 1) == []
    assert site.run(10, 0, 0) == []
    assert site.run(10, 0, 1) == [4.0]


def test_counts_that_begin_anew_are_those_of_a_restart() -> None:
    site = Site(warn_after=2 * HOUR)
    assert site.run(1, 0, 100) == []
    site.refused = 0
    assert site.run(1, 0, 1) == [1.0]


def test_the_time_until_the_warning_is_configurable() -> None:
    assert Site(warn_after=3 * HOUR).run(7, 0, 1) == [3.0, 6.0]
