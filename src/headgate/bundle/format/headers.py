"""Header maps: decode those in a bundle (3.6), encode those of a new one.

The encoder is stricter than the document's readers: a value contains no control bytes but tabs, and a status is 100 to
999.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, TypeAlias, cast

from headgate.bundle.format.cbor import MAP, CborError, Items, StepError, data, head, read_head
from headgate.errors import ConfigurationError, fail_if
from headgate.http.fields import LOWER_CASE_TOKEN

Headers: TypeAlias = Mapping[str, str] | Iterable[tuple[str, str]]
"""Names in any case, values as Latin-1; pairs where a name may come more than once."""

Encoded: TypeAlias = Mapping[bytes, bytes]
"""From encoded name to encoded value."""

MAX_HEADERS_SIZE: Final = 524_288
"""A header map of this many bytes or more is an error (3.4 step 4)."""

CONTENT_TYPE: Final = data(b"content-type")

_STATUS: Final = data(b":status")
_NAME: Final = re.compile(LOWER_CASE_TOKEN.encode())
_LINE_BREAKS: Final = re.compile(rb"[\x00\r\n]")
_WHITESPACE: Final = b"\t\n\r "
_STRIPPED: Final = "\t\n\r "
_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_MAX_NAMES: Final = 4096
"""Maximum names that are cached: untrusted input controls how many there are."""


def is_field_name(name: bytes) -> bool:
    """Return whether `name` is a header name for the document and FETCH: a token, in lower case."""
    return _NAME.fullmatch(name) is not None


def is_field_value(value: bytes) -> bool:
    """Return whether `value` is a header value for FETCH: no NUL, CR or LF in it, no whitespace at either end."""
    return _LINE_BREAKS.search(value) is None and len(value.strip(_WHITESPACE)) == len(value)


def decode_headers(source: bytes, offset: int = 0) -> tuple[int, dict[str, str]]:
    """Decode a header map to the status and the headers, with names in lower case and values as Latin-1.

    Raises `StepError` for a map that breaks steps 5 to 8 of 3.4, or 3.6; `offset` is where it begins in the bundle.
    """
    try:
        # 3.6 step 1: {* bstr => bstr}, the whole of it before any single pair.
        items = Items(source)
        pairs = [(name, items.data()) for name in items.entries(items.data)]
        items.end()
    except CborError as error:
        raise StepError(error.reason, f"3.4 step 5, {error.step}", offset + error.offset) from None
    headers: dict[str, str] = {}
    pseudos: dict[bytes, bytes] = {}
    for name, value in pairs:
        if name != name.lower() or not name.isascii():
            fault = f"the header name {name[:80]!r} is not in lower-case ASCII"
            raise StepError(fault, "3.4 step 6, 3.6 step 4.1", offset)
        if name.startswith(b":"):
            pseudos[name] = value
            continue
        if not is_field_name(name):
            raise StepError(f"invalid header name {name[:80]!r}", "3.4 step 6, 3.6 step 4.3", offset)
        if not is_field_value(value):
            fault = f"invalid value {value[:80]!r} of the header {name[:80].decode()}"
            raise StepError(fault, "3.4 step 6, 3.6 step 4.3", offset)
        headers[name.decode()] = value.decode("latin-1")
    return _read_status(pseudos, offset), headers


def _read_status(pseudos: Mapping[bytes, bytes], offset: int) -> int:
    status = pseudos.get(b":status")
    if status is None or len(pseudos) > 1:
        names = ", ".join(repr(name[:40]) for name in list(pseudos)[:4]) or "none"
        raise StepError(f"the pseudo-headers must be :status alone, and are {names}", "3.4 step 7", offset)
    if len(status) != 3 or not status.isdigit():
        raise StepError(f"the status {status[:40]!r} is not three digits", "3.4 step 8", offset)
    return int(status)


def encode_headers(status: int, headers: Headers) -> Encoded:
    """Check and encode status and headers, one entry for each name.

    Raises `ConfigurationError`, which names the header, for one that a bundle cannot hold.
    """
    fail_if(
        not isinstance(status, int) or not 100 <= status <= 999,
        f"the status {status!r} is not an integer of three digits, 100 to 999",
    )
    # 3.4 step 8: "exactly 3 ASCII decimal digits"
    entries = {_STATUS: b"\x43%d" % status}
    for name, value in headers.items() if isinstance(headers, Mapping) else _checked_pairs(headers):
        if not isinstance(name, str):
            raise ConfigurationError(f"the name of a header must be text, got {name!r:.80}")
        key = _encode_name(name)
        if not isinstance(value, str):
            raise ConfigurationError(f"the value of the header {name!r} must be text, got {value!r:.80}")
        stripped = value.strip(_STRIPPED)  # FETCH normalizes values so
        if _VALUE.fullmatch(stripped) is None:
            raise ConfigurationError(_value_error(name, stripped))
        content = stripped.encode("latin-1")
        entries[key] = _joined(name, entries[key], content) if key in entries else data(content)
    return entries


@lru_cache(maxsize=_MAX_NAMES)
def _encode_name(name: str) -> bytes:
    fail_if(name.startswith(":"), f"the header {name!r} is a pseudo-header; a bundle has :status alone, from `status`")
    fail_if(
        not name.isascii() or not is_field_name(name.lower().encode()),
        f"{name[:80]!r} is not a header name; expected a token",
    )
    return data(name.lower().encode())


def _checked_pairs(headers: object) -> list[tuple[str, str]]:
    """Return headers that are not a mapping as pairs; raises `ConfigurationError` for another form."""
    pairs = list(headers) if isinstance(headers, Iterable) and not isinstance(headers, (str, bytes)) else [headers]
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ConfigurationError(f"headers must be a mapping or pairs of name and value, got {pair!r:.80}")
    return cast("list[tuple[str, str]]", pairs)


def encode_stored_headers(status: int, headers: Mapping[str, str]) -> Encoded:
    """Encode headers that were read from a bundle, unchanged."""
    fields = {data(name.encode()): data(value.encode("latin-1")) for name, value in headers.items()}
    return {_STATUS: b"\x43%03d" % status, **fields}


def _joined(name: str, earlier: bytes, more: bytes) -> bytes:
    """Join two values of one name as FETCH combines them; an empty one adds nothing."""
    if name.lower() == "set-cookie":
        # 3.6 step 4.4, note: "a response cannot set more than one cookie"
        raise ConfigurationError("two Set-Cookie headers; a response in a bundle cannot set more than one cookie")
    _, _, start = read_head(earlier)
    return data(b", ".join(filter(None, (earlier[start:], more))))


def _value_error(name: str, value: str) -> str:
    text = repr(value if len(value) <= 80 else f"{value[:77]}...")
    if any(char > "\xff" for char in value):
        return f"the value {text} of {name} is not Latin-1; give the bytes it is sent as, decoded as Latin-1"
    return f"the value {text} of {name} has a control character in it"


def join_header_map(entries: Encoded) -> bytes:
    """Encode the map, its keys in "bytewise lexicographic order of their deterministic encodings" (RFC 8949, 4.2.1).

    Raises `ConfigurationError` for a map that is too long for readers.
    """
    pairs = [key + value for key, value in sorted(entries.items())]
    written = head(MAP, len(pairs)) + b"".join(pairs)
    fail_if(
        len(written) >= MAX_HEADERS_SIZE,
        f"the headers take {len(written)} bytes; a bundle holds less than {MAX_HEADERS_SIZE}",
    )
    return written
