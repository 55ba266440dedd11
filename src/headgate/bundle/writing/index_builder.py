"""Builds the index while exchanges are added: which response belongs to which URL and variant key (3.3.1)."""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from headgate.bundle.variants import (
    MAX_KEY_TEXT,
    MAX_KEYS,
    MAX_TOTAL_KEYS,
    Axis,
    count_keys,
    measure_keys,
    parse_key,
    parse_variants,
    variant_keys,
    write_key,
)
from headgate.bundle.writing.layout import VariantEntry
from headgate.errors import ConfigurationError

VariantKeys = str | Sequence[str] | None
"""`gzip;en`, or several such keys that share a response; None for a URL without variants."""

_MAX_NAMED: Final = 12
"""Maximum missing keys in a message."""


class _Negotiation(Struct):
    variants: str
    ordinals: dict[str, int | None]
    """From variant key, in row-major order, to the response; None until it has been added."""


class IndexBuilder:
    """Maps URLs to the ordinals of responses."""

    def __init__(self) -> None:
        self._urls: dict[str, int | _Negotiation] = {}
        self._relative: dict[str, str] = {}
        self._variant_keys = 0

    def __contains__(self, url: str) -> bool:
        return url in self._urls

    def place(self, url: str, ordinal: int, *, stored: str) -> None:
        """Add the only response of a URL, which is written as `stored`; `ConfigurationError` if it has one."""
        if url in self._urls:
            raise ConfigurationError("the URL was added before; several responses need `variants` and a key each")
        self._urls[url] = ordinal
        if stored != url:
            self._relative[url] = stored

    def place_variant(self, url: str, ordinal: int, variants: str | None, keys: VariantKeys) -> None:
        """Add the response of a URL for these keys; its first response comes with its Variants value.

        Raises `ConfigurationError`, and then adds nothing.
        """
        known = self._urls.get(url)
        if isinstance(known, int):
            raise ConfigurationError("the URL was added before, without variants")
        negotiation = known or _negotiation(variants)
        if variants is not None and variants != negotiation.variants:
            raise ConfigurationError(f"its variants are {negotiation.variants!r} already, not {variants!r}")
        chosen = dict.fromkeys(map(_normal, [keys] if isinstance(keys, str) else keys or ()), ordinal)
        if not chosen:
            raise ConfigurationError("the URL has variants; say with variant_key which one this is")
        for key in chosen:
            if key not in negotiation.ordinals:
                raise ConfigurationError(f"unknown variant {key}; the keys are {_some(negotiation.ordinals)}")
            if negotiation.ordinals[key] is not None:
                raise ConfigurationError(f"the variant {key} was added before")
        if known is None:
            variant_keys = self._variant_keys + len(negotiation.ordinals)
            if variant_keys > MAX_TOTAL_KEYS:
                raise ConfigurationError(f"{variant_keys} variant keys in all; a bundle holds {MAX_TOTAL_KEYS}")
            self._variant_keys = variant_keys
        negotiation.ordinals.update(chosen)
        self._urls[url] = negotiation

    def finish(self) -> Mapping[str, int | VariantEntry]:
        """Give the index; `ConfigurationError` names the first URL with variants that are missing.

        "one 'location-in-responses' pair for each of the possible combinations of available-values"
        """
        index: dict[str, int | VariantEntry] = {}
        for url, found in self._urls.items():
            if isinstance(found, int):
                index[self._relative.get(url, url)] = found
                continue
            ordinals = [ordinal for ordinal in found.ordinals.values() if ordinal is not None]
            if len(ordinals) < len(found.ordinals):
                missing = [key for key, ordinal in found.ordinals.items() if ordinal is None]
                raise ConfigurationError(f"{url} lacks the variants {_some(missing)}; add a response for each key")
            index[url] = VariantEntry(found.variants.encode("latin-1"), ordinals)
        return index


def parse_axes(variants: str) -> tuple[Axis, ...]:
    """Parse a Variants value; `ConfigurationError` for what is none, or has more keys than anybody reads."""
    axes = parse_variants(variants)
    count = count_keys(axes or ())
    if not axes or not count:
        raise ConfigurationError(
            f"{variants[:200]!r} is not a valid Variants value; expected a form such as 'Accept-Encoding;gzip;br'"
        )
    if count > MAX_KEYS:
        raise ConfigurationError(f"{count} variant keys; a bundle holds {MAX_KEYS} for a URL")
    size = measure_keys(axes)
    if size > MAX_KEY_TEXT:
        raise ConfigurationError(f"variant keys of {size} characters; a bundle holds {MAX_KEY_TEXT} for a URL")
    if any(len(set(axis.values)) < len(axis.values) for axis in axes):
        raise ConfigurationError(f"{variants[:200]!r} has a value twice, so two responses for one key")
    return axes


def _negotiation(variants: str | None) -> _Negotiation:
    if variants is None:
        raise ConfigurationError("there is a variant key and no `variants`; give that with the first response")
    return _Negotiation(variants, dict.fromkeys(variant_keys(axis.values for axis in parse_axes(variants))))


def _normal(key: str) -> str:
    values = parse_key(key)
    if not values:
        raise ConfigurationError(f"{key[:200]!r} is not a variant key; expected a form such as 'gzip;en'")
    return write_key(values)


def _some(keys: Sequence[str] | Mapping[str, int | None]) -> str:
    more = len(keys) - _MAX_NAMED
    return ", ".join(list(keys)[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
