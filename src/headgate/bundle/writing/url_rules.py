"""The URLs of a bundle that is being written: the form they are stored in, and what no reader would take."""

from typing import Final

from headgate.bundle.writing.untrusted import SniffingRules
from headgate.errors import ConfigurationError
from headgate.http.url import has_credentials, has_fragment, parse_url, resolve, without_fragment

__all__ = ["UrlRules"]

_SOMEWHERE: Final = "https://bundle.invalid/1/2/3/4/"
"""What a relative URL is tried against without an absolute primary URL: where the bundle will be is not known here."""


class UrlRules:
    """Turns URLs as given into URLs as stored."""

    def __init__(self, rules: SniffingRules | None, *, relative: bool, primary_url: str | None = None) -> None:
        """Readers resolve relative URLs against `primary_url` where that is absolute, so it is done here too."""
        self._rules = rules
        self._relative = relative
        self._base = parse_url(primary_url or "") or _SOMEWHERE

    def primary(self, url: str) -> str:
        """Give the primary URL as stored: of a bundle made by its author it may have a fragment (3.3 step 6)."""
        normal = parse_url(url)
        if normal is None or self._rules is not None or not has_fragment(normal):
            return self.stored(url)
        self.stored(without_fragment(normal))
        return normal

    def stored(self, url: str) -> str:
        """Give `url` as the WHATWG's parser writes it, or as it is where it is relative and may be.

        Raises `ConfigurationError` as 3.3.1 step 4.2 refuses: when it "is a failure, its fragment is not null, or it
        includes credentials".
        """
        stored = parse_url(url)
        whole = stored
        if stored is None and self._relative:
            stored, whole = url, resolve(url, self._base)
        if stored is None or whole is None:
            raise ConfigurationError(f"{url[:200]!r} is no absolute URL; one begins with https:// or the like")
        if has_credentials(whole):  # which are nobody's business, so they are not repeated
            raise ConfigurationError(f"the URL of {whole.rpartition('@')[2][:200]} has credentials; leave them out")
        if has_fragment(whole):
            raise ConfigurationError(f"the URL {url[:200]} has a fragment; leave out the # and what follows it")
        return stored if self._rules is None else self._rules.url(stored)

    def identity(self, stored: str) -> str:
        """Give what two stored URLs have in common when readers take them for one, wherever the bundle is."""
        whole = (resolve(stored, self._base) or stored) if self._relative else stored
        return without_fragment(whole) if has_fragment(whole) else whole
