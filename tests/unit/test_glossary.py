"""The glossary is one table that has each term once."""

import re
from collections import Counter
from pathlib import Path

GLOSSARY = Path(__file__).parents[2] / "docs" / "glossary.md"


def test_each_term_is_listed_once_in_one_table():
    text = GLOSSARY.read_text(encoding="utf-8")
    assert text.count("\n|---|") == 1
    rows = re.findall(r"^\| ([^|]+?) +\|", text, re.MULTILINE)[1:]
    terms = Counter(term for row in rows for term in row.split(", "))
    assert len(terms) > 30
    assert [term for term, count in terms.items() if count > 1] == []
    assert rows == sorted(rows)
