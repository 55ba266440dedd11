"""What the proxy publishes at a path of its own URL: a page, the same for every client, such as its geofeed.

A geofeed (RFC 8805) has the locations of a proxy's addresses. A line is a prefix and, optionally, a country, a region,
a city and a postal code, separated by commas. Consumers discard invalid lines silently; so here they are errors.
"""

import csv
import re
from ipaddress import ip_network
from typing import Final

from headgate.errors import ConfigurationError


class Page:
    """A body and its media type."""

    __slots__ = ("_last_message", "_message", "body", "fields")

    def __init__(self, media_type: str, body: bytes) -> None:
        self.body: Final = body
        self.fields: Final = (("content-type", media_type), ("content-length", str(len(body))))
        """The fields of a response, names in lower case."""
        self._message = self._head(is_last=False) + body
        self._last_message = self._head(is_last=True) + body

    def message(self, *, is_last: bool, with_body: bool = True) -> memoryview:
        """Return the HTTP/1.1 message: with `Connection: close` if it `is_last`, without the body for HEAD."""
        message = memoryview(self._last_message if is_last else self._message)
        return message if with_body else message[: len(message) - len(self.body)]

    def _head(self, *, is_last: bool) -> bytes:
        lines = ["HTTP/1.1 200 OK", *(f"{name}: {value}" for name, value in self.fields)]
        if is_last:
            lines.append("connection: close")
        return "\r\n".join([*lines, "\r\n"]).encode("latin-1")


GEOFEED_MEDIA_TYPE: Final = "text/csv; charset=utf-8"
"""Media type of a geofeed."""

MAX_GEOFEED_SIZE: Final = 1 << 20
"""Bytes of the largest geofeed."""

_country = re.compile(r"[A-Za-z]{2}").fullmatch  # 2.1.1.2: ISO 3166-1 alpha 2, in either case
_region = re.compile(r"([A-Za-z]{2})-[A-Za-z0-9]{1,3}").fullmatch  # 2.1.1.3: ISO 3166-2


def check_geofeed(content: bytes) -> int:
    """Return the number of entries, at least one; raises `ConfigurationError` that names the invalid line."""
    if len(content) > MAX_GEOFEED_SIZE:
        raise ConfigurationError(f"the geofeed is larger than {MAX_GEOFEED_SIZE} bytes")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"byte {error.start} of the geofeed is not UTF-8") from None
    seen: set[object] = set()
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        entry = line.partition("#")[0].strip()  # 2.1: "Text from a '#' character to the end of the current line"
        if not entry:
            continue
        try:
            prefix = _parse_prefix(entry)
            if prefix in seen:
                raise ValueError(f"duplicate prefix {prefix}")  # 2.1.3: "MUST be considered an error"
        except ValueError as error:
            raise ConfigurationError(
                f"line {number}: {error}; expected a line such as '192.0.2.0/24,NL,NL-NH,Amsterdam,'"
            ) from None
        seen.add(prefix)
    if not seen:
        raise ConfigurationError("the geofeed is empty; expected a line such as '192.0.2.0/24,NL,NL-NH,Amsterdam,'")
    return len(seen)


def _parse_prefix(entry: str) -> object:
    """Return the prefix of an entry; raises ValueError. Fields beyond the fifth are reserved for extensions."""
    try:
        (fields,) = csv.reader([entry], strict=True)
    except csv.Error:
        raise ValueError("invalid CSV") from None
    prefix, country, region = ([field.strip() for field in fields] + ["", ""])[:3]
    try:
        network = ip_network(prefix)
    except ValueError:
        raise ValueError(f"invalid prefix {prefix!r}") from None
    if country and _country(country) is None:
        raise ValueError(f"invalid country {country!r}")
    match = _region(region)
    if region and match is None:
        raise ValueError(f"invalid region {region!r}")
    if match is not None and country and match[1].upper() != country.upper():
        raise ValueError(f"region {region!r} is not in {country}")
    return network
