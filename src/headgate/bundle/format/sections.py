"""The small sections: manifest, primary, critical and signatures (3.3.2 to 3.3.4; `primary` is b2's)."""

from collections.abc import Collection

from headgate.bundle.format.cbor import BYTES, CborError, Items
from headgate.bundle.format.section_url import SectionError, any_url, section_url
from headgate.bundle.model import VouchedSubset


def read_manifest(source: bytes, base_url: str | None) -> str:
    """Parse the manifest section: one URL (3.3.2)."""
    return section_url(_lone_text(source), base_url, "3.3.2 step 3", 0)


def read_primary(source: bytes, base_url: str | None) -> str:
    """Parse b2's primary section: one URL, which may have a fragment, as draft-01's primary URL."""
    return any_url(_lone_text(source), base_url, "primary section", 0)


def read_critical(source: bytes, known: Collection[str]) -> list[str]:
    """Parse the critical section: names of sections, of which one that is not known is refused (3.3.4)."""
    items = Items(source)
    names = []
    for _ in range(items.array()):
        start = items.position
        names.append((items.text(), start))
    items.end()
    for name, start in names:
        if name not in known:
            raise SectionError(f"the section {name[:80]!r} is critical and unknown", "3.3.4 step 2", start)
    return [name for name, _ in names]


def read_signatures(source: bytes) -> tuple[tuple[bytes, ...], tuple[VouchedSubset, ...]]:
    """Parse the signatures section: authorities and vouched subsets, unverified (3.3.3)."""
    items = Items(source)
    items.array(2)
    authorities = tuple(_authority(items) for _ in range(items.array()))
    vouched_subsets = tuple(_vouched_subset(items) for _ in range(items.array()))
    items.end()
    return authorities, vouched_subsets


def _lone_text(source: bytes) -> str:
    items = Items(source)
    text = items.text()
    items.end()
    return text


def _authority(items: Items) -> bytes:
    """Read an augmented certificate: {cert: bytes, ? ocsp: bytes, ? sct: bytes, * tstr => any}."""
    start = items.position
    has_certificate = False
    for key in items.entries(items.text):
        if key in ("cert", "ocsp", "sct") and items.peek() != BYTES:
            raise CborError(f"an authority's {key} is not a byte string", "3.5.1 step 5", items.position)
        has_certificate |= key == "cert"
        items.any()
    if not has_certificate:
        raise CborError("an authority has no cert", "3.5.1 step 5", start)
    return items.source[start : items.position]


def _vouched_subset(items: Items) -> VouchedSubset:
    start = items.position
    authority, sig, signed = -1, None, None
    for key in items.entries(items.text):
        match key:
            case "authority":
                authority = items.uint()
            case "sig":
                sig = items.data()
            case "signed":
                signed = items.data()
            case _:
                raise CborError(f"a vouched subset has no {key[:80]!r}", "3.5.1 step 5", start)
    if authority < 0 or sig is None or signed is None:
        raise CborError("a vouched subset lacks one of authority, sig and signed", "3.5.1 step 5", start)
    return VouchedSubset(authority, sig, signed)
