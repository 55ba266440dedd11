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
    """A traffic advice entry, as one agent reads it; `Entry` is what an operator writes, for any agent."""

    disallowed: bool = False
    """Whether all traffic is discouraged at this time."""

    fraction: float = 1.0
    """The part of the possible traffic that is wanted, from 0 to 1; never -0."""

    @property
    def wants_all(self) -> bool:
        """Whether the origin wants all traffic."""
        return not self.disallowed and self.fraction >= 1


class _Unreachable(enum.Enum):
    """The type of `UNREACHABLE`, which is its only member."""

    UNREACHABLE = "unreachable"


UNREACHABLE: Final[Literal[_Unreachable.UNREACHABLE]] = _Unreachable.UNREACHABLE
"""The server was not able to serve a request for its traffic advice (section 7)."""

AdviceResult: TypeAlias = AdviceEntry | _Unreachable | None
"""A traffic advice result (section 3): an entry, `UNREACHABLE`, or None without advice."""


def result_to_json(result: AdviceResult) -> dict[str, bool | float] | str | None:
    """Return a result for JSON: an object with `disallowed` and `fraction`, "unreachable", or null."""
    if isinstance(result, AdviceEntry):
        return {"disallowed": result.disallowed, "fraction": result.fraction}
    return result and result.value


MAX_DEPTH: Final = 128
"""Maximum nesting of lists and maps. JavaScript has no maximum; a traffic advice document has two levels."""

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

    Of equal keys in a map the last counts. Every number is the nearest float, which may be infinity. An escaped lone
    surrogate is kept. Raises `ValueError` for invalid JSON, and for JSON nested deeper than `MAX_DEPTH`.
    """
    # Python's parser recurses, so the depth is checked first.
    if text.count("[") + text.count("{") > MAX_DEPTH and _is_too_deep(text):
        raise ValueError(f"nested deeper than {MAX_DEPTH} lists and maps")
    return _decode(text)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


# Python also reads `NaN` and `Infinity`, and limits the digits of an integer.
_decode = json.JSONDecoder(parse_int=float, parse_constant=_refuse).decode


def _is_too_deep(text: str) -> bool:
    """Return whether more than `MAX_DEPTH` brackets are open at once; in invalid JSON, up to the error at least."""
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
    """Return the document's entry for the agent with this `identity`; None without one, and for an invalid document.

    Raises `ConfigurationError` for an invalid `identity` only.
    """
    # The numbers are those of the steps of section 6.
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
    # abs() turns -0 into 0.
    return AdviceEntry(best_match.get("disallow") is True, abs(fraction))


def parse_advice_bytes(data: bytes, identity: Iterable[str]) -> AdviceEntry | None:
    """Parse a document in UTF-8, as it is received (section 5, processResponseEndOfBody steps 2 and 3)."""
    return parse_advice(decode_utf8(data), identity)
