"""Build the sections of a bundle other than its exchanges: checked, completed and in order."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from headgate.bundle.format.cbor import CborError, Items, encode, text
from headgate.bundle.format.sections import read_signatures
from headgate.bundle.model import Version
from headgate.bundle.writing.layout import BundleSpec
from headgate.errors import ConfigurationError

KNOWN: Final = frozenset({"index", "manifest", "critical", "signatures", "responses"})
"""The names in the document's registry (6.2)."""
_BUILT: Final = frozenset({"index", "manifest", "critical", "responses"})
"""Sections that are made from other arguments; in b2 also "primary"."""


def build_sections(
    version: Version,
    primary_url: str | None,
    manifest_url: str | None,
    critical: Sequence[str],
    sections: Mapping[str, bytes],
    *,
    order: Sequence[str] | None = None,
) -> BundleSpec:
    """Return the sections of a bundle; without `order` in that of the published writer `wbn`.

    That is: other sections, the index, the responses. Raises `ConfigurationError` for a section that strict readers
    refuse.
    """
    items: dict[str, bytes] = {}
    if version == "b2" and primary_url is not None:
        items["primary"] = text(primary_url)
    if manifest_url is not None:
        items["manifest"] = text(manifest_url)
    if critical:
        items["critical"] = encode([_checked_name(name) for name in critical])
    built = _BUILT | {"primary"} if version == "b2" else _BUILT
    for name, item in sections.items():
        _check_section(_checked_name(name), item, built)
        items[name] = bytes(item)
    items["index"] = b""
    if order is not None:
        items = _ordered(items, order)
    return BundleSpec(version, primary_url, items)


def _check_section(name: str, item: bytes, built: Collection[str]) -> None:
    if name in built:
        raise ConfigurationError(f"the section {name!r} is made from other arguments; do not pass its bytes")
    try:
        if name == "signatures":
            read_signatures(bytes(item))
        items = Items(bytes(item))
        items.any()
        items.end()
    except CborError as error:
        raise ConfigurationError(
            f"the section {name!r} is not a deterministically encoded CBOR item: {error.reason} at byte {error.offset}"
        ) from error


def _checked_name(name: object) -> str:
    try:
        if isinstance(name, str) and name.encode():
            return name
    except UnicodeEncodeError:
        pass
    raise ConfigurationError(f"{name!r} is not a section name; expected text")


def _ordered(items: Mapping[str, bytes], order: Sequence[str]) -> dict[str, bytes]:
    # 3.3 step 20: "responses" is last, and need not be named.
    wanted = list(order[:-1]) if order and order[-1] == "responses" else list(order)
    if sorted(wanted) != sorted(items):
        raise ConfigurationError(
            f"the section order {', '.join(order)} does not name each section once: {', '.join(items)}, responses"
        )
    return {name: items[name] for name in wanted}
