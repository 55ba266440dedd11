"""Bundles built from parts, each of which can be replaced.

The builder checks nothing, and shares no code with headgate.
"""

from dataclasses import dataclass, field, replace

PRIMARY = "https://test.example.com/"
MANIFEST = "https://test.example.com/manifest"
ORDER = ("critical", "index", "manifest", "primary", "signatures")
"""Where a section goes when it is added; any other name comes after these, and responses last."""


def head(major: int, argument: int, width: int | None = None) -> bytes:
    """Write a head, in the shortest form or with an argument of `width` bytes (1, 2, 4 or 8)."""
    if width is None:
        bounds = ((24, 0), (1 << 8, 1), (1 << 16, 2), (1 << 32, 4))
        width = next((size for bound, size in bounds if argument < bound), 8)
    low = argument if width == 0 else {1: 24, 2: 25, 4: 26, 8: 27}[width]
    return bytes([major << 5 | low]) + (argument.to_bytes(width, "big") if width else b"")


def uint(value: int, width: int | None = None) -> bytes:
    """Write an unsigned integer."""
    return head(0, value, width)


def data(content: bytes) -> bytes:
    """Write a byte string."""
    return head(2, len(content)) + content


def text(content: str | bytes) -> bytes:
    """Write a text string, which may be invalid UTF-8 as bytes."""
    encoded = content.encode() if isinstance(content, str) else content
    return head(3, len(encoded)) + encoded


def array(*items: bytes) -> bytes:
    """Write an array of written items."""
    return head(4, len(items)) + b"".join(items)


def pairs(*entries: tuple[bytes, bytes]) -> bytes:
    """Write a map with its entries in the order given."""
    return head(5, len(entries)) + b"".join(key + value for key, value in entries)


def header_map(fields: dict[bytes, bytes]) -> bytes:
    """Write a header map with sorted keys."""
    return pairs(*sorted((data(name), data(value)) for name, value in fields.items()))


HEADERS = header_map({b":status": b"200", b"content-type": b"text/plain"})


def response(headers: bytes = HEADERS, payload: bytes = b"hello") -> bytes:
    """Write a response from its header map, already written, and its payload."""
    return b"\x82" + data(headers) + data(payload)


RESPONSES = (response(), response(header_map({b":status": b"200", b"content-type": b"application/json"}), b"{}"))
LOCATIONS = ((1, len(RESPONSES[0])), (1 + len(RESPONSES[0]), len(RESPONSES[1])))


def entry(*locations: tuple[int, int], variants: bytes = b"") -> bytes:
    """Write b1's value of an index entry."""
    return array(data(variants), *(uint(number) for location in locations for number in location))


def index(entries: dict[str, bytes]) -> bytes:
    """Write an index with sorted keys."""
    return pairs(*sorted((text(url), value) for url, value in entries.items()))


@dataclass(frozen=True)
class Bundle:
    """A bundle in parts, each the bytes of a whole item; None is computed from the rest. The default is a valid b1."""

    array: bytes = b"\x86"
    magic: bytes = data("🌐📦".encode())
    version: bytes = b"\x44b1\0\0"
    url: bytes = text(PRIMARY)
    sections: dict[str, bytes] = field(
        default_factory=lambda: {
            "index": index({PRIMARY: entry(LOCATIONS[0]), MANIFEST: entry(LOCATIONS[1])}),
            "manifest": text(MANIFEST),
            "responses": array(*RESPONSES),
        }
    )
    lengths: bytes | None = None
    """The section lengths, without the head of the byte string that holds them."""
    lengths_head: bytes | None = None
    sections_head: bytes | None = None
    trailer: bytes | None = None

    def having(self, **sections: bytes | None) -> "Bundle":
        """Return the bundle with these sections added or replaced; None removes one."""
        named = {**self.sections, **sections}
        kept = {name: content for name, content in named.items() if content is not None}
        places = {name: place for place, name in enumerate(ORDER)} | {"responses": len(ORDER) + 1}
        ordered = sorted(kept, key=lambda name: places.get(name, len(ORDER)))
        return self.arranged(*((name, kept[name]) for name in ordered))

    def arranged(self, *sections: tuple[str, bytes]) -> "Bundle":
        """Return the bundle with exactly these sections, in this order."""
        return replace(self, sections=dict(sections))

    def answering(self, first: bytes, length: int | None = None, *after: bytes) -> "Bundle":
        """Return the bundle whose response for PRIMARY is `first`; the valid one for MANIFEST precedes it."""
        good = RESPONSES[1]
        locations = (1, len(good)), (1 + len(good), len(first) if length is None else length)
        entries = {MANIFEST: self.value(locations[0]), PRIMARY: self.value(locations[1])}
        return self.having(index=index(entries), responses=head(4, 2 + len(after)) + b"".join((good, first, *after)))

    def value(self, location: tuple[int, int]) -> bytes:
        """Write an index value of this bundle's version."""
        return array(*map(uint, location)) if self.array == b"\x85" else entry(location)

    def section_lengths(self) -> bytes:
        """Return the contents of the section lengths, as set or computed."""
        if self.lengths is not None:
            return self.lengths
        items = [item for name, content in self.sections.items() for item in (text(name), uint(len(content)))]
        return array(*items)

    def pieces(self) -> list[tuple[str, bytes]]:
        """Return the bundle's bytes as pieces with names, the sections under their own."""
        lengths = self.section_lengths()
        lengths_head = head(2, len(lengths)) if self.lengths_head is None else self.lengths_head
        sections_head = head(4, len(self.sections)) if self.sections_head is None else self.sections_head
        named = [("array", self.array), ("magic", self.magic), ("version", self.version), ("url", self.url)]
        named += [("lengths head", lengths_head), ("lengths", lengths), ("sections", sections_head)]
        named += self.sections.items()
        end = trailer(sum(len(piece) for _, piece in named) + 9) if self.trailer is None else self.trailer
        return [*named, ("trailer", end)]

    def written(self) -> bytes:
        """Return the bytes."""
        return b"".join(piece for _, piece in self.pieces())

    def at(self, name: str) -> int:
        """Return the offset of a piece."""
        offset = 0
        for piece, content in self.pieces():
            if piece == name:
                return offset
            offset += len(content)
        raise KeyError(name)


def trailer(length: int) -> bytes:
    """Write the length that ends a bundle."""
    return b"\x48" + length.to_bytes(8, "big")


def nested(count: int, payload: bytes = b"x" * 1_000) -> Bundle:
    """Return a bundle with nested responses for PRIMARY + "0", and so on: each is the payload of the next."""
    sizes = []
    for _ in range(count):
        payload = response(payload=payload)
        sizes.append(len(payload))
    entries = {f"{PRIMARY}{number}": entry((1 + len(payload) - size, size)) for number, size in enumerate(sizes)}
    return Bundle().having(index=index(entries), manifest=text(f"{PRIMARY}0"), responses=array(payload))


def sharing(count: int, first: bytes) -> Bundle:
    """Return a bundle in which PRIMARY + "0", and so on, share one response."""
    entries = {f"{PRIMARY}{number}": entry((1, len(first))) for number in range(count)}
    return Bundle().having(index=index(entries), manifest=text(f"{PRIMARY}0"), responses=array(first))


def draft01() -> Bundle:
    """Return a valid bundle as the document's text defines it."""
    return Bundle(array=b"\x84", version=b"\x441\0\0\0")


def b2() -> Bundle:
    """Return a valid b2 bundle: a primary section, and index values of two integers."""
    return Bundle(array=b"\x85", version=b"\x44b2\0\0", url=b"").arranged(
        ("index", index({PRIMARY: array(*map(uint, LOCATIONS[0])), MANIFEST: array(*map(uint, LOCATIONS[1]))})),
        ("primary", text(PRIMARY)),
        ("responses", array(*RESPONSES)),
    )
