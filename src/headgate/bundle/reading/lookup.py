"""Which of a bundle's locations answers: for a URL and variant key, or for a request.

The metadata is enough to tell, so whatever holds the bytes, here or behind a network, looks up in one way.
"""

from collections.abc import Mapping
from itertools import islice

from headgate.bundle.model import Location, Metadata, VariantSet
from headgate.bundle.variants import parse_variants, select_key
from headgate.errors import NotInBundle
from headgate.http.url import parse_url, without_fragment

__all__ = ["locate", "select_location"]

_KEYS_NAMED = 12


def locate(metadata: Metadata, url: str, variant_key: str | None = None) -> Location:
    """Give the location for `url` and, where it has variants, for `variant_key` (`gzip;en`); raises `NotInBundle`."""
    found = _find(metadata, url)
    if isinstance(found, Location):
        if variant_key is not None:
            raise NotInBundle(f"{url} has no variants, so no variant key {variant_key!r}")
        return found
    location = found.locations.get(variant_key or "")
    if location is None:
        fault = f"has no variant {variant_key!r}" if variant_key else "has variants"
        raise NotInBundle(f"{url} {fault}; name one of {_keys(found)}, or select one by request headers")
    return location


def select_location(metadata: Metadata, url: str, request_headers: Mapping[str, str]) -> Location:
    """Give the location that fits a request best, as HTTP Representation Variants (draft-05, section 4) has it.

    Raises `NotInBundle` where the URL is not there or no variant is acceptable.
    """
    found = _find(metadata, url)
    if isinstance(found, Location):
        return found
    key = select_key(parse_variants(found.variants) or (), request_headers)
    if key is None:
        raise NotInBundle(f"{url} has no variant that the request accepts, only {_keys(found)}")
    return found.locations[key]


def _find(metadata: Metadata, url: str) -> Location | VariantSet:
    found = metadata.requests.get(url)
    if found is None:
        # Fetch matches without the fragment; and whoever types a URL need not know its normal form.
        normal = parse_url(url)
        found = metadata.requests.get(without_fragment(normal)) if normal else None
    if found is None:
        raise NotInBundle(f"{url[:200]} is not in the bundle")
    return found


def _keys(found: VariantSet) -> str:
    return ", ".join(islice(found.locations, _KEYS_NAMED))
