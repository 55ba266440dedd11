"""Malformed and valid bundles, each with the result that the document requires.

A separate builder makes them from parts, so that they do not share defects with the writer or the readers.
"""

from tests.malformed.case import Case, named
from tests.malformed.parts import MANIFEST, PRIMARY
from tests.malformed.preambles import preamble_cases
from tests.malformed.responses import response_cases
from tests.malformed.sections import section_cases

__all__ = ["CASES", "MANIFEST", "PRIMARY", "Case", "named"]

CASES: tuple[Case, ...] = (*preamble_cases(), *section_cases(), *response_cases())
