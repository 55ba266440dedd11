"""The error of a section, and the URLs in sections."""

from typing import Final

from headgate.errors import ConfigurationError
from headgate.http.url import has_credentials, has_fragment, parse_url, resolve

KEEP_RELATIVE: Final = ""
"""The base URL where none is known: relative URLs are kept as they are."""

_ANY_BASE: Final = "https://somewhere.invalid/"


class SectionError(Exception):
    """An error in a section: the reason, the step, and the byte of the section."""

    def __init__(self, reason: str, step: str, offset: int) -> None:
        super().__init__(reason, step, offset)
        self.reason = reason
        self.step = step
        self.offset = offset


def check_base_url(base_url: str | None) -> None:
    """Raise `ConfigurationError` for a base URL that relative URLs cannot be resolved against; None is valid."""
    if base_url is not None and resolve("a", base_url) is None:
        raise ConfigurationError(f"base_url {base_url[:200]!r} is not an absolute URL such as https://example.com/")


def section_url(text: str, base_url: str | None, step: str, offset: int) -> str:
    """Parse a URL that has neither fragment nor credentials; `base_url` is as `any_url` has it."""
    url = any_url(text, base_url, step, offset)
    absolute = url if base_url is None else resolve(url, _ANY_BASE) or url
    if has_fragment(absolute):
        raise SectionError(f"the URL {text[:200]!r} has a fragment", step, offset)
    if has_credentials(absolute):
        raise SectionError(f"the URL {text[:200]!r} has credentials", step, offset)
    return url


def any_url(text: str, base_url: str | None, step: str, offset: int) -> str:
    """Parse a URL, resolved against `base_url`: None allows no relative URL, `KEEP_RELATIVE` keeps it."""
    if base_url:
        url = resolve(text, base_url)
    else:
        url = parse_url(text)
        if url is None and base_url == KEEP_RELATIVE and resolve(text, _ANY_BASE) is not None:
            url = text
    if url is None:
        fault = "is not an absolute URL" if base_url is None else "is not a URL"
        raise SectionError(f"the URL {text[:200]!r} {fault}", step, offset)
    return url
