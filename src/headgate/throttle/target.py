"""Throttling targets: what of a URL tells two of them apart, and which of them a path holds together.

"A throttling target is demarcated as a URL minus its query parameters." (anti-ddos-throttling.txt, section 4) Minus its
fragment and its credentials too.
"""

from hashlib import sha256
from typing import Final

import can_ada
import msgspec

from headgate.http.url import normal

MAX_ORIGIN: Final = 300
"""Characters of an origin: more than a scheme, the longest name in DNS and a port."""
MAX_PATH: Final = 1024
"""Characters of a target's path; of a longer one the beginning and a hash are kept."""
MAX_BUCKET_PATH: Final = 900
"""Characters of a bucket's path: fewer than are kept of a long path, so that a bucket still holds it."""

_HASH: Final = 1 + 64
"""Characters of "#" and a SHA-256 in hexadecimal."""


class Target(msgspec.Struct, frozen=True, gc=False):
    """A URL as far as the throttle looks at it."""

    origin: str
    """`http://www.example.com:8080`: the host in lower case, a default port left out."""
    path: str
    """From its first "/" on."""

    @property
    def name(self) -> str:
        """The origin and the path."""
        return self.origin + self.path


def parse_target(url: str, *, lower_case_path: bool = False) -> Target | None:
    """Return the target of an absolute URL; None for one that is not http or https, or malformed.

    The WHATWG's parser says what the parts are, so the ways to write one address make one target; nearly all URLs are
    as it would write them, which one regular expression sees. A server can make URLs as long as it likes, by its
    redirects: what is kept of one is bounded, and a URL whose host is too long for a name in DNS is without a target.
    """
    match = normal(url)
    if match is not None and not lower_case_path:
        _, origin, path = match.groups()
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


def path_matches(prefix: str, path: str) -> bool:
    """Return whether `path` is `prefix` or lies below it, as the path of a cookie would (RFC 6265, section 5.1.4)."""
    return path.startswith(prefix) and (len(path) == len(prefix) or prefix[-1] == "/" or path[len(prefix)] == "/")


def _shortened(path: str) -> str:
    """Return the beginning of a path and a hash of all of it: no path has a "#", so two of them stay two."""
    return f"{path[: MAX_PATH - _HASH]}#{sha256(path.encode()).hexdigest()}"
