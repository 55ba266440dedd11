"""Reading a traffic advice document (traffic-advice.txt, section 6)."""

from collections.abc import Iterable

from headgate.advice.identity import AgentIdentity
from headgate.advice.json import decode_utf8, parse_json
from headgate.advice.result import AdviceEntry


def parse_advice(text: str, identity: Iterable[str]) -> AdviceEntry | None:
    """Return the entry of the document that is for the agent of this `identity`; None where there is none.

    No text raises an error; `ConfigurationError` is raised for names that make no `AgentIdentity`. The numbers are
    those of section 6's steps.
    """
    identity = AgentIdentity(identity)
    try:
        parsed = parse_json(text)
    except ValueError:
        return None  # 1
    if type(parsed) is not list:
        return None  # 2
    best_match, best_index = None, len(identity)  # 3
    for entry in parsed:
        if type(entry) is not dict:
            continue  # 4.1
        agent_selector = entry.get("user_agent")
        if type(agent_selector) is not str or agent_selector not in identity:
            continue  # 4.2, 4.4
        # 4.5: an earlier index, not an equal one: of two entries for one name the first counts.
        if (index := identity.index(agent_selector)) < best_index:
            best_match, best_index = entry, index
    if best_match is None:
        return None  # 5
    fraction = best_match.get("fraction")
    if type(fraction) is not float or not 0 <= fraction <= 1:  # `true` is a boolean
        fraction = 1.0  # 8, 8.2
    # -0 is 0, and would print as another.
    return AdviceEntry(best_match.get("disallow") is True, abs(fraction))


def parse_advice_bytes(data: bytes, identity: Iterable[str]) -> AdviceEntry | None:
    """Return the same of a document as it arrives: in UTF-8 (section 5, processResponseEndOfBody steps 2 and 3)."""
    return parse_advice(decode_utf8(data), identity)
