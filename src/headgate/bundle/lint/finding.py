"""What lint finds: a code to search for, a sentence to read, the step that says so, and where."""

from collections import Counter
from collections.abc import Callable
from typing import Final, TypeVar

from msgspec import Struct

from headgate.errors import BundleError

__all__ = ["MIXUP", "MOST_ALIKE", "Finding", "Notes", "Report"]

_Result = TypeVar("_Result")

MIXUP: Final = "b1-b2-mixup"
"""The code of what belongs to the other of the two formats."""

MOST_ALIKE: Final = 10_000
"""Findings of one code that are told one by one; the rest is counted, for strangers decide how many there are."""

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


class Notes:
    """What has been found so far; offsets come in from the bundle's first byte, and are told from the file's."""

    def __init__(self) -> None:
        self.start = 0
        """Bytes before the bundle."""
        self._errors: list[Finding] = []
        self._warnings: list[Finding] = []
        self._counts: Counter[tuple[bool, str]] = Counter()
        self._steps: set[str | None] = set()

    def fault(self, reason: str, step: str, offset: int, *, code: str = "", subject: str = "") -> None:
        """Note what a step refuses; without `code` the step tells it. `subject` says of which response."""
        self.error(Finding(code or _code(step), f"{subject}{reason}", step, offset))

    def refused(self, error: BundleError, subject: str = "") -> None:
        """Note what a parser refused."""
        self.error(Finding(_code(error.step, error.kind), f"{subject}{error.reason}", error.step, error.offset))

    def error(self, finding: Finding) -> None:
        """Note an error."""
        self._steps.add(finding.step)
        self._note(finding, self._errors, is_error=True)

    def warning(self, finding: Finding) -> None:
        """Note a warning."""
        self._note(finding, self._warnings, is_error=False)

    def again(self, error: BundleError, walk: Callable[[], _Result], subject: str = "", *, same: str = "") -> _Result:
        """Let `walk` find all that is wrong with what a parser refused; give what it gives.

        What it does not name, the refusal does; `same` is another step that says the same, where that was noted.
        """
        outer, self._steps = self._steps, set()
        result = walk()
        if self._steps.isdisjoint((error.step, same)):
            self.refused(error, subject)
        self._steps = outer
        return result

    def report(self) -> Report:
        """Give all that was noted, and how much more there is of what is there too often."""
        for (is_error, code), count in self._counts.items():
            if count > MOST_ALIKE:
                more = Finding(code, f"and {count - MOST_ALIKE} more like those before", None, None)
                (self._errors if is_error else self._warnings).append(more)
        return Report(self._errors, self._warnings)

    def _note(self, finding: Finding, findings: list[Finding], *, is_error: bool) -> None:
        self._counts[is_error, finding.code] += 1
        if self._counts[is_error, finding.code] <= MOST_ALIKE:
            offset = None if finding.offset is None else finding.offset + self.start
            findings.append(Finding(finding.code, finding.message, finding.step, offset))


def _code(step: str, kind: str = "") -> str:
    steps = step.split(", ")
    other = kind or ("response" if steps[0].startswith("3.4 ") else "format")
    return next((_CODES[inner] for inner in reversed(steps) if inner in _CODES), other)
