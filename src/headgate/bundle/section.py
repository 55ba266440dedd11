"""What the sections' parsers share: how one refuses, and the URLs that may stand in a section."""

from headgate.http.url import has_credentials, has_fragment, parse_url, resolve

__all__ = ["SectionError", "section_url"]


class SectionError(Exception):
    """A section is refused: why, which step says so, and at which byte of the section."""

    def __init__(self, reason: str, step: str, offset: int) -> None:
        super().__init__(reason, step, offset)
        self.reason = reason
        self.step = step
        self.offset = offset


def section_url(text: str, base_url: str | None, step: str, offset: int) -> str:
    """Parse a URL that has neither fragment nor credentials; `base_url` is what a relative one is relative to."""
    url = parse_url(text) if base_url is None else resolve(text, base_url)
    if url is None:
        fault = "is no absolute URL" if base_url is None else "is no URL"
    elif has_fragment(url):
        fault = "has a fragment"
    elif has_credentials(url):
        fault = "has credentials"
    else:
        return url
    raise SectionError(f"the URL {text[:200]!r} {fault}", step, offset)
