"""`@quotes("bundled-exchanges-01 3.3", "If …, return …")`: the sentences of a document that a test proves.

`scripts/conformance.py` lists them; a sentence left out in the middle of a quotation is written […].
"""

import pytest

DOCUMENTS = ("smockron", "anti-ddos-throttling", "traffic-advice", "bundled-exchanges-01")


def quotes(place: str, *sentences: str) -> pytest.MarkDecorator:
    """Mark a test with the sentences it proves; `place` is the document's name, then the section (or nothing)."""
    document = place.partition(" ")[0]
    if document not in DOCUMENTS or not sentences:
        raise ValueError(f"quotes({place!r}, …): expected a document ({', '.join(DOCUMENTS)}) and its sentences")
    return pytest.mark.quotes(place, *sentences)
