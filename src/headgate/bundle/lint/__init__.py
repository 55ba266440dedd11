"""Everything that is wrong with a bundle, and everything that is allowed and unwise."""

from headgate.bundle.lint.finding import Finding, Report
from headgate.bundle.lint.walk import lint

__all__ = ["Finding", "Report", "lint"]
