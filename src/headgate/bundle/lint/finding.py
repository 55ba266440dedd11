"""What lint finds: a code to search for, a sentence to read, the step that says so, and where."""

from msgspec import Struct

from headgate.errors import BundleError

__all__ = ["Finding", "Report", "refusal"]

_CODES = {
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
    "integrity block": "integrity-block",
}
"""From the step that is broken, the innermost first, to the code; a step that is not here has its error's kind."""


class Finding(Struct, frozen=True):
    """One thing found."""

    code: str
    message: str
    step: str | None
    """The step or section of the document that speaks of it; None where only prudence does."""
    offset: int | None
    """Bytes from the first byte of the file; None for what is not in one place."""


class Report(Struct, frozen=True):
    """All that was found."""

    errors: list[Finding]
    """What a reader refuses, and what the document says MUST be otherwise."""
    warnings: list[Finding]
    """What readers take, and what will surprise someone."""


def refusal(error: BundleError, subject: str = "") -> Finding:
    """Give the finding for what a parser refused; `subject` says of which response."""
    steps = error.step.split(", ")
    code = next((_CODES[step] for step in reversed(steps) if step in _CODES), error.kind)
    return Finding(code, f"{subject}{error.reason}", error.step, error.offset)
