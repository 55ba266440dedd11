"""The list of quoted sentences is made from the tests, and a quotation is compared with its document literally."""

import pytest

from scripts.conformance import is_literal, page, quotations
from tests.quotes import quotes

DOCUMENT = 'If "version" is an\n   error, return a "format error".\n\nOtherwise, go on.\n'


def test_quotations_are_found_with_their_place_and_test(tmp_path):
    (tmp_path / "unit").mkdir()
    (tmp_path / "unit" / "test_it.py").write_text('@quotes("smockron 1", "A.", "B | C.")\ndef test_a():\n    pass\n')
    found = list(quotations(tmp_path / "unit"))
    assert [(one.document, one.section, one.sentence, one.test) for one in found] == [
        ("smockron", "1", "A.", "unit/test_it.py::test_a"),
        ("smockron", "1", "B | C.", "unit/test_it.py::test_a"),
    ]
    assert "| 1 | B \\| C. | `unit/test_it.py::test_a` |" in page("smockron", found)


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ('If "version" is an error, return a "format error".', True),
        ("If version is an error […] go on.", True),
        ("If version is no error", False),
        ("go on. […] If version", False),
    ],
)
def test_a_quotation_is_literal_but_for_breaks_and_marks(sentence, expected):
    assert is_literal(sentence, DOCUMENT) is expected


def test_a_quotation_names_a_document():
    with pytest.raises(ValueError, match="expected a document"):
        quotes("smokron 1", "A.")
