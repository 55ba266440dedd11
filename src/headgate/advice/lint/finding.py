"""One thing that is wrong or unwise in what an origin serves as its traffic advice."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from headgate.advice.result import AdviceEntry

Severity: TypeAlias = Literal["error", "warning"]

SEVERITIES: Final[Mapping[str, Severity]] = MappingProxyType({
    # Of the response.
    "unreachable": "error",
    "redirect": "error",
    "no_opt_out": "error",
    "status": "error",
    "not_served": "warning",
    "media_type": "error",
    "body": "error",
    "fresh_too_long": "warning",
    "fresh_too_short": "warning",
    "nosniff": "warning",
    # Of the document.
    "utf8": "warning",
    "json": "error",
    "not_a_list": "error",
    "empty": "warning",
    "order": "warning",
    "readers_differ": "warning",
    # Of one entry.
    "not_a_map": "error",
    "user_agent": "error",
    "unreachable_entry": "error",
    "fraction_type": "error",
    "fraction_range": "error",
    "disallow_type": "error",
    "early_access_only": "warning",
    "unknown_member": "error",
})  # fmt: skip
"""How bad each code is. An error: what was surely meant reaches no agent that follows the document."""

_LONGEST: Final = 60


class Finding(NamedTuple):
    """One of them."""

    code: str
    """One of `SEVERITIES`."""
    severity: Severity
    message: str
    """A sentence without its full stop; quotations of the document are escaped and short."""


class Report(NamedTuple):
    """What two readers take from what is served, and the findings."""

    conforming: AdviceEntry | None
    """What an agent takes that follows the document; None without advice, or if it was not reached."""
    deployed: AdviceEntry | None
    """What the largest deployed prefetch proxy takes."""
    findings: tuple[Finding, ...]


def finding(code: str, message: str) -> Finding:
    """Make a finding, with the severity of its code."""
    return Finding(code, SEVERITIES[code], message)


def kind(value: Any) -> str:
    """Return what sort of JSON a value is."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return f"the text {quoted(value)}"
    return {float: "a number", list: "a list", dict: "an object"}[type(value)]


def quoted(text: str) -> str:
    """Quote text of the document."""
    return ascii(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")
