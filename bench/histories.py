"""How much memory a master's histories take: ``python -m bench.histories ENTRIES traced|resident``.

It prints one line of JSON: the bytes for each identifier, everything included (the identifier, its place in the
table, the history), as Python's allocator hands them out (traced) or as the system counts them (resident).
"""

import json
import sys
import tracemalloc
from pathlib import Path

from headgate.limit import Domain, Master, Rule
from headgate.release import Status

BURST = 10
IDENTIFIERS = 175_000  # the table that finds them has just grown: the worst moment
NOW = 1_700_000_000.0


def fill(entries: int) -> Master:
    """Give a master that has `entries` timestamps of each of many identifiers, addresses as they come."""
    master = Master([Domain("api", (Rule(BURST, 3_600_000, BURST),))])
    for entry in range(entries):
        for number in range(IDENTIFIERS):
            identifier = b"203.%d.%d.%d" % (number // 62_500, number // 250 % 250, number % 250)
            master.record("api", Status.ACCEPTED, identifier, NOW + entry, NOW + entry)
    return master


def resident() -> int:
    """Give the bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def main(entries: int, how: str) -> None:
    """Fill, measure, print."""
    if how == "traced":
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        master = fill(entries)
        used = tracemalloc.get_traced_memory()[0] - before
    else:
        before = resident()
        master = fill(entries)
        used = resident() - before
    histories = master._states["api"].histories
    assert histories is not None
    recorded = {len(history) - 1 for batch, _ in histories.batches() for _, history in batch}
    print(json.dumps({"each": used / IDENTIFIERS, "identifiers": len(master), "entries": sorted(recorded)}))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
