"""Throttling targets: what of a URL tells two of them apart, and which of them a path holds together.

"A throttling target is demarcated as a URL minus its query parameters." (anti-ddos-throttling.txt, section 4) Minus its
fragment and its credentials too.
"""

import can_ada
import msgspec

from headgate.http.url import normal

__all__ = ["Target", "parse_target", "path_matches"]


class Target(msgspec.Struct, frozen=True, gc=False):
    """A URL as far as the throttle looks at it."""

    name: str
    """`http://www.example.com:8080/path`: the host in lower case, a default port left out."""
    origin: str
    """The name up to its path."""
    path: str
    """From its first "/" on."""


def parse_target(url: str, *, lower_case_path: bool = False) -> Target | None:
    """Give the target of an absolute URL; None for one that is not http or https, and for what is no URL.

    The WHATWG's parser says what the parts are, so the ways to write one address make one target; nearly all URLs are
    as it would write them, and are told by the short way.
    """
    match = normal(url)
    if match is not None and not lower_case_path:
        return Target(*match.groups())
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
    return Target(origin + path, origin, path)


def path_matches(prefix: str, path: str) -> bool:
    """Say whether `path` is `prefix` or lies below it, as the path of a cookie would (RFC 6265, section 5.1.4)."""
    return path.startswith(prefix) and (len(path) == len(prefix) or prefix[-1] == "/" or path[len(prefix)] == "/")
