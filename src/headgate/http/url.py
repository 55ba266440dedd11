"""URLs in the form that the WHATWG's parser gives them, which is what a bundle is looked up by (3.3 step 6, 3.3.1).

can_ada is that parser. Nearly every URL in a bundle is in its form already, and is told by one regular expression that
knows less than the parser: what it takes, the parser leaves as it is (a property test holds them equal); what it does
not take, such as a host in digits or in Punycode, may still be in normal form, and the parser says.
"""

import re
from typing import Final

import can_ada

__all__ = ["has_credentials", "has_fragment", "is_normal", "normal", "parse_url", "resolve", "without_fragment"]

_LABEL: Final = r"(?!xn-)[a-z][a-z0-9-]*+"
_LEFT_ALONE: Final = r"A-Za-z0-9!$&()*+,\-:;=@_~"

_NORMAL: Final = (
    # A label of Punycode may be wrong, a last label of digits makes an IPv4 address, and a default port is left out.
    rf"((https?://{_LABEL}(?:\.{_LABEL})*+(?::(?!(?:80|443)/)[1-9][0-9]{{0,3}}+)?+)"
    # A segment that begins with a dot, or with %2E for one, may be a dot segment; within one, both are harmless.
    rf"(/[{_LEFT_ALONE}'/]*+(?:(?:(?<!/)[.%]|%(?!2))[{_LEFT_ALONE}'.%]*+[{_LEFT_ALONE}'/]*+)*+))"
    rf"(?:\?[{_LEFT_ALONE}.%/?]*+)?+"
)

normal: Final = re.compile(_NORMAL).fullmatch
"""Match a URL in normal form with neither fragment nor credentials, as far as the short way sees that it is one.

The groups are the URL without its query, its origin, and its path.
"""

_credentials = re.compile(r"[^:/?#]++://[^/?#]*@").match


def is_normal(text: str) -> bool:
    """Say whether the short way sees that `text` is a URL in normal form, with neither fragment nor credentials."""
    return normal(text) is not None


def parse_url(text: str) -> str | None:
    """Parse an absolute URL and give it in normal form, `text` itself where the short way sees that it is; or None.

    An empty fragment is kept as the "#" at the end: the parser's fragment is null only where there is no "#" at all.
    A text that is no Unicode, with a lone surrogate, is no URL.
    """
    if normal(text):
        return text
    try:
        href: str = can_ada.parse(text).href
    except (ValueError, TypeError):  # a failure of the parser; a lone surrogate
        return None
    return href


def resolve(text: str, base: str) -> str | None:
    """Parse `text`, which may be relative, against `base`, which is a URL from `parse_url`; None on failure."""
    if normal(text):
        return text
    try:
        href: str = (can_ada.parse(base) + text).href
    except (ValueError, TypeError):
        return None
    return href


def has_fragment(url: str) -> bool:
    """Say whether a URL in normal form has a fragment that is not null; the empty one of `https://a/#` is not."""
    return "#" in url


def has_credentials(url: str) -> bool:
    """Say whether a URL in normal form has a username or a password (the WHATWG's "includes credentials")."""
    return "@" in url and _credentials(url) is not None


def without_fragment(url: str) -> str:
    """Give a URL in normal form without its fragment, and in normal form again."""
    # An opaque path cannot end in spaces once nothing follows it; nowhere else does a normal form have any.
    return url.partition("#")[0].rstrip(" ")
