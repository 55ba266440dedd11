"""A restored master computes the same releases as the one that was saved."""

import io
import sys
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from headgate.limit import Accounting, Domain, Master, Rule
from headgate.release import Status
from headgate.runtime.master.snapshot_file import Header, SnapshotDomain, SnapshotReader, SnapshotWriter

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
    clock, (domain,) = core.clock, core.domains.values()
    header = Header(now, clock.behind, clock.latest, "0" * 16, True, sys.byteorder, (SnapshotDomain.of(domain),))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "snapshot"
        writer = SnapshotWriter(path, header)
        for exported in core.export("api"):
            writer.add((0, exported))
        writer.commit()
        content = path.read_bytes()
    reader = SnapshotReader(io.BytesIO(content))
    copy.clock.resume(reader.header.behind, reader.header.latest)
    for _, exported in reader.parts():
        copy.restore("api", exported, now)


@given(RULES, st.sampled_from(["log", "gcra", "smockron"]), REQUESTS, REQUESTS)
def test_releases_after_a_restart_are_those_without(rules, algorithm, before, after):
    kept, restored = master(rules, algorithm), master(rules, algorithm)
    _, now = releases(kept, before, NOW)
    through_a_file(kept, restored, now)
    assert set(restored.holds("api", now=now)) == set(kept.holds("api", now=now))
    assert releases(restored, after, now) == releases(kept, after, now)
