"""What is wrong or unwise in an origin's traffic advice, as agents that follow the document read it."""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from headgate.advice.fetching import MEDIA_TYPE, AdviceResponse, interpret, needs_body
from headgate.advice.freshness import MAX_FRESHNESS, MIN_FRESHNESS
from headgate.advice.identity import AgentIdentity
from headgate.advice.parser import BOM, AdviceEntry, decode_utf8, parse_json
from headgate.http.fields import Pairs, lines_of
from headgate.http.freshness import freshness
from headgate.http.media_type import extract_essence

Severity: TypeAlias = Literal["error", "warning"]

SEVERITIES: Final[Mapping[str, Severity]] = MappingProxyType({
    # In a response.
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
    # In a document.
    "utf8": "warning",
    "json": "error",
    "not_a_list": "error",
    "empty": "warning",
    # In an entry.
    "not_a_map": "error",
    "user_agent": "error",
    "unreachable_entry": "error",
    "fraction_type": "error",
    "fraction_range": "error",
    "disallow_type": "error",
    "unknown_member": "error",
})  # fmt: skip
"""The severity of each code. An error hides intended advice from agents that follow the document."""

MAX_FINDINGS: Final = 100
"""Maximum findings in a report, the first ones."""

DEPLOYED: Final = AgentIdentity.of("Chrome Privacy Preserving Prefetch Proxy", prefetch_proxy=True)
"""The identity of the largest deployed prefetch proxy."""

_MAX_QUOTE: Final = 60
_MAX_MEMBER: Final = 40
_MEMBERS: Final = ("user_agent", "disallow", "fraction")
_SIMILARITY: Final = 0.75
_KNOWN_MISTAKES: Final = {
    "application/json": "application/json was the media type of an early draft",
    "application/traffic-advice+json": "the media type is written without a hyphen",
}


class AdviceFinding(NamedTuple):
    """One mistake or unwise choice."""

    code: str
    """One of `SEVERITIES`."""
    severity: Severity
    message: str
    """A sentence without its full stop; quotations of the document are escaped and short."""


class AdviceReport(NamedTuple):
    """What a prefetch proxy reads, and the findings."""

    conforming: AdviceEntry | None
    """What it reads if it follows the document; None without advice, and for an unreachable origin."""
    findings: tuple[AdviceFinding, ...]


def lint_document(body: bytes, *, content_type: str | None = None) -> AdviceReport:
    """Lint a document and, if it is given, the content type that it is served with."""
    fields = [("Content-Type", MEDIA_TYPE if content_type is None else content_type)]
    return _report(AdviceResponse(200, fields, body), chain(_check_media_type(fields), _check_document(body)))


def lint_response(response: AdviceResponse, *, now: float) -> AdviceReport:
    """Lint the response of an origin received at `now`."""
    if findings := list(_check_status(response.status)):
        return _report(response, findings)
    findings = [*_check_media_type(response.fields), *_check_fields(response.fields, now)]
    if response.body is not None:
        return _report(response, chain(findings, _check_document(response.body)))
    if needs_body(response.status, response.fields):
        findings.append(_finding("body", "the body is incomplete or too long; agents ignore it"))
    return _report(response, findings)


def _report(response: AdviceResponse, findings: Iterable[AdviceFinding]) -> AdviceReport:
    result = interpret(response, DEPLOYED)
    conforming = result if isinstance(result, AdviceEntry) else None
    return AdviceReport(conforming, tuple(islice(findings, MAX_FINDINGS)))


def _check_status(status: int) -> Iterator[AdviceFinding]:
    """Yield a finding if agents ignore the rest of a response with this status."""
    if status == 0:
        yield _finding("unreachable", "no response received; agents may send nothing for a while, and ask again")
    elif status in {429, 503}:
        yield _finding("unreachable", f"status {status}: agents may send nothing for a while, and ask again")
    elif 300 <= status <= 399:
        yield _finding("redirect", f"status {status}: agents do not follow redirects to traffic advice")
    elif status in {401, 403}:
        yield _finding(
            "no_opt_out", f'status {status} opts out of nothing; serve [{{"user_agent":"*","disallow":true}}]'
        )
    elif status in {404, 410}:
        yield _finding("not_served", f"status {status}: without advice, agents use their default behaviour")
    elif not 200 <= status <= 299 or status in {204, 205}:
        yield _finding("status", f"status {status}: agents ignore the body of such a response")


def _check_media_type(fields: Pairs) -> Iterator[AdviceFinding]:
    essence = extract_essence(lines_of(fields, "content-type"))
    if essence is None:
        yield _finding("media_type", f"the media type is missing or malformed; agents read only {MEDIA_TYPE}")
    elif essence != MEDIA_TYPE:
        mistake = _KNOWN_MISTAKES.get(essence, f"the media type is {essence[:_MAX_QUOTE]}")
        yield _finding("media_type", f"{mistake}; agents read only {MEDIA_TYPE}")


def _check_fields(fields: Pairs, now: float) -> Iterator[AdviceFinding]:
    lifetime = freshness(fields, now=now).lifetime
    if lifetime is not None and lifetime > MAX_FRESHNESS:
        yield _finding(
            "fresh_too_long", f"a freshness of {lifetime:.0f} s is reduced to {MAX_FRESHNESS:.0f} s by agents"
        )
    elif lifetime is not None and lifetime < MIN_FRESHNESS:
        yield _finding(
            "fresh_too_short", f"a freshness of {lifetime:.0f} s is raised to {MIN_FRESHNESS:.0f} s by agents"
        )
    # 8.1: "standard countermeasures (e.g., X-Content-Type-Options: nosniff) can be used to prevent type confusion"
    options = ",".join(lines_of(fields, "x-content-type-options")).partition(",")[0]
    if options.strip("\t ").lower() != "nosniff":
        yield _finding(
            "nosniff", "X-Content-Type-Options: nosniff is missing; without it this could be run as a script"
        )


def _check_document(body: bytes) -> Iterator[AdviceFinding]:
    """Yield the findings in a document (section 6)."""
    text = decode_utf8(body)
    if text.encode("utf-8", "replace") != body.removeprefix(BOM):
        yield _finding("utf8", "the document is not valid UTF-8; agents replace invalid bytes, or ignore it")
    try:
        parsed = parse_json(text)
    except ValueError as error:
        yield _finding("json", f"the document is not JSON: {error}")
        return
    if not isinstance(parsed, list):
        yield _finding("not_a_list", f"the document is {_kind(parsed)}; expected a list of entries")
        return
    if not parsed:
        yield _finding("empty", "a list without entries contains no advice, like a 404")
    seen: set[str] = set()
    for number, entry in enumerate(parsed, start=1):
        name = f"entry {number}"
        if isinstance(entry, dict):
            yield from _check_members(name, entry)
            yield from _check_user_agent(name, entry, seen)
        else:
            yield _finding("not_a_map", f"{name} is {_kind(entry)}, so agents ignore it; expected an object")


def _check_members(name: str, entry: dict[str, Any]) -> Iterator[AdviceFinding]:
    fraction = entry.get("fraction")
    if "fraction" in entry and not isinstance(fraction, float):
        yield _finding(
            "fraction_type", f"{name}: fraction is {_kind(fraction)}, so agents ignore it; expected a number"
        )
    elif isinstance(fraction, float) and not 0 <= fraction <= 1:
        yield _finding("fraction_range", f"{name}: fraction is {fraction:g}, so agents ignore it; expected 0 to 1")
    if "disallow" in entry and not isinstance(entry["disallow"], bool):
        yield _finding("disallow_type", f"{name}: disallow is {_kind(entry['disallow'])}, and only true disallows")
    for member in entry:
        similar = () if member in _MEMBERS else get_close_matches(member.casefold(), _MEMBERS, 1, _SIMILARITY)
        if similar and len(member) <= _MAX_MEMBER:
            yield _finding("unknown_member", f"{name}: unknown member {_quote(member)}; did you mean {similar[0]!r}?")


def _check_user_agent(name: str, entry: dict[str, Any], seen: set[str]) -> Iterator[AdviceFinding]:
    """Yield what hides an entry from its agents; `seen` has the agents of the entries before, and gets this one's."""
    selector = entry.get("user_agent")
    if not isinstance(selector, str):
        actual = _kind(selector) if "user_agent" in entry else "missing"
        yield _finding("user_agent", f"{name}: user_agent is {actual}, so agents ignore the entry")
        return
    if selector in seen:
        yield _finding("unreachable_entry", f"{name}: agents ignore a second entry for {_quote(selector)}")
    seen.add(selector)
    names = {agent.casefold(): agent for agent in DEPLOYED}
    meant = names.get(selector.strip().casefold().replace("_", "-"), selector)
    if meant != selector:
        yield _finding("user_agent", f"{name}: names are compared exactly, and {_quote(selector)} is not {meant!r}")


def _finding(code: str, message: str) -> AdviceFinding:
    return AdviceFinding(code, SEVERITIES[code], message)


def _kind(value: Any) -> str:
    """Return what kind of JSON a value is."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return f"the text {_quote(value)}"
    return {float: "a number", list: "a list", dict: "an object"}[type(value)]


def _quote(text: str) -> str:
    return ascii(text if len(text) <= _MAX_QUOTE else f"{text[:_MAX_QUOTE]}...")
