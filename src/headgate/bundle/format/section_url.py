"""What the sections' parsers share: how one refuses, and the URLs that may stand in a section."""

from typing import Final

from headgate.errors import ConfigurationError
from headgate.http.url import has_credentials, has_fragment, parse_url, resolve

__all__ = ["KEPT", "SectionError", "any_url", "check_base_url", "section_url"]

KEPT: Final = ""
"""The base URL of whoever knows none: relative URLs are kept as they stand."""

_SOMEWHERE: Final = "https://somewhere.invalid/"


class SectionError(Exception):
    """A section is refused: why, which step says so, and at which byte of the section."""

    def __init__(self, reason: str, step: str, offset: int) -> None:
        super().__init__(reason, step, offset)
        self.reason = reason
        self.step = step
        self.offset = offset


def check_base_url(base_url: str | None) -> None:
    """Refuse what the caller gives as base URL and no URL can be relative to; None is none."""
    if base_url is not None and resolve("a", base_url) is None:
        raise ConfigurationError(f"base_url {base_url[:200]!r} is not an absolute URL such as https://example.com/")


def section_url(text: str, base_url: str | None, step: str, offset: int) -> str:
    """Parse a URL that has neither fragment nor credentials; `base_url` is as `any_url` has it."""
    url = any_url(text, base_url, step, offset)
    absolute = url if base_url is None else resolve(url, _SOMEWHERE) or url
    if has_fragment(absolute):
        raise SectionError(f"the URL {text[:200]!r} has a fragment", step, offset)
    if has_credentials(absolute):
        raise SectionError(f"the URL {text[:200]!r} has credentials", step, offset)
    return url


def any_url(text: str, base_url: str | None, step: str, offset: int) -> str:
    """Parse a URL; `base_url` is what a relative one is relative to: None allows none, `KEPT` leaves it as it is."""
    if base_url:
        url = resolve(text, base_url)
    else:
        url = parse_url(text)
        if url is None and base_url == KEPT and resolve(text, _SOMEWHERE) is not None:
            url = text
    if url is None:
        fault = "is no absolute URL" if base_url is None else "is no URL"
        raise SectionError(f"the URL {text[:200]!r} {fault}", step, offset)
    return url
