"""When higher limits are tried, and how much higher they are."""

from headgate.limit.concurrency.learned.probes import ProbeSchedule


def test_each_failure_doubles_the_time_until_the_next_trial_up_to_a_bound() -> None:
    probes, now, pauses = ProbeSchedule(), 100.0, []
    assert probes.is_due(now)
    for _ in range(5):
        probes.failed(20.0, now)
        began = now
        while not probes.is_due(now):
            now += 0.5
        pauses.append(now - began)
    assert pauses == [2.0, 4.0, 8.0, 15.0, 15.0]
    probes.succeeded()
    assert probes.interval == 2.0


def test_a_limit_is_doubled_up_to_one_that_was_good() -> None:
    probes = ProbeSchedule()
    assert [probes.higher(limit) for limit in (4.0, 20.0)] == [5.0, 24.0]
    probes.return_to(40.0)
    assert [probes.higher(limit) for limit in (4.0, 20.0, 21.0)] == [8.0, 40.0, 25.2]
