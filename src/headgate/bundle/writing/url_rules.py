"""The URLs of a bundle that is written: the form in which they are stored, and which are refused."""

from typing import Final

from headgate.bundle.writing.untrusted import SniffingRules
from headgate.errors import ConfigurationError
from headgate.http.url import has_credentials, has_fragment, parse_url, resolve, without_fragment

_ANY_BASE: Final = "https://bundle.invalid/1/2/3/4/"
"""Relative URLs are checked against this base where the primary URL is not absolute."""


class UrlRules:
    """Normalizes and checks URLs."""

    def __init__(self, rules: SniffingRules | None, *, relative: bool, primary_url: str | None = None) -> None:
        """Relative URLs are resolved against `primary_url` where that is absolute, as readers do."""
        self._rules = rules
        self._relative = relative
        self._base = parse_url(primary_url or "") or _ANY_BASE

    def primary(self, url: str) -> str:
        """Return the primary URL as stored; unless requests are untrusted it may have a fragment (3.3 step 6)."""
        normal = parse_url(url)
        if normal is None or self._rules is not None or not has_fragment(normal):
            return self.stored(url)
        self.stored(without_fragment(normal))
        return normal

    def stored(self, url: str) -> str:
        """Return `url` in the WHATWG parser's form, or a relative one as it is, where that is allowed.

        Raises `ConfigurationError` as 3.3.1 step 4.2 refuses: when it "is a failure, its fragment is not null, or it
        includes credentials".
        """
        stored = parse_url(url)
        whole = stored
        if stored is None and self._relative:
            stored, whole = url, resolve(url, self._base)
        if stored is None or whole is None:
            raise ConfigurationError(f"{url[:200]!r} is not an absolute URL; expected one such as https://example.com/")
        if has_credentials(whole):  # which are secret, so the message leaves them out
            raise ConfigurationError(f"the URL of {whole.rpartition('@')[2][:200]} has credentials; leave them out")
        if has_fragment(whole):
            raise ConfigurationError(f"the URL {url[:200]} has a fragment; leave out the # and what follows it")
        return stored if self._rules is None else self._rules.url(stored)

    def lookup_key(self, stored: str) -> str:
        """Return what is equal for stored URLs that readers treat as one, wherever the bundle is."""
        whole = (resolve(stored, self._base) or stored) if self._relative else stored
        return without_fragment(whole) if has_fragment(whole) else whole
