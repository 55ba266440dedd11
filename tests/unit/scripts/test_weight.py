"""The count of weight: statements only; a number above its bound fails."""

from scripts import weight

SOURCE = '''"""What it does."""

import os
from collections import (
    Counter,
    deque,
)

__all__ = ["f"]

# A comment.
X = [
    1,
    2,
]


def f(value):
    """Return it."""
    if value: return os, Counter, deque
    return "text"
'''


def test_statements_count_and_docstrings_imports_and_names_do_not():
    assert weight.logical_lines(SOURCE) == 4


def test_a_number_above_its_bound_and_one_without_a_bound_are_named_largest_growth_first():
    bounds = {"logical_lines": {"limit": 10, "link": 5}}
    assert weight.above({"logical_lines": {"limit": 10, "link": 5}}, bounds) == []
    found = weight.above({"logical_lines": {"limit": 11, "link": 8, "new": 1}}, bounds)
    assert found == [
        "logical_lines.link: 8, at most 5",
        "logical_lines.new: 1, at most None",
        "logical_lines.limit: 11, at most 10",
    ]


def test_bounds_only_fall():
    bounds = {"lines": {"tests": 100, "gone": 3}}
    assert weight.lowered({"lines": {"tests": 90, "new": 4}}, bounds) == {"lines": {"tests": 90, "new": 4}}
    assert weight.lowered({"lines": {"tests": 110}}, bounds) == {"lines": {"tests": 100}}
