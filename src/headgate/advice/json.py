"""Bytes to text and text to values, as the Encoding and Infra standards have it.

Python's decoders do both with the options used here; comments say where they would differ. The tests compare them with
the standards' steps and with a JavaScript engine.
"""

import json
import re
from typing import Any, Final, NoReturn

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
