"""Check a bundle: what readers refuse, and what is allowed but unwise.

Each part (preamble, section lengths, each section, each response) is read by the readers' own strict parser and gives
one error at most, so an error in one part does not hide those in others.
"""

from headgate.bundle.lint.findings import Finding, Report
from headgate.bundle.lint.linter import lint

__all__ = ["Finding", "Report", "lint"]
