"""How the largest deployed prefetch proxy reads traffic advice, which is not how the document says.

After the checker that the document's own editor wrote for it, in its state of the early access programme ("EAP").
"""

from collections.abc import Mapping
from typing import Any, Final

from headgate.advice.fetching import AdviceResponse, needs_body
from headgate.advice.identity import AgentIdentity
from headgate.advice.json import BOM, parse_json
from headgate.advice.result import AdviceEntry

DEPLOYED: Final = AgentIdentity.of("Chrome Privacy Preserving Prefetch Proxy", prefetch_proxy=True)
"""Its identity."""

EARLY_ACCESS: Final = "google_prefetch_proxy_eap"
"""The member of an entry that it alone reads: a map with a fraction of its own."""


def read_as_deployed(response: AdviceResponse, *, is_secure: bool = True) -> AdviceEntry | None:
    """Return what it takes from a response; None for no advice. `is_secure`: whether the origin's scheme is https.

    It asks https origins only, wants status 200, and refuses invalid UTF-8.
    """
    if not (is_secure and response.status == 200 and needs_body(200, response.fields) and response.body is not None):
        return None
    try:
        parsed = parse_json(response.body.removeprefix(BOM).decode())
    except ValueError:
        return None
    entry = first_match(parsed)
    return None if entry is None else _read(entry)


def first_match(parsed: Any) -> Mapping[str, Any] | None:
    """Return the first entry of a document that names it, however generally; None where none does."""
    if type(parsed) is not list:
        return None
    return next((entry for entry in parsed if type(entry) is dict and _names(entry)), None)


def _names(entry: Mapping[str, Any]) -> bool:
    selector = entry.get("user_agent")
    return type(selector) is str and selector in DEPLOYED


def _read(entry: Mapping[str, Any]) -> AdviceEntry:
    if type(fraction := entry.get("fraction")) is float:
        return AdviceEntry(fraction=_within(fraction))  # whatever `disallow` says
    if type(disallow := entry.get("disallow")) is bool:
        return AdviceEntry(disallowed=disallow)
    early_access = entry.get(EARLY_ACCESS)
    fraction = early_access.get("fraction") if type(early_access) is dict else None
    # An entry without a fraction for it did not ask to take part.
    return AdviceEntry(fraction=_within(fraction) if type(fraction) is float else 0.0)


def _within(fraction: float) -> float:
    return abs(min(max(fraction, 0.0), 1.0))
