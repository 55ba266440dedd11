"""Lists of URLs: one a line, `#` begins a comment line, and what is there twice is there once."""

from pathlib import Path
from typing import Final

from headgate.bundle.sources.selection import normalize_http_url
from headgate.bundle.sources.skipped import SkipExchange
from headgate.errors import ConfigurationError

__all__ = ["read_url_list"]

_SHOWN: Final = 120


def read_url_list(path: Path) -> list[str]:
    """Read the URLs in a file, in the form that a bundle has them, in the order they first appear.

    Fragments are dropped: they name no other resource. Raises `ConfigurationError`, which names the line, for a line
    that is no URL of the web, and for a file that cannot be read or has none.
    """
    urls: dict[str, None] = {}
    try:
        lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").splitlines()
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}; name a file with a URL a line") from None
    for number, line in enumerate(lines, start=1):
        try:
            text = line.decode().strip()
            if text and not text.startswith("#"):
                urls.setdefault(normalize_http_url(text))
        except (UnicodeDecodeError, SkipExchange) as error:
            why = error if isinstance(error, SkipExchange) else "not UTF-8"
            shown = line[:_SHOWN].decode("utf-8", "replace")
            raise ConfigurationError(f"{path}, line {number}: {shown!r}: {why}; one is https://example.com/") from None
    if not urls:
        raise ConfigurationError(f"{path} has no URL in it; write one a line")
    return list(urls)
