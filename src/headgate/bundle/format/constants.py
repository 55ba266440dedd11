"""The numbers and byte strings of the format, each once."""

from typing import Final

from headgate.bundle.model import Version

MAGIC: Final = b"\x48\xf0\x9f\x8c\x90\xf0\x9f\x93\xa6"
"""The CBOR byte string that follows the head of the array (3.3 step 2)."""

VERSION_BYTES: Final[dict[Version, bytes]] = {"draft-01": b"1\0\0\0", "b1": b"b1\0\0", "b2": b"b2\0\0"}
"""From each version to its name in a bundle."""

VERSIONS_BY_ARRAY_HEAD: Final[dict[int, tuple[Version, ...]]] = {
    0x84: ("draft-01", "b1"),
    0x86: ("draft-01", "b1"),
    0x85: ("b2",),
}
"""From the first byte to the versions with its layout: the document's text says 0x84, but its CDDL has six items."""

MAX_SECTION_TABLE_SIZE: Final = 8_192
"""Section lengths of this many bytes or more are a format error (3.3 step 9)."""

MAX_HEADERS_SIZE: Final = 524_288
"""A header map of this many bytes or more is an error (3.4 step 4)."""

LONGEST_HEAD: Final = 9
"""Bytes of the longest head of a CBOR item."""

TRAILER_SIZE: Final = 9
"""Bytes of the length at the end of a bundle: the head of an 8-byte string and a big-endian integer (3.3.6)."""

_SECTIONS: Final = frozenset({"index", "manifest", "critical", "signatures", "responses"})
"""The names in the document's registry (6.2)."""


def known_sections(version: Version) -> frozenset[str]:
    """Return the names of the sections that are implemented for a version (3.3 step 15)."""
    return _SECTIONS | {"primary"} if version == "b2" else _SECTIONS
