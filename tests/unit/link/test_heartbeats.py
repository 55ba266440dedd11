import pytest

from headgate.link.heartbeats import INTERVAL, Heartbeats


def after(*durations):
    """Return the interval after connections of these durations, and whether the last of them changed it."""
    heartbeats, moment, changed = Heartbeats(), 100.0, False
    for duration in durations:
        heartbeats.connected(moment)
        changed = heartbeats.lost(moment + duration)
        moment += duration + 1
    return heartbeats.interval, changed


@pytest.mark.parametrize(
    ("durations", "interval", "changed"),
    [
        ([], INTERVAL, False),
        ([4.0, 4.0], INTERVAL, False),
        ([4.0, 4.0, 4.0], 0.0, True),
        ([2.0, 6.0, 3.0], 0.0, True),
        # Masters that were stopped, restarted or lost at other times.
        ([1.9, 1.9, 1.9, 1.9], INTERVAL, False),
        ([6.1, 600.0, 60.0, 7.0], INTERVAL, False),
        ([4.0, 4.0, 60.0, 4.0], INTERVAL, False),
        # Another master may follow the one that does not answer.
        ([4.0, 4.0, 4.0, 4.0], INTERVAL, True),
        ([4.0, 4.0, 4.0, 600.0], INTERVAL, True),
        ([4.0, 4.0, 4.0, 600.0, 4.0, 4.0, 4.0], 0.0, True),
    ],
)
def test_heartbeats_end_after_three_connections_of_a_master_that_does_not_answer(durations, interval, changed):
    assert after(*durations) == (interval, changed)
