"""All that is wrong or unwise in the traffic advice an origin serves, and who reads what from it."""

from headgate.advice.lint.finding import Finding, Report
from headgate.advice.lint.reading import lint_document, lint_response

__all__ = ["Finding", "Report", "lint_document", "lint_response"]
