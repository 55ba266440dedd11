"""Malformed bundles, and the good ones beside them: each with the refusal that the document wants.

Made from parts by a builder of their own, so that no fault of headgate's writer or reader can hide in them.
"""

from tests.malformed.case import Case, named
from tests.malformed.leads import lead_cases
from tests.malformed.parts import MANIFEST, PRIMARY
from tests.malformed.responses import response_cases
from tests.malformed.sections import section_cases
from tests.malformed.spots import spot_cases

__all__ = ["CASES", "MANIFEST", "PRIMARY", "QUARTERS", "Case", "named"]

CASES: tuple[Case, ...] = (*lead_cases(), *section_cases(), *response_cases(), *spot_cases())

QUARTERS: dict[str, tuple[Case, ...]] = {f"{part + 1} of 4": CASES[part::4] for part in range(4)}
"""The table in four parts, so that a test of all cases can run in parallel."""
