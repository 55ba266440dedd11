"""Look up the location of a response in a bundle's metadata, by URL and variant key, or by a request."""

from collections.abc import Mapping
from itertools import islice

from headgate.bundle.model import Location, Metadata, VariantSet
from headgate.bundle.variants import parse_variants, select_key
from headgate.errors import NotInBundle
from headgate.http.url import parse_url, without_fragment

_MAX_KEYS_NAMED = 12


def locate(metadata: Metadata, url: str, variant_key: str | None = None) -> Location:
    """Return the location for `url` and, where it has variants, for `variant_key` (`gzip;en`); raises `NotInBundle`."""
    found = _find(metadata, url)
    if isinstance(found, Location):
        if variant_key is not None:
            raise NotInBundle(f"{url} has no variants; leave out the variant key {variant_key!r}")
        return found
    location = found.locations.get(variant_key or "")
    if location is None:
        fault = f"has no variant {variant_key!r}" if variant_key else "has variants"
        raise NotInBundle(f"{url} {fault}; name one of {_keys(found)}, or select one by request headers")
    return location


def select_location(metadata: Metadata, url: str, request_headers: Mapping[str, str]) -> Location:
    """Return the location that fits a request best (HTTP Representation Variants, draft-05, section 4).

    Raises `NotInBundle` where the URL is not there or no variant is acceptable.
    """
    found = _find(metadata, url)
    if isinstance(found, Location):
        return found
    key = select_key(parse_variants(found.variants) or (), request_headers)
    if key is None:
        raise NotInBundle(f"{url} has no variant that the request accepts, only {_keys(found)}")
    return found.locations[key]


def find(metadata: Metadata, url: str) -> Location | VariantSet | None:
    """Return what the bundle has for a URL in any form, with or without fragment; None if nothing."""
    found = metadata.requests.get(url)
    if found is None:
        normal = parse_url(url)
        found = metadata.requests.get(without_fragment(normal)) if normal else None
    return found


def _find(metadata: Metadata, url: str) -> Location | VariantSet:
    found = find(metadata, url)
    if found is None:
        raise NotInBundle(f"{url[:200]} is not in the bundle")
    return found


def _keys(found: VariantSet) -> str:
    return ", ".join(islice(found.locations, _MAX_KEYS_NAMED))
