"""The windows and baselines of domains."""

import pytest

from headgate.limit.concurrency.learned.baseline import Baseline
from headgate.limit.concurrency.learned.domain_windows import DomainWindow, DomainWindows
from headgate.limit.concurrency.learned.measurement import Measurement


def end(domains: DomainWindows, name: str, latency: float, count: int = 1) -> None:
    window = domains.windows.setdefault(name, DomainWindow())
    window.answered += count
    window.seconds += count * latency
    window.in_flight += 10 * count


def test_a_window_has_the_work_of_all_domains_and_begins_anew() -> None:
    domains = DomainWindows()
    end(domains, "a", 0.1, 3)
    end(domains, "b", 0.5)
    window = domains.close(0.1)
    assert (window.requests, window.in_flight) == (4, 10.0)
    assert window.work == pytest.approx(0.8)  # the first responses are the baselines
    assert window.latencies == {"a": (pytest.approx(0.3), 3), "b": (0.5, 1)}
    assert all(one.answered == 0 for one in domains.windows.values())


def test_each_of_many_domains_learns_from_a_trial() -> None:
    domains, measurement = DomainWindows(), Measurement()
    for seconds in (1.0, 0.2):
        for number in range(40):
            end(domains, str(number), seconds, 4)
        window = domains.close(0.1)
    measurement.add(window)
    assert not domains.are_known(measurement)
    domains.learn(measurement, known=True)
    assert {round(one.baseline.mean, 9) for one in domains.windows.values()} == {0.2}
    assert domains.are_known(measurement)


def test_a_known_baseline_rises_half_as_far_as_a_trial_says() -> None:
    baseline = Baseline()
    for seconds, known, expected in ((0.1, True, 0.1), (0.3, True, 0.2), (0.1, True, 0.1), (0.3, False, 0.3)):
        baseline.replace(seconds, 150, known=known)
        assert baseline.mean == pytest.approx(expected)
