"""The memory of a master's histories, in bytes an identifier; no peer, only the bound.

Each figure comes from a fresh process with well over 100,000 identifiers, after it has shown that every one of them
has the history it should have.
"""

import json
import subprocess
import sys

from bench.histories import BURST, IDENTIFIERS
from bench.measure import Row, verify


def each(entries: int, how: str) -> float:
    """Give the bytes for each identifier with so many entries, measured this way."""
    program = [sys.executable, "-m", "bench.histories", str(entries), how]
    result = json.loads(subprocess.run(program, stdout=subprocess.PIPE, check=True).stdout)
    verify("every identifier is there", right=result["identifiers"] == IDENTIFIERS)
    verify(f"each has {entries} entries", right=result["entries"] == [entries])
    return float(result["each"])


def run(rounds: int) -> list[Row]:  # noqa: ARG001 - memory is the same in every round
    """Give a row for the smallest history and one for the full one."""
    rows = []
    for what, entries, target in (("one entry", 1, 250.0), (f"full at burst {BURST}", BURST, 350.0)):
        context = f"{each(entries, 'resident'):.0f} B resident"
        rows.append(Row(f"bytes an identifier, {what}", "none", each(entries, "traced"), "≤", target, context))
    return rows
