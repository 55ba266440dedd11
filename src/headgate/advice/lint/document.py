"""Findings in the document itself (traffic-advice.txt, section 6)."""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, Final

from headgate.advice.deployed import DEPLOYED, EARLY_ACCESS, first_match
from headgate.advice.json import decode_utf8, parse_json
from headgate.advice.lint.finding import Finding, finding, kind, quoted

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
