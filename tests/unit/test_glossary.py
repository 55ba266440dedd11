"""The glossary has each term once."""

import re
from collections import Counter
from pathlib import Path

GLOSSARY = Path(__file__).parents[2] / "docs" / "glossary.md"


def test_each_heading_and_each_term_of_a_section_stands_once():
    text = GLOSSARY.read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert len(headings) > 3
    assert not [name for name, count in Counter(headings).items() if count > 1]
    terms = Counter(re.findall(r"^\| ([^|]+?) +\|", text, re.MULTILINE))
    assert [name for name, count in terms.items() if count > 1 and name != "term"] == []
