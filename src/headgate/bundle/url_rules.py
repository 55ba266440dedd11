"""The URLs of a new bundle, and the rules for one that untrusted requests may direct (5.2, strategy 3).

A plugin may look for code anywhere near the beginning of a file, whatever its type. URLs and Variants values are at the
beginning of a bundle, and lengths and counts are written as bytes, so a request that controls them could write code
there. `SniffingRules` prevent that.

Which URLs, items and headers come from the request is not known here. So every URL is encoded; every item counts,
except those with `dynamic=False`; and a header counts as a reflection if it contains the value of one of the request's
headers, if the caller gives these.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from headgate.bundle.variants import Axis
from headgate.errors import ConfigurationError
from headgate.http.url import has_credentials, has_fragment, parse_url, resolve, without_fragment

MAX_ALLOWED: Final = 23
"""5.2: "Keep the set of allowed request header fields smaller than 24 elements"; an element is a name with a value."""

MAX_ITEMS: Final = 11
"""5.2: "Restrict the number of items a request can direct the server to include in a bundle to less than 12"."""

ALLOWED: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType({
    "accept": ("application/json", "image/avif", "image/png", "image/svg+xml", "image/webp", "text/css", "text/html",
               "text/javascript", "text/plain"),
    "accept-encoding": ("br", "deflate", "gzip", "identity", "zstd"),
    "cache-control": ("max-age=0", "no-cache"),
})  # fmt: skip
"""The request header fields that are allowed unless the caller says otherwise."""
_MIN_REFLECTED: Final = 4
"""Bytes of the shortest text that plugins look for, `%PDF`: reflecting a shorter text is harmless."""
_SET_BY_BROWSERS: Final = re.compile(r"host|connection|sec-.*|proxy-.*")
"""Request fields that pages cannot set."""
_IPV6: Final = re.compile(r"[a-z][a-z0-9+.\-]*://\[[0-9a-f:.]+\]")

# Above 0x7E, or neither a URL code point nor the "%" of an encoded byte.
_ENCODED: Final = re.compile(r"%(?![0-9A-Fa-f]{2})|[^A-Za-z0-9!$&'()*+,\-./:;=?@_~%]")
_ANY_BASE: Final = "https://bundle.invalid/1/2/3/4/"
"""Relative URLs are checked against this base where the primary URL is not absolute."""


class SniffingRules(Struct, frozen=True):
    """The rules, and the request that the bundle is a response to."""

    request_headers: Mapping[str, str] = MappingProxyType({})
    """Headers of the request for the bundle, whose values must not appear in a response header."""
    allowed: Mapping[str, tuple[str, ...]] = ALLOWED
    """From lower-case name to values: fewer than 24 values in all, fixed in advance."""

    def __post_init__(self) -> None:
        """Refuse more than `MAX_ALLOWED` elements."""
        count = sum(len(values) for values in self.allowed.values())
        if count > MAX_ALLOWED:
            raise ConfigurationError(f"{count} request header fields are allowed; keep to {MAX_ALLOWED} (5.2)")

    def url(self, url: str) -> str:
        """Percent-encode "any bytes that are greater than 0x7E or are not URL code points".

        The brackets of an IPv6 address stay: hosts do not have them encoded.
        """
        start = found.end() if (found := _IPV6.match(url)) else 0
        return url[:start] + _ENCODED.sub(_percent_encoded, url[start:])

    def check_axes(self, axes: tuple[Axis, ...]) -> None:
        """Refuse a Variants value with a request header, or a value of one, that is not on the list."""
        for axis in axes:
            for value in axis.values:
                if value not in self.allowed.get(axis.name.lower(), ()):
                    raise ConfigurationError(f"{axis.name}: {value} is not an allowed request header (5.2)")

    def check_count(self, items: int) -> None:
        """Refuse more than `MAX_ITEMS` items."""
        if items > MAX_ITEMS:
            raise ConfigurationError(
                f"{items} items; an untrusted request may add fewer than 12 (5.2); "
                "add the items of every request with dynamic=False"
            )

    def check_header(self, name: str, value: str) -> None:
        """Refuse a response header that holds the value of a header of the request."""
        for field, sent in self.request_headers.items():
            field = field.lower()  # noqa: PLW2901 - names are compared without regard to case
            reflected = sent.strip()
            if (
                len(reflected) < _MIN_REFLECTED
                or _SET_BY_BROWSERS.fullmatch(field)
                or reflected in self.allowed.get(field, ())
            ):
                continue
            if reflected in value:
                raise ConfigurationError(
                    f"the response header {name} holds the request's {field}; a bundle for untrusted requests must not "
                    "reflect request header fields (5.2)"
                )


def _percent_encoded(char: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in char[0].encode())


def _parse(url: str) -> str | None:
    if not isinstance(url, str):
        raise ConfigurationError(f"expected a URL such as 'https://example.com/', got {url!r:.200}")
    return parse_url(url)


class UrlRules:
    """Normalizes and checks URLs."""

    def __init__(self, rules: SniffingRules | None, *, relative: bool, primary_url: str | None = None) -> None:
        """Relative URLs are resolved against `primary_url` where that is absolute, as readers do."""
        self._rules = rules
        self._relative = relative
        self._base = (primary_url and _parse(primary_url)) or _ANY_BASE

    def primary(self, url: str) -> str:
        """Return the primary URL as stored; unless requests are untrusted it may have a fragment (3.3 step 6)."""
        normal = _parse(url)
        if normal is None or self._rules is not None or not has_fragment(normal):
            return self.stored(url)
        self.stored(without_fragment(normal))
        return normal

    def stored(self, url: str) -> str:
        """Return `url` in the WHATWG parser's form, or a relative one as it is, where that is allowed.

        Raises `ConfigurationError` as 3.3.1 step 4.2 refuses: when it "is a failure, its fragment is not null, or it
        includes credentials".
        """
        stored = _parse(url)
        whole = stored
        if stored is None and self._relative:
            stored, whole = url, resolve(url, self._base)
        if stored is None or whole is None:
            raise ConfigurationError(f"{url[:200]!r} is not an absolute URL; expected one such as https://example.com/")
        if has_credentials(whole):  # which are secret, so the message leaves them out
            raise ConfigurationError(f"the URL of {whole.rpartition('@')[2][:200]} has credentials; leave them out")
        if has_fragment(whole):
            raise ConfigurationError(f"the URL {url[:200]} has a fragment; leave out the # and what follows it")
        return stored if self._rules is None else self._rules.url(stored)

    def lookup_key(self, stored: str) -> str:
        """Return a key that is equal for stored URLs that readers treat as one, at any address of the bundle."""
        whole = (resolve(stored, self._base) or stored) if self._relative else stored
        return without_fragment(whole) if has_fragment(whole) else whole
