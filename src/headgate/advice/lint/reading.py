"""Findings in a response, and the two readers compared.

Both readers go by the identity of the proxy that asks most sites: an agent that follows the document, and that proxy.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from headgate.advice.deployed import DEPLOYED, read_as_deployed
from headgate.advice.fetching import AdviceResponse, interpret, needs_body
from headgate.advice.freshness import MAX_FRESHNESS, MIN_FRESHNESS
from headgate.advice.lint.document import in_document
from headgate.advice.lint.finding import Finding, Report, finding
from headgate.advice.resource import MEDIA_TYPE
from headgate.advice.result import AdviceEntry
from headgate.http.fields import Pairs, lines_of
from headgate.http.freshness import freshness
from headgate.http.media_type import extract_essence

MOST_FINDINGS: Final = 100
"""Findings that are reported at most, the first ones; a difference between the readers is reported in addition."""

_LONGEST: Final = 60
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
