"""Write limit/algorithms.json from the exact model: `python -m tests.vectors.make_limit`."""

import json
import random
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from tests.property.exact_limit import MODELS, ExactRule, gate

HERE = Path(__file__).parent / "limit"
EPOCH = 1_700_000_000

# text, seconds per request, burst, longest delay
RULES = [
    ("1/s burst 2", Fraction(1), 2, 5.0),
    ("2/s burst 4", Fraction(1, 2), 4, 1.0),
    ("15/min burst 3", Fraction(4), 3, 9.0),
    ("4/s burst 1", Fraction(1, 4), 1, 0.5),
    ("10/s burst 5", Fraction(1, 10), 5, 0.25),
    ("3/s burst 3", Fraction(1, 3), 3, 2.0),
    ("7 per 2s burst 2", Fraction(2, 7), 2, 5.0),
    ("1 per 500ms burst 6", Fraction(1, 2), 6, 0.0),
]

PINNED: list[tuple[str, str, ExactRule, list[tuple[float, ...]]]] = [
    ("T=4 B=2", "15/min burst 2", ExactRule(Fraction(4), 2), [(0,), (2,)]),
    ("T=10 B=3, the oldest left the window", "6/min burst 3", ExactRule(Fraction(10), 3), [(0,), (5,), (20,), (36,)]),
    ("T=10 B=3, all three inside it", "6/min burst 3", ExactRule(Fraction(10), 3), [(0,), (15,), (20,), (36,)]),
    (
        "delayed counts at its delayed timestamp",
        "1/s burst 2",
        ExactRule(Fraction(1), 2),
        [(0,), (0,), (0, 1), (0, 2), (5,)],
    ),
    ("a burst at one instant", "1/s burst 3", ExactRule(Fraction(1), 3), [(0,)] * 5),
    ("the window's edge is outside", "1/s burst 2", ExactRule(Fraction(1), 2), [(0,), (2,), (3.5,)]),
    ("an old message comes late", "1/s burst 2", ExactRule(Fraction(1), 2), [(10,), (10,), (10, 1), (10.5,)]),
    ("a clock ahead of ours", "1/s burst 2", ExactRule(Fraction(1), 2), [(10, 15), (10,), (11,), (20,)]),
]


def releases() -> Iterator[dict[str, Any]]:
    """Give the pinned cases, each under the three algorithms."""
    for name, text, rule, events in PINNED:
        for algorithm, model_of in MODELS.items():
            model = model_of(rule)
            answers: list[float | None] = []
            for at, *until in events:
                release = model.record(Fraction(until[0] if until else at), Fraction(at))
                answers.append(None if release is None else float(release))
            listed = [{"at": at, "until": until[0]} if until else {"at": at} for at, *until in events]
            yield {"name": name, "algorithm": algorithm, "rule": text, "events": listed, "release": answers}


def log(chance: random.Random) -> list[tuple[Fraction, str]]:
    """Give 40 requests of two identifiers on a grid of eighths, in time order."""
    now = Fraction(EPOCH)
    events: list[tuple[Fraction, str]] = []
    for _ in range(40):
        now += Fraction(chance.choice([0, 0, 0, 1, 2, 2, 4, 7]), 8)
        events.append((now, chance.choice("aab")))
    return events


def replays() -> Iterator[dict[str, Any]]:
    """Give logs with the counts a gate makes of them."""
    chance = random.Random(1963)
    for text, interval, burst, max_delay in RULES:
        for algorithm in MODELS:
            events = log(chance)
            counts, longest = {"accepted": 0, "delayed": 0, "rejected": 0}, Fraction(0)
            by_identifier: dict[str, dict[str, int]] = {}
            for identifier in "ab":
                arrivals = [moment for moment, name in events if name == identifier]
                verdicts = gate(algorithm, [ExactRule(interval, burst)], arrivals, Fraction(max_delay))
                for arrival, verdict in zip(arrivals, verdicts, strict=True):
                    counts[verdict.status] += 1
                    if verdict.status == "delayed":
                        longest = max(longest, verdict.moment - arrival)
                    if verdict.status != "accepted":
                        own = by_identifier.setdefault(identifier, {"delayed": 0, "rejected": 0})
                        own[verdict.status] += 1
            yield {
                "rule": text,
                "algorithm": algorithm,
                "max_delay": max_delay,
                "events": [[float(moment), name] for moment, name in events],
                "expect": {
                    "requests": len(events),
                    **counts,
                    "identifiers": len({name for _, name in events}),
                    "malformed": 0,
                    "max_delay": round(float(longest), 3),
                    "by_identifier": by_identifier,
                },
            }


def main() -> None:
    """Write the file, a case a line."""
    parts = []
    for key, cases in (("releases", releases()), ("replay", replays())):
        lines = ",\n  ".join(json.dumps(case) for case in cases)
        parts.append(f' "{key}": [\n  {lines}\n ]')
    (HERE / "algorithms.json").write_text("{\n" + ",\n".join(parts) + "\n}\n")


if __name__ == "__main__":
    main()
