"""Parse a traffic advice document (traffic-advice.txt, sections 3 and 6).

Bytes become text and text becomes values as the Encoding and Infra standards say, which is what JavaScript does.
Python's decoders do the same with the options used here; comments name the differences. The tests compare the results
with the standards' steps and with a JavaScript engine.
"""

import enum
import json
import re
from collections.abc import Iterable
from typing import Any, Final, Literal, NoReturn, TypeAlias

import msgspec

from headgate.advice.identity import AgentIdentity


class AdviceEntry(msgspec.Struct, frozen=True):
    """A traffic advice entry: what an origin advises the agent that read it.

    Not to be taken for `Entry`, which is what an operator writes, for any agent.
    """

    disallowed: bool = False
    """Whether traffic is discouraged at this time, altogether."""

    fraction: float = 1.0
    """How much of the possible traffic is wanted, from 0 to 1, and never -0."""

    @property
    def wants_all(self) -> bool:
        """Whether nothing is asked of the agent: it is as welcome as can be."""
        return not self.disallowed and self.fraction >= 1


class Unreachable(enum.Enum):
    """The type of `UNREACHABLE`, which is its only member."""

    UNREACHABLE = "unreachable"


UNREACHABLE: Final[Literal[Unreachable.UNREACHABLE]] = Unreachable.UNREACHABLE
"""The server was not able to serve a request for its traffic advice (section 7)."""

AdviceResult: TypeAlias = AdviceEntry | Unreachable | None
"""A traffic advice result: an entry, `UNREACHABLE`, or None where no advice was received."""


def result_to_json(result: AdviceResult) -> dict[str, bool | float] | str | None:
    """Return a result as JSON shows it: an object with `disallowed` and `fraction`, "unreachable", or null."""
    if isinstance(result, AdviceEntry):
        return {"disallowed": result.disallowed, "fraction": result.fraction}
    return result and result.value


MAX_DEPTH: Final = 128
"""How deep lists and maps may be nested. JavaScript has none such; a traffic advice document is two deep."""

BOM: Final = b"\xef\xbb\xbf"
"""The byte order mark, in UTF-8."""

_lexemes = re.compile(r'"(?:[^"\\]++|\\.)*+"?+|[\[{]|[\]}]', re.DOTALL).finditer


def decode_utf8(data: bytes) -> str:
    """Decode as the Encoding standard's "UTF-8 decode": one byte order mark is dropped, invalid UTF-8 is replaced.

    Python replaces the same maximal subparts as the standard's decoder does.
    """
    return data.removeprefix(BOM).decode("utf-8", "replace")


def parse_json(text: str) -> Any:
    """Parse as the Infra standard's "parse a JSON string to an Infra value", which is JavaScript's `JSON.parse`.

    Maps are dicts, in which the last of equal keys won; every number is a float, the nearest there is, infinity
    included; a lone surrogate that was escaped stays one. Raises `ValueError` for invalid JSON, and for JSON that is
    nested too deep.
    """
    # Python's stack is what bounds its parser; so none of it is used before the depth is known to be harmless.
    if text.count("[") + text.count("{") > MAX_DEPTH and _is_too_deep(text):
        raise ValueError(f"nested deeper than {MAX_DEPTH} lists and maps")
    return _decode(text)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


# Python reads `NaN` and `Infinity`, and integers as its own, up to so many digits.
_decode = json.JSONDecoder(parse_int=float, parse_constant=_refuse).decode


def _is_too_deep(text: str) -> bool:
    """Return whether more brackets are open at once than may be, up to where the text stops being JSON at the
    latest."""
    depth = 0
    for lexeme in _lexemes(text):
        first = lexeme[0][0]
        if first in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif first in "]}":
            depth -= 1
    return False


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
