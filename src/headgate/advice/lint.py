"""What is wrong or unwise in an origin's traffic advice, and what two kinds of agents read from it.

One is an agent that follows the document; the other is the largest deployed prefetch proxy, which differs from it. Its
behaviour is that of the checker by the document's editor, as of the early access programme ("EAP"). Both have the
identity of that proxy.
"""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from headgate.advice.fetching import AdviceResponse, interpret, needs_body
from headgate.advice.freshness import MAX_FRESHNESS, MIN_FRESHNESS
from headgate.advice.identity import AgentIdentity
from headgate.advice.parser import BOM, AdviceEntry, decode_utf8, parse_json
from headgate.advice.publisher import MEDIA_TYPE
from headgate.http.fields import Pairs, lines_of
from headgate.http.freshness import freshness
from headgate.http.media_type import extract_essence

__all__ = [
    "Finding",
    "Report",
    "lint_document",
    "lint_response",
]


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


_MEMBERS: Final = ("user_agent", "disallow", "fraction", EARLY_ACCESS)
_LIKENESS: Final = 0.75
_LONGEST_MEMBER: Final = 40


def in_document(body: bytes) -> Iterator[Finding]:
    """Find what is wrong in the document that these bytes are."""
    text = decode_utf8(body)
    if "\ufffd" in text and not _is_utf8(body):
        yield finding("utf8", "not all of it is UTF-8; the deployed proxy reads none of it")
    try:
        parsed = parse_json(text)
    except ValueError as error:
        yield finding("json", f"it is not JSON: {error}")
        return
    if not isinstance(parsed, list):
        yield finding("not_a_list", f"it is {kind(parsed)}, and has to be a list of entries")
        return
    if not parsed:
        yield finding("empty", "a list without entries advises nothing, as a 404 would")
    seen: set[str] = set()
    for number, entry in enumerate(parsed, start=1):
        name = f"entry {number}"
        if isinstance(entry, dict):
            yield from _in_members(name, entry)
            yield from _in_user_agent(name, entry, seen)
        else:
            yield finding("not_a_map", f"{name} is {kind(entry)}, and is passed over")
    yield from _in_order(parsed)


def _in_user_agent(name: str, entry: dict[str, Any], seen: set[str]) -> Iterator[Finding]:
    """Find what keeps an entry from its agents; `seen` are the agents of those before it, and then its own too."""
    selector = entry.get("user_agent")
    if not isinstance(selector, str):
        lack = kind(selector) if "user_agent" in entry else "missing"
        yield finding("user_agent", f"{name}: user_agent is {lack}, so the entry is passed over")
        return
    if selector in seen:
        yield finding("unreachable_entry", f"{name}: no agent reads a second entry for {quoted(selector)}")
    seen.add(selector)
    meant = {agent.casefold(): agent for agent in DEPLOYED}.get(selector.strip().casefold().replace("_", "-"), selector)
    if meant != selector:
        yield finding("user_agent", f"{name}: names are compared exactly, and {quoted(selector)} is not {meant!r}")


def _in_members(name: str, entry: dict[str, Any]) -> Iterator[Finding]:
    fraction = entry.get("fraction")
    if "fraction" in entry and not isinstance(fraction, float):
        yield finding("fraction_type", f"{name}: fraction is {kind(fraction)}, so it is passed over; write a number")
    elif isinstance(fraction, float) and not 0 <= fraction <= 1:
        yield finding("fraction_range", f"{name}: fraction is {fraction:g}, not from 0 to 1, so it is passed over")
    if "disallow" in entry and not isinstance(entry["disallow"], bool):
        yield finding("disallow_type", f"{name}: disallow is {kind(entry['disallow'])}, and only true disallows")
    if EARLY_ACCESS in entry and not isinstance(fraction, float):
        yield finding("early_access_only", f"{name}: only one proxy reads {EARLY_ACCESS}; write fraction beside it")
    for member in entry:
        near = () if member in _MEMBERS else get_close_matches(member.casefold(), _MEMBERS, 1, _LIKENESS)
        if near and len(member) <= _LONGEST_MEMBER:
            yield finding("unknown_member", f"{name}: unknown member {quoted(member)}; is {near[0]} meant?")


def _in_order(parsed: list[Any]) -> Iterator[Finding]:
    """Find that the deployed proxy never comes to the entry that is most its own."""
    first = first_match(parsed)
    if first is None:
        return
    agents = [entry.get("user_agent") for entry in parsed if isinstance(entry, dict)]
    most_specific = next(agent for agent in DEPLOYED if agent in agents)
    if most_specific != first["user_agent"]:
        yield finding(
            "order",
            f"the deployed proxy takes the first entry that names it, {first['user_agent']!r};"
            f" let {most_specific!r} come before it",
        )


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


MOST_FINDINGS: Final = 100
"""Findings that are reported at most, the first ones; a difference between the readers is reported in addition."""

_ONCE_RIGHT: Final = {
    "application/json": "application/json was the media type of an early draft",
    "application/traffic-advice+json": "the media type is written without a hyphen",
}


def lint_document(body: bytes, *, content_type: str | None = None) -> Report:
    """Lint a document by itself; `content_type` is what it is served with, where that is to be looked at too."""
    fields = [("Content-Type", MEDIA_TYPE if content_type is None else content_type)]
    return _report(AdviceResponse(200, fields, body), [_in_media_type(fields), in_document(body)])


def lint_response(response: AdviceResponse, *, now: float, is_secure: bool) -> Report:
    """Lint what an origin answered at the instant `now`; `is_secure` says whether its scheme is https."""
    settled = [*_in_status(response.status)]
    if settled:
        return _report(response, [settled], is_secure=is_secure)
    found = [_in_media_type(response.fields), _in_fields(response.fields, now)]
    if response.body is not None:
        found.append(in_document(response.body))
    elif needs_body(response.status, response.fields):
        found.append(iter([finding("body", "the body did not arrive whole, or is too long; no agent reads it")]))
    return _report(response, found, is_secure=is_secure)


def _report(response: AdviceResponse, found: Iterable[Iterable[Finding]], *, is_secure: bool = True) -> Report:
    result = interpret(response, DEPLOYED)
    conforming = result if isinstance(result, AdviceEntry) else None
    deployed = read_as_deployed(response, is_secure=is_secure)
    findings = [*islice((each for part in found for each in part), MOST_FINDINGS)]
    if conforming != deployed:
        why = "" if is_secure else ", which asks https origins only,"
        findings.append(
            finding(
                "readers_differ",
                f"agents that follow the document read {_told(conforming)},"
                f" the largest deployed prefetch proxy{why} {_told(deployed)}",
            )
        )
    return Report(conforming, deployed, tuple(findings))


def _in_status(status: int) -> Iterator[Finding]:
    """Find what is wrong with a status behind which no agent reads on."""
    if status == 0:
        yield finding("unreachable", "no response came; agents may stay away for a while, and ask again")
    elif status in {429, 503}:
        yield finding(
            "unreachable", f"status {status} instead of advice: agents may send nothing for a while, and ask again"
        )
    elif 300 <= status <= 399:
        yield finding("redirect", f"status {status}: no agent follows a redirect to traffic advice")
    elif status in {401, 403}:
        yield finding(
            "no_opt_out", f'status {status} opts out of nothing; serve [{{"user_agent":"*","disallow":true}}]'
        )
    elif status in {404, 410}:
        yield finding("not_served", f"status {status}: without advice, agents behave as by default")
    elif not 200 <= status <= 299 or status in {204, 205}:
        yield finding("status", f"status {status} brings no advice, whatever its body is")


def _in_media_type(fields: Pairs) -> Iterator[Finding]:
    essence = extract_essence(lines_of(fields, "content-type"))
    if essence is None:
        yield finding("media_type", f"the media type is missing or malformed; agents read only {MEDIA_TYPE}")
    elif essence != MEDIA_TYPE:
        sentence = _ONCE_RIGHT.get(essence, f"the media type is {essence[:_LONGEST]}")
        yield finding("media_type", f"{sentence}; agents read only {MEDIA_TYPE}")


def _in_fields(fields: Pairs, now: float) -> Iterator[Finding]:
    lifetime = freshness(fields, now=now).lifetime
    if lifetime is not None and lifetime > MAX_FRESHNESS:
        yield finding(
            "fresh_too_long", f"{lifetime:.0f} s of freshness are more than agents keep to, {MAX_FRESHNESS:.0f}"
        )
    elif lifetime is not None and lifetime < MIN_FRESHNESS:
        yield finding(
            "fresh_too_short", f"{lifetime:.0f} s of freshness are less than agents keep to, {MIN_FRESHNESS:.0f}"
        )
    # 8.1: "standard countermeasures (e.g., X-Content-Type-Options: nosniff) can be used to prevent type confusion"
    options = ",".join(lines_of(fields, "x-content-type-options")).partition(",")[0]
    if options.strip("\t ").lower() != "nosniff":
        yield finding(
            "nosniff", "X-Content-Type-Options: nosniff is missing, and without it this could be run as a script"
        )


def _told(entry: AdviceEntry | None) -> str:
    if entry is None:
        return "no advice"
    return "that traffic is disallowed" if entry.disallowed else f"a fraction of {entry.fraction:g}"
