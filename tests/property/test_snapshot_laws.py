"""A restored master computes the same releases as the one that was saved."""

import asyncio
import tempfile
from array import array
from pathlib import Path
from unittest.mock import patch

from hypothesis import example, given
from hypothesis import strategies as st

from headgate.limit import Accounting, Domain, Master, Rule
from headgate.limit.messages import MAX_CONTROL_FRAME, control_frames
from headgate.release import Status
from headgate.runtime.snapshot import _LINE, Snapshots

NOW = 1_700_000_000.0
RULES = st.sampled_from([("1/s burst 3",), ("4/s burst 2", "10/min burst 5"), ("3/h burst 3", "1/s burst 1", "7/s")])
# Milliseconds since the last request: also none, longer than all windows, and a clock that is set back.
PAUSES = st.one_of(st.integers(0, 3_000), st.sampled_from([0, 60_000, 7_200_000, -5_000, -3_600_000]))
REQUESTS = st.lists(
    st.tuples(PAUSES, st.sampled_from([b"a", b"\xff"]), st.sampled_from([-1.0, 0.0, 0.5, 4.0])), max_size=40
)


def master(rules, algorithm):
    return Master([Domain("api", tuple(map(Rule.parse, rules)), algorithm)], max_delay=5.0)


def releases(core, requests, now):
    """Return what the master publishes for these requests, each with its time of arrival, and the time of the last."""
    published = []
    for pause, identifier, delay in requests:
        now = round(now + pause / 1_000, 3)
        status = Status.DELAYED if delay > 0 else Status.ACCEPTED
        published.append((core.account(Accounting("api", status, identifier, now, now + delay), now), now))
    return published, now


def through_a_file(core, copy, now):
    """Save a master to a file, and restore the other one of it."""
    core.clock.read(now)
    with tempfile.TemporaryDirectory() as folder, patch("time.time", lambda: now):
        snapshots = Snapshots(f"{folder}/snapshot", 1.0, lambda _: None)
        asyncio.run(snapshots._save(Path(folder) / "snapshot", core))
        assert asyncio.run(snapshots.restore(lambda: copy)) is copy
        assert snapshots.saved_at


INF, NAN = float("inf"), float("nan")
ALGORITHMS = st.sampled_from(["log", "gcra", "smockron"])
NUMBERS = st.one_of(
    st.floats(NOW - 10, NOW + 1e4), st.floats(NOW * 1_000, NOW * 1_000 + 1e7), st.sampled_from([INF, -INF, NAN, 1e300])
)


def lists_of_numbers(size):
    return st.lists(NUMBERS, min_size=size, max_size=size)


@given(RULES, ALGORITHMS, st.sampled_from([1, 2, 3, 4, 7, 10]).flatmap(lists_of_numbers), REQUESTS)
@example(("1/s burst 3",), "gcra", [-INF, INF], [(0, b"a", 0.0)])
@example(("1/s burst 3",), "log", [INF, NOW], [])
@example(("1/s burst 3",), "smockron", [NAN, NOW * 1_000, 1.0, NOW * 1_000 + 10.0], [(0, b"a", 0.0)])
def test_any_numbers_are_refused_or_can_be_published(rules, algorithm, numbers, after):
    restored = master(rules, algorithm)
    try:
        restored.restore("api", [b"a", array("d", numbers).tobytes()], NOW)
    except ValueError:
        return
    published, _ = releases(restored, after, NOW)
    controls = [control for control, _ in published if control is not None]
    for control in [*controls, *restored.holds("api", now=NOW)]:
        *_, timestamp = control_frames(b"api\0", control.identifier, control.release)
        assert len(timestamp) <= MAX_CONTROL_FRAME


@given(st.binary(max_size=200), st.lists(st.binary(max_size=30), max_size=4), st.integers(0, 60))
def test_any_bytes_are_a_snapshot_or_ignored(content, values, size):
    frames = b"".join(len(value).to_bytes(4) + value for value in values)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "snapshot"
        for start in (b"", _LINE, _LINE + frames):
            path.write_bytes(start + content[:size])
            restored = asyncio.run(Snapshots(str(path), 1.0, lambda _: None).restore(lambda: master(("1/s",), "gcra")))
            assert len(restored) == 0


@given(RULES, ALGORITHMS, REQUESTS, REQUESTS)
def test_releases_after_a_restart_are_those_without(rules, algorithm, before, after):
    kept, restored = master(rules, algorithm), master(rules, algorithm)
    _, now = releases(kept, before, NOW)
    through_a_file(kept, restored, now)
    assert set(restored.holds("api", now=now)) == set(kept.holds("api", now=now))
    assert releases(restored, after, now) == releases(kept, after, now)
