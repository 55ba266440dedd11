"""Throttling targets: the part of a URL that distinguishes them, and the paths of buckets.

"A throttling target is demarcated as a URL minus its query parameters." (anti-ddos-throttling.txt, section 4) The
fragment and the credentials are not part of it either.
"""

from functools import lru_cache
from hashlib import sha256
from typing import Final

import can_ada
import msgspec

from headgate.http.url import normal

MAX_ORIGIN: Final = 300
"""Maximum characters of an origin: more than a scheme, the longest name in DNS and a port."""
MAX_PATH: Final = 1024
"""Maximum characters of a target's path; a longer one is replaced by its beginning and a hash."""
MAX_BUCKET_PATH: Final = 900
"""Maximum characters of a bucket's path; less than the beginning of a long path, so that a bucket still matches it."""

MAX_KEPT: Final = 512
"""URLs whose targets are kept."""
MAX_KEPT_URL: Final = 500
"""Characters of the longest of them."""

WHOLE_ORIGIN: Final = ""
"""The path of the entry of a whole origin; it matches every path, and no target has it."""

_HASH: Final = 1 + 64
"""Characters of "#" and a SHA-256 in hexadecimal."""


class Target(msgspec.Struct, frozen=True, gc=False):
    """The part of a URL that the throttle uses."""

    origin: str
    """`http://www.example.com:8080`: the host in lower case, without a default port."""
    path: str
    """The path, which begins with "/"."""

    @property
    def name(self) -> str:
        """The origin and the path."""
        return self.origin + self.path


def parse_target(url: str, *, lower_case_path: bool = False) -> Target | None:
    """Return the target of an absolute URL; None for a malformed URL, and for one that is not http or https.

    The WHATWG's parser finds the parts, so all spellings of a URL have the same target. Nearly all URLs are in normal
    form, which one regular expression recognises. A server can make URLs of any length by redirects: a target is
    bounded, and a URL whose host is longer than a name in DNS has no target.
    """
    match = normal(url)
    if match is not None and not lower_case_path:
        origin, path = match.group(2, 3)
    else:
        try:
            parsed = can_ada.parse(url)
        except (ValueError, TypeError):  # a failure of the parser; a lone surrogate
            return None
        scheme = parsed.protocol
        if scheme not in {"http:", "https:"}:
            return None
        origin, path = f"{scheme}//{parsed.host}", parsed.pathname
        if lower_case_path:
            path = path.lower()
    if len(origin) > MAX_ORIGIN:
        return None
    return Target(origin, path if len(path) <= MAX_PATH else _shortened(path))


@lru_cache(MAX_KEPT)
def kept_target(url: str, *, lower_case_path: bool) -> Target | None:
    """Return the same for a URL of at most `MAX_KEPT_URL` characters, and keep it for the next request."""
    return parse_target(url, lower_case_path=lower_case_path)


def path_matches(prefix: str, path: str) -> bool:
    """Return whether `path` is `prefix` or below it, by the rule for the path of a cookie (RFC 6265, section 5.1.4)."""
    if not path.startswith(prefix):
        return False
    return len(path) == len(prefix) or prefix[-1:] in {"", "/"} or path[len(prefix)] == "/"


def _shortened(path: str) -> str:
    """Return the beginning of a path and a hash of all of it; since a path has no "#", it equals no other target."""
    return f"{path[: MAX_PATH - _HASH]}#{sha256(path.encode()).hexdigest()}"
