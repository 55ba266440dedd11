"""The rows of a shared throttle's file: what they say, which are believed, and how long a name may be.

This file knows nothing of SQLite. Another process may be of another version, broken or hostile, so a row is taken for
what it is only where every value makes sense; and what a server may make long is cut before it gets into a row.
"""

import re
from hashlib import sha256
from typing import Final, NamedTuple, TypeAlias

from headgate.release import NEVER
from headgate.throttle.target import Target

__all__ = [
    "BUCKET",
    "BUDGET",
    "KINDS",
    "LONGEST_BUCKET",
    "LONGEST_NAME",
    "OPT_OUT",
    "TARGET",
    "Key",
    "Limits",
    "News",
    "Position",
    "Row",
    "Values",
    "bounded",
    "checked",
    "checked_key",
    "parts",
]

KINDS: Final = range(4)
TARGET, BUCKET, OPT_OUT, BUDGET = KINDS
"""A target by its name; a bucket by its origin and path; a host that opted out; an origin whose retries were spent."""

Key: TypeAlias = tuple[int, str]
"""The kind and the name of a row: no two rows have the same."""

Values: TypeAlias = tuple[int, float, float, float]
"""The count, the two horizons and when the last failure was counted; of a budget, the shares left and nothing else."""

LONGEST_BUCKET: Final = 900
_LONGEST_ORIGIN: Final = 300
"""More than a scheme, the longest name that DNS has, and a port."""
_LONGEST_PATH: Final = 1024
_BEGINNING: Final = _LONGEST_PATH - 65
LONGEST_NAME: Final = _LONGEST_ORIGIN + _LONGEST_PATH
"""Characters."""

_MOST: Final = 2**31

_PATTERNS: Final = {
    TARGET: r"https?://[!-.0-~]++/[!-~]*+",
    BUCKET: r"https?://[!-.0-~]++/[!-~]*+",
    OPT_OUT: r"[!-.0-~]++",
    BUDGET: r"https?://[!-.0-~]++",
}
_NAMES: Final = {kind: re.compile(pattern).fullmatch for kind, pattern in _PATTERNS.items()}


class Row(NamedTuple):
    """What is kept under one key."""

    key: Key
    values: Values


class Limits(NamedTuple):
    """How many rows one process lets there be."""

    entries: int
    """Targets and buckets together; budgets alone."""
    opt_outs: int


class Position(NamedTuple):
    """How much of a file a mirror has seen."""

    identity: str
    """Chance, which tells a file from another that took its place."""
    change: int
    """The number of the last change."""


class News(NamedTuple):
    """What of a file a mirror has not seen yet: first what went, then what came or changed, oldest first."""

    position: Position
    is_whole: bool
    """Whether that is all there is, and everything else is gone."""
    gone: list[Key]
    rows: list[Row]
    is_cut: bool
    """Whether there are more rows than may be; the ones longest unchanged are left out."""


def bounded(target: Target) -> Target | None:
    """Give a target whose name is short enough to be kept; None for one whose host can be no host's name.

    Of a long path the beginning and a hash are left, so two of them stay two. No path has a "#" in it, and the paths of
    buckets are shorter than that beginning, so whatever held the target holds it still.
    """
    path = target.path
    if len(target.origin) > _LONGEST_ORIGIN:
        return None
    if len(path) <= _LONGEST_PATH:
        return target
    path = f"{path[:_BEGINNING]}#{sha256(path.encode()).hexdigest()}"
    return Target(target.origin + path, target.origin, path)


def parts(name: str) -> tuple[str, str]:
    """Split the name of a target or bucket into its origin and path."""
    start = name.index("/", len("https://"))
    return name[:start], name[start:]


def checked(kind: object, name: object, count: object, *instants: object) -> Row | None:
    """Give a row as it was read; None for one that no throttle has written."""
    key = checked_key(kind, name)
    backoff, retry_after, failed = instants
    if key is None or not isinstance(count, int) or not -1 <= count <= _MOST:
        return None
    if not isinstance(backoff, float) or not isinstance(retry_after, float) or not isinstance(failed, float):
        return None  # a NaN comes as None
    # However long the maximum of a policy is, a backoff ends; a Retry-After need not.
    return None if backoff == NEVER else Row(key, (count, backoff, retry_after, failed))


def checked_key(kind: object, name: object) -> Key | None:
    """Give the key of a row as it was read; None for one that no throttle has written."""
    if kind not in KINDS or not isinstance(kind, int) or not isinstance(name, str) or len(name) > LONGEST_NAME:
        return None
    return (kind, name) if _NAMES[kind](name) else None
