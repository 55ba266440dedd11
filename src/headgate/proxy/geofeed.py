"""Geofeeds (RFC 8805): where a proxy's addresses are, checked before they are published.

A line is a prefix and, as far as somebody wants to say, a country, a region, a city and a postal code, with commas
between them. Whoever reads a feed discards a line that is off, and with it what was meant; so here it is an error.
"""

import csv
import re
from ipaddress import ip_network
from typing import Final

from headgate.errors import ConfigurationError

__all__ = ["KIND", "LONGEST", "check_geofeed"]

KIND: Final = "text/csv; charset=utf-8"
"""The media type."""

LONGEST: Final = 1 << 20
"""Bytes of the longest feed."""

_country = re.compile(r"[A-Za-z]{2}").fullmatch  # 2.1.1.2: ISO 3166-1 alpha 2, in either case
_region = re.compile(r"([A-Za-z]{2})-[A-Za-z0-9]{1,3}").fullmatch  # 2.1.1.3: ISO 3166-2


def check_geofeed(content: bytes) -> int:
    """Give how many entries a feed has, at least one; raises `ConfigurationError` that names the line that is off."""
    if len(content) > LONGEST:
        raise ConfigurationError(f"it is too long: a geofeed has at most {LONGEST} bytes")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"byte {error.start} is not UTF-8, which a geofeed is in") from None
    seen: set[object] = set()
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        entry = line.partition("#")[0].strip()  # 2.1: "Text from a '#' character to the end of the current line"
        if not entry:
            continue
        try:
            prefix = _checked(entry)
            if prefix in seen:
                raise ValueError(f"{prefix} is there twice")  # 2.1.3: "MUST be considered an error"
        except ValueError as error:
            raise ConfigurationError(
                f"line {number}: {error}; a line is like '192.0.2.0/24,NL,NL-NH,Amsterdam,'"
            ) from None
        seen.add(prefix)
    if not seen:
        raise ConfigurationError("it has no entry; a line is like '192.0.2.0/24,NL,NL-NH,Amsterdam,'")
    return len(seen)


def _checked(entry: str) -> object:
    """Give the prefix of an entry; raises ValueError with a clause. More than five fields are for a later time."""
    try:
        (fields,) = csv.reader([entry], strict=True)
    except csv.Error:
        raise ValueError("it is no line of values with commas between them") from None
    prefix, country, region = ([field.strip() for field in fields] + ["", ""])[:3]
    try:
        network = ip_network(prefix)
    except ValueError:
        raise ValueError(f"{prefix!r} is no address and no prefix, the other bits of which are 0") from None
    if country and _country(country) is None:
        raise ValueError(f"{country!r} is no country of two letters")
    match = _region(region)
    if region and match is None:
        raise ValueError(f"{region!r} is no region, such as NL-NH")
    if match is not None and country and match[1].upper() != country.upper():
        raise ValueError(f"{region!r} is no region of {country}")
    return network
