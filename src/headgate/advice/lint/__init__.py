"""What is wrong or unwise in the traffic advice of an origin, and what two kinds of agents read from it."""

from headgate.advice.lint.finding import Finding, Report
from headgate.advice.lint.reading import lint_document, lint_response

__all__ = ["Finding", "Report", "lint_document", "lint_response"]
