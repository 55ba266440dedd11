"""Decode header maps: from CBOR to a header list and pseudo-headers (3.6).

`decode_headers` reads nearly every map in one loop, `_decode_short_map`. Longer and malformed maps are read by
`_decode_any_map`, which follows the document's steps and names the step that refuses. A property test holds that both
return the same.
"""

import re
from typing import Final

from headgate.bundle.format.cbor import Items, data

_FIELD_NAME: Final = r"[!#$%&'*+\-.^_`|~0-9a-z]+"
_NAME: Final = re.compile(_FIELD_NAME.encode())
_ENCODED_NAME: Final = re.compile(rf"(?:[\x41-\x57]|\x58[\x18-\xff])({_FIELD_NAME})")
"""A name of less than 256 bytes, with the head of its byte string, as Latin-1."""
_LINE_BREAKS: Final = re.compile(rb"[\x00\r\n]")
_WHITESPACE: Final = b"\t\n\r "
_COMMON_NAMES: Final = """
:status accept-ranges access-control-allow-origin age allow alt-svc cache-control content-disposition content-encoding
content-language content-length content-location content-security-policy content-type date digest etag expires
last-modified link location referrer-policy server strict-transport-security timing-allow-origin variant-key variants
vary via x-cache x-content-type-options x-frame-options x-powered-by x-request-id x-xss-protection
"""
_COMMON: Final = {data(name.encode()).decode("latin-1"): name for name in _COMMON_NAMES.split()}
"""From the CBOR of a common name, as Latin-1, to the name: these need no check."""


class FieldError(Exception):
    """A header that is refused: why, and which step of 3.6 says so."""

    def __init__(self, reason: str, step: str) -> None:
        super().__init__(reason, step)
        self.reason = reason
        self.step = step


def is_field_name(name: bytes) -> bool:
    """Return whether `name` is a header name for the document and FETCH: a token, in lower case."""
    return _NAME.fullmatch(name) is not None


def is_field_value(value: bytes) -> bool:
    """Return whether `value` is a header value for FETCH: no NUL, CR or LF in it, no whitespace at either end."""
    return _LINE_BREAKS.search(value) is None and len(value.strip(_WHITESPACE)) == len(value)


def decode_headers(source: bytes) -> tuple[dict[str, str], dict[bytes, bytes]]:
    """Convert a header map to headers and pseudo-headers; names in lower case, values as Latin-1.

    Raises `CborError` for bytes that are not such a map, `FieldError` for a name or value that a header list cannot
    hold.
    """
    return _decode_short_map(source) or _decode_any_map(source)


def _decode_any_map(source: bytes) -> tuple[dict[str, str], dict[bytes, bytes]]:
    items = Items(source)
    # 3.6 step 1: {* bstr => bstr}, the whole of it before any single pair.
    pairs = [(name, items.data()) for name in items.entries(items.data)]
    items.end()
    headers: dict[str, str] = {}
    pseudos: dict[bytes, bytes] = {}
    for name, value in pairs:
        if name != name.lower() or not name.isascii():
            raise FieldError(f"the header name {name[:80]!r} is not in lower-case ASCII", "3.6 step 4.1")
        if name.startswith(b":"):
            pseudos[name] = value
            continue
        if not is_field_name(name):
            raise FieldError(f"invalid header name {name[:80]!r}", "3.6 step 4.3")
        if not is_field_value(value):
            raise FieldError(f"invalid value {value[:80]!r} of the header {name[:80].decode()}", "3.6 step 4.3")
        headers[name.decode()] = value.decode("latin-1")
    return headers, pseudos


def _decode_short_map(source: bytes) -> tuple[dict[str, str], dict[bytes, bytes]] | None:
    """Decode a valid map of `:status` and at most 22 headers of 1 to 255 bytes each; return None for any other."""
    if not source or not 0xA1 <= source[0] <= 0xB7 or b"\n" in source or b"\r" in source or b"\0" in source:
        return None
    # Latin-1 has one character for each byte, so one decoding serves all slices.
    text = source.decode("latin-1")
    headers: dict[str, str] = {}
    names, previous, position = _COMMON, "", 1
    try:
        for _ in range(source[0] - 0xA0):
            start, first = position, source[position]
            end = start + first - 0x3F if first < 0x58 else start + 2 + source[start + 1]
            # With its head, since keys are sorted by their encoding.
            key = text[start:end]
            first, begin = source[end], end + 1
            if first < 0x58:
                position = begin + first - 0x40
            else:
                begin += 1
                position = begin + source[begin - 1]
                if first != 0x58 or source[begin - 1] < 24:
                    return None
            # The second test also refuses an empty value, and items that are not strings: those end before they begin.
            if key <= previous or position <= begin or source[begin] <= 0x20 or source[position - 1] <= 0x20:
                return None
            previous = key
            name = names.get(key)
            if name is None:
                found = _ENCODED_NAME.fullmatch(key)
                if found is None:
                    return None
                name = found[1]
            headers[name] = text[begin:position]
        status = headers.pop(":status").encode("latin-1")
    except (IndexError, KeyError):
        return None
    return (headers, {b":status": status}) if position == len(source) else None
