"""What lint finds: a code to search for, a message, the step of the document, and the place."""

from collections import Counter
from typing import Final

from msgspec import Struct

from headgate.errors import BundleError

MIXUP: Final = "b1-b2-mixup"
"""The code of what belongs to the other of the two formats."""

MAX_PER_CODE: Final = 10_000
"""Findings of one code that are listed; the others are counted, since untrusted input controls how many there are."""

_CODES: Final = {
    "3.3 step 2": "not-a-bundle",
    "3.3 step 13": "section-count",
    "3.3 step 19.2": "duplicate-section",
    "3.3 step 20": "responses-not-last",
    "3.3 step 24": "section-missing",
    "3.3.1 step 3.1": "location-out-of-range",
    "3.3.1 step 4.2": "index-url",
    "3.3.1 step 4.3.2": "duplicate-url",
    "3.3.4 step 2": "critical-unknown",
    "3.4 step 7": "status",
    "3.4 step 8": "status",
    "3.4 step 9": "content-type-missing",
    "3.4 step 11": "location-mismatch",
    "3.4 step 12": "response-cut",
    "3.5.1 step 2": "not-deterministic",
    "3.5.1 step 3": "trailing-bytes",
    "3.5.3 step 3": "not-deterministic",
    "3.6 step 4.1": "header-field",
    "3.6 step 4.3": "header-field",
    "integrity block": "integrity-block",
}
"""From the broken step, the innermost first, to the code; the code of another step is the kind of its error."""


class Finding(Struct, frozen=True):
    """One thing found."""

    code: str
    message: str
    step: str | None
    """The step or section of the document; None where the document says nothing about it."""
    offset: int | None
    """Bytes from the first byte of the file; None for what is not in one place."""


class Report(Struct, frozen=True):
    """Everything found."""

    errors: list[Finding]
    """What readers refuse, and what breaks a MUST of the document."""
    warnings: list[Finding]
    """What readers accept, but may not do as intended."""


class Findings:
    """Collects findings; their offsets are given from the bundle's first byte and reported from the file's."""

    def __init__(self) -> None:
        self.start = 0
        """Bytes before the bundle."""
        self._errors: list[Finding] = []
        self._warnings: list[Finding] = []
        self._counts: Counter[tuple[bool, str]] = Counter()

    def refuse(self, error: BundleError, subject: str = "") -> None:
        """Add the error of a parser; `subject` names the response."""
        # A known version in the other format's layout is the one format error of this step.
        mixup = error.step == "3.3 step 7" and error.kind == "format"
        code = MIXUP if mixup else _code(error.step, error.kind)
        self.error(Finding(code, f"{subject}{error.reason}", error.step, error.offset))

    def error(self, finding: Finding) -> None:
        """Add an error."""
        self._add(finding, self._errors, is_error=True)

    def warning(self, finding: Finding) -> None:
        """Add a warning."""
        self._add(finding, self._warnings, is_error=False)

    def report(self) -> Report:
        """Return all findings, with the number of those that are not listed."""
        for (is_error, code), count in self._counts.items():
            if count > MAX_PER_CODE:
                more = Finding(code, f"{count - MAX_PER_CODE} more findings of this kind are not listed", None, None)
                (self._errors if is_error else self._warnings).append(more)
        return Report(self._errors, self._warnings)

    def _add(self, finding: Finding, findings: list[Finding], *, is_error: bool) -> None:
        self._counts[is_error, finding.code] += 1
        if self._counts[is_error, finding.code] <= MAX_PER_CODE:
            offset = None if finding.offset is None else finding.offset + self.start
            findings.append(Finding(finding.code, finding.message, finding.step, offset))


def _code(step: str, kind: str) -> str:
    return next((_CODES[inner] for inner in reversed(step.split(", ")) if inner in _CODES), kind)
