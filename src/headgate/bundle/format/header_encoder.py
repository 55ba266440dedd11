"""Encode header maps: checked, joined and deterministic (3.6, and 3.4 steps 4 to 9).

Stricter than the document's readers: a value contains no control bytes but tabs, and a status is 100 to 999.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from headgate.bundle.format.cbor import MAP, data, head, read_head
from headgate.bundle.format.header_decoder import is_field_name
from headgate.errors import ConfigurationError

Headers: TypeAlias = Mapping[str, str] | Iterable[tuple[str, str]]
"""Names in any case, values as Latin-1; pairs where a name may come more than once."""

Encoded: TypeAlias = Mapping[bytes, bytes]
"""From encoded name to encoded value."""

_MAX_MAP_SIZE: Final = 512 * 1024
"""3.4 step 4: a header map of this many bytes or more is refused."""
CONTENT_TYPE: Final = data(b"content-type")

_STATUS: Final = data(b":status")
_WHITESPACE: Final = "\t\n\r "
_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_MAX_NAMES: Final = 4096
"""Maximum names that are cached: untrusted input controls how many there are."""


class HeaderEncoder:
    """Encodes header maps; caches encoded names."""

    def __init__(self) -> None:
        self._names: dict[str, bytes] = {}

    def encode(self, status: int, headers: Headers) -> Encoded:
        """Check and encode status and headers, one entry for each name.

        Raises `ConfigurationError`, which names the header, for one that a bundle cannot hold.
        """
        if not isinstance(status, int) or not 100 <= status <= 999:
            raise ConfigurationError(f"the status {status!r} is not an integer of three digits, 100 to 999")
        # 3.4 step 8: "exactly 3 ASCII decimal digits"
        entries = {_STATUS: b"\x43%d" % status}
        names = self._names
        for name, value in headers.items() if isinstance(headers, Mapping) else headers:
            key = names.get(name) or self._encode_name(name)
            if value[:1] in _WHITESPACE or value[-1:] in _WHITESPACE:
                value = value.strip(_WHITESPACE)  # noqa: PLW2901 - FETCH normalizes values so
            if _VALUE.fullmatch(value) is None:
                raise ConfigurationError(_value_error(name, value))
            content = value.encode("latin-1")
            if key in entries:
                entries[key] = _joined(name, entries[key], content)
            else:
                entries[key] = data(content)
        return entries

    def _encode_name(self, name: str) -> bytes:
        lowered = name.lower()
        if name.startswith(":"):
            raise ConfigurationError(
                f"the header {name!r} is a pseudo-header; a bundle has :status alone, from `status`"
            )
        if not name.isascii() or not is_field_name(lowered.encode()):
            raise ConfigurationError(f"{name[:80]!r} is not a header name; expected a token")
        key = data(lowered.encode())
        if len(self._names) >= _MAX_NAMES:
            self._names.clear()
        self._names[name] = key
        return key


def encode_stored_headers(status: int, headers: Mapping[str, str]) -> Encoded:
    """Encode headers that were read from a bundle, unchanged."""
    fields = {data(name.encode()): data(value.encode("latin-1")) for name, value in headers.items()}
    return {_STATUS: b"\x43%03d" % status, **fields}


def stored_headers(entries: Encoded) -> Iterator[tuple[str, str]]:
    """Yield the headers as readers will see them, without the status."""
    for key, value in entries.items():
        if key != _STATUS:
            yield _content(key), _content(value)


def _content(item: bytes) -> str:
    return item[read_head(item)[2] :].decode("latin-1")


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
    if len(written) >= _MAX_MAP_SIZE:
        raise ConfigurationError(f"the headers take {len(written)} bytes; a bundle holds less than {_MAX_MAP_SIZE}")
    return written
