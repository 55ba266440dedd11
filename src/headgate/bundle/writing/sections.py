"""The sections that a bundle to be written has besides its exchanges: checked, completed and put in order."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from headgate.bundle.format.cbor import CborError, Items, encode, text
from headgate.bundle.format.sections import read_signatures
from headgate.bundle.model import Version
from headgate.bundle.writing.layout import BundleSpec
from headgate.errors import ConfigurationError

__all__ = ["KNOWN", "build_sections"]

KNOWN: Final = frozenset({"index", "manifest", "critical", "signatures", "responses"})
"""The names in the document's registry (6.2)."""
_OURS: Final = frozenset({"index", "manifest", "critical", "responses"})
"""Sections that have an argument of their own, or are made of the exchanges; in b2 also "primary"."""


def build_sections(
    version: Version,
    primary_url: str | None,
    manifest_url: str | None,
    critical: Sequence[str],
    sections: Mapping[str, bytes],
    *,
    order: Sequence[str] | None = None,
) -> BundleSpec:
    """Give the form of a bundle; without `order` its sections stand as the published writer `wbn` puts them.

    That is what was set before the exchanges were known first, then the index, then the responses. Raises
    `ConfigurationError` for a section that strict readers would refuse.
    """
    items: dict[str, bytes] = {}
    if version == "b2" and primary_url is not None:
        items["primary"] = text(primary_url)
    if manifest_url is not None:
        items["manifest"] = text(manifest_url)
    if critical:
        items["critical"] = encode([_checked_name(name) for name in critical])
    ours = _OURS | {"primary"} if version == "b2" else _OURS
    for name, item in sections.items():
        _check_section(_checked_name(name), item, ours)
        items[name] = bytes(item)
    items["index"] = b""
    if order is not None:
        items = _ordered(items, order)
    return BundleSpec(version, primary_url, items)


def _check_section(name: str, item: bytes, ours: Collection[str]) -> None:
    if name in ours:
        raise ConfigurationError(f"the section {name!r} is made of the bundle's own arguments; do not give its bytes")
    try:
        if name == "signatures":
            read_signatures(bytes(item))
        items = Items(bytes(item))
        items.any()
        items.end()
    except CborError as error:
        raise ConfigurationError(
            f"the section {name!r} is no deterministically encoded CBOR item: {error.reason} at byte {error.offset}"
        ) from error


def _checked_name(name: object) -> str:
    try:
        if isinstance(name, str) and name.encode():
            return name
    except UnicodeEncodeError:
        pass
    raise ConfigurationError(f"{name!r} is no section name; names are text")


def _ordered(items: Mapping[str, bytes], order: Sequence[str]) -> dict[str, bytes]:
    # 3.3 step 20: "responses" is last, and need not be named.
    wanted = list(order[:-1]) if order and order[-1] == "responses" else list(order)
    if sorted(wanted) != sorted(items):
        raise ConfigurationError(
            f"the section order {', '.join(order)} does not name each section once: {', '.join(items)}, responses"
        )
    return {name: items[name] for name in wanted}
