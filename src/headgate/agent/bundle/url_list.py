"""Lists of URLs: one per line, `#` begins a comment line, repeated URLs count once."""

from pathlib import Path
from typing import Final

from headgate.bundle.sources.selection import SkipExchange, normalize_http_url
from headgate.errors import ConfigurationError

_MAX_SHOWN: Final = 120


def read_url_list(path: Path) -> list[str]:
    """Read the URLs in a file, in normal form, in the order they first appear.

    Fragments are dropped. Raises `ConfigurationError` for a line that is not an http or https URL, and for a file that
    cannot be read or has no URL.
    """
    urls: dict[str, None] = {}
    try:
        lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").splitlines()
    except OSError as error:
        raise ConfigurationError(
            f"cannot read {path}: {error.strerror}; expected a file with one URL per line"
        ) from None
    for number, line in enumerate(lines, start=1):
        try:
            text = line.decode().strip()
            if text and not text.startswith("#"):
                urls.setdefault(normalize_http_url(text))
        except (UnicodeDecodeError, SkipExchange) as error:
            why = error if isinstance(error, SkipExchange) else "not UTF-8"
            shown = line[:_MAX_SHOWN].decode("utf-8", "replace")
            raise ConfigurationError(
                f"{path}, line {number}: {shown!r}: {why}; expected a URL such as https://example.com/"
            ) from None
    if not urls:
        raise ConfigurationError(f"{path} has no URL in it; expected one per line")
    return list(urls)
