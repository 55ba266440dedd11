"""Header maps: from CBOR to a header list and pseudo-headers (3.6).

The common map, short names and values in order, is read by one tight loop; whatever that does not know goes to the
careful reading below it, which is the law and says what is wrong. A property test holds the two equal.
"""

import re

from headgate.bundle.format.cbor import Items

__all__ = ["FieldError", "decode_common_headers", "decode_headers", "is_field_name", "is_field_value"]

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_LINE_BREAKS = re.compile(rb"[\x00\r\n]")
_WHITESPACE = b"\t\n\r "
_COMMON_NAMES = """
:status accept-ranges age allow alt-svc cache-control content-disposition content-encoding content-language
content-length content-location content-type date digest etag expires last-modified link location permissions-policy
pragma referrer-policy repr-digest server service-worker-allowed set-cookie sourcemap timing-allow-origin variant-key
variants vary via warning x-cache x-content-type-options x-frame-options x-powered-by x-request-id x-xss-protection
"""
_COMMON = {chr(0x40 + len(name)) + name: name for name in _COMMON_NAMES.split() if len(name) < 24}
"""From the CBOR of a common name, as Latin-1, to the name."""


class FieldError(Exception):
    """A header that is refused: why, and which step of 3.6 says so."""

    def __init__(self, reason: str, step: str) -> None:
        super().__init__(reason, step)
        self.reason = reason
        self.step = step


def is_field_name(name: bytes) -> bool:
    """Say if `name` is a header name as the document and FETCH want it: a token, in lower case."""
    return _NAME.fullmatch(name) is not None


def is_field_value(value: bytes) -> bool:
    """Say if `value` is one for FETCH: no NUL, CR or LF in it, no whitespace at either end."""
    return _LINE_BREAKS.search(value) is None and len(value.strip(_WHITESPACE)) == len(value)


def decode_headers(source: bytes) -> tuple[dict[str, str], dict[bytes, bytes]]:
    """Convert a header map to headers and pseudo-headers; names in lower case, values as Latin-1.

    Raises `CborError` for bytes that are no such map, `FieldError` for one that holds what no header list may.
    """
    common = decode_common_headers(source)
    return _read_any(source) if common is None else (common[0], {b":status": common[1]})


def _read_any(source: bytes) -> tuple[dict[str, str], dict[bytes, bytes]]:
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
            raise FieldError(f"{name[:80]!r} is no header name", "3.6 step 4.3")
        if not is_field_value(value):
            raise FieldError(f"{value[:80]!r} is no value for {name[:80].decode()}", "3.6 step 4.3")
        headers[name.decode()] = value.decode("latin-1")
    return headers, pseudos


def decode_common_headers(source: bytes) -> tuple[dict[str, str], bytes] | None:
    """Read a map of `:status` and at most 22 common headers; None for anything else, or anything wrong."""
    if not source or not 0xA1 <= source[0] <= 0xB7 or b"\n" in source or b"\r" in source or b"\0" in source:
        return None
    # Latin-1 has one character for each byte: what is sliced once decoded need not be decoded again.
    text = source.decode("latin-1")
    headers: dict[str, str] = {}
    names, previous, position = _COMMON, "", 1
    try:
        for _ in range(source[0] - 0xA0):
            # The head of such a name is one byte, so the key's bytes sort as its head and name do.
            size = position + source[position] - 0x3F
            key = text[position:size]
            start, length = size + 1, source[size]
            if length < 0x58:
                position = start + length - 0x40
            else:
                length = source[start] if length == 0x58 else 0
                start += 1
                position = start + length
                if length < 24:
                    return None
            # This also refuses an empty value, and what was no string: its end is before its start.
            if key <= previous or position <= start or source[start] <= 0x20 or source[position - 1] <= 0x20:
                return None
            previous = key
            headers[names[key]] = text[start:position]
        status = headers.pop(":status").encode("latin-1")
    except (IndexError, KeyError):
        return None
    return (headers, status) if position == len(source) else None
