"""The site inside a bundle: select responses by host, path, query and accepted variants, and filter their headers.

Bundle headers are untrusted: fields for framing, for one hop and for one user are removed.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from typing import Final

from headgate.bundle.model import Location, Metadata, VariantSet, served_headers, unservable
from headgate.bundle.variants import parse_variants, select_key
from headgate.errors import HeadgateError
from headgate.http.conditional import ENTITY_TAG, Validators
from headgate.http.date import parse_http_date
from headgate.http.fields import is_token
from headgate.http.url import parse_url, resolve, without_fragment
from headgate.origin.bundle.representation import NOSNIFF, Representation
from headgate.origin.bundle.snapshot import BundleSnapshot, ReloadingBundle
from headgate.origin.identify import parse_address

HeaderFilter = Callable[[Mapping[str, str], str], dict[str, str]]
"""From stored headers and the origin of the response to the headers that are sent."""

_FIELD_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*+")

_REMOVED_IN_LIFEBOAT = frozenset({
    # Freshness, as if the origin had sent it now.
    "expires", "pragma", "cdn-cache-control", "surrogate-control",
    # Fields that throttle agents: this request is answered.
    "retry-after", "ratelimit", "ratelimit-policy", "ddos-bucket-with", "exponential-throttling",
})  # fmt: skip
ANY_HOST = "*"
"""Among the hosts of a `Site`: all hosts."""
_NO_ORIGIN: Final = "https://bundle.invalid"
"""The origin of relative URLs without a base (reserved by RFC 6761, 6.4)."""
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@]+(?![^/?#])")
"""The origin of a URL in normal form without credentials."""
_PATH = re.compile(r"/(?![/\\])")
_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_PORT = re.compile(rb":[0-9]*\Z")
_WITHOUT_CONTENT = frozenset({204, 205})


class Unservable(HeadgateError):
    """A stored response that cannot be sent; raised and caught in this package."""


def site_headers(headers: Mapping[str, str], origin: str) -> dict[str, str]:
    """Filter the headers of a response of the unpacked site; its redirects to its own origin become relative."""
    kept = served_headers(headers)
    location = kept.get("location")
    if location is not None and location.startswith(f"{origin}/"):
        path = location.removeprefix(origin)
        if not path.startswith(("//", "/\\")):  # which would be another host
            kept["location"] = path
    return kept


def lifeboat_headers(headers: Mapping[str, str], _origin: str) -> dict[str, str]:
    """Filter the headers of a response in place of the origin's; it must be revalidated before it is used again."""
    kept = {name: value for name, value in served_headers(headers).items() if name not in _REMOVED_IN_LIFEBOAT}
    kept["cache-control"] = "no-store" if "no-store" in headers.get("cache-control", "").lower() else "no-cache"
    kept["headgate-source"] = "bundle"
    return kept


def add_vary(headers: dict[str, str], names: list[str]) -> None:
    """Add the fields that select a variant to Vary."""
    members = [member.strip() for member in headers.get("vary", "").split(",") if member.strip()]
    if "*" in members:
        return
    known = {member.lower() for member in members}
    headers["vary"] = ", ".join(members + [name for name in names if name.lower() not in known])


def field_lines(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Return field lines as bytes; raises `Unservable` for one that is invalid in a message (9110 5.1 and 5.5)."""
    for name, value in headers.items():
        if not is_token(name) or not _FIELD_VALUE.fullmatch(value):
            raise Unservable(f"its field {name!r} is invalid in an HTTP message")
    return [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]


class NotAcceptable(Unservable):
    """The request accepts none of the variants."""


class Site:
    """The responses of a snapshot by request, with headers filtered by `header_filter`.

    A request is for the origin in the bundle that its Host names. The `hosts` listed, addresses and localhost mean the
    primary URL's origin, and every host does with `ANY_HOST` among them; other hosts have nothing here. That origin may
    have any scheme, such as that of an isolated app; without a primary URL it is that of relative URLs, or the first.
    """

    def __init__(self, snapshot: BundleSnapshot, header_filter: HeaderFilter, *, hosts: Iterable[str] = ()) -> None:
        self._snapshot = snapshot
        self._filter = header_filter
        self._requests = _placed(snapshot.metadata)
        self._origins, self._primary = _origins(snapshot.metadata.primary_url, self._requests)
        self._hosts = frozenset(ANY_HOST if host == ANY_HOST else _name(host.encode()) for host in hosts)

    def representation(
        self, host: bytes, target: bytes, fields: Iterable[tuple[bytes, bytes]]
    ) -> Representation | None:
        """Return the response to a request for `target`, a path and query; None if the bundle has none.

        Raises `Unservable`, `ResponseError` and `OSError` for a response that cannot be sent.
        """
        url = self._url(host, target)
        found = self._requests.get(url) if url else None
        if url is None or found is None:
            return None
        key = _choose(found, fields) if isinstance(found, VariantSet) else None
        return self._make(url, found, key)

    def contains(self, host: bytes, target: bytes) -> bool:
        """Return whether the bundle has a response to requests for `target`, a path and query."""
        return self._url(host, target) in self._requests

    @property
    def start(self) -> bytes:
        """The path and query of the primary URL, for a client that asks for `/`; empty without one in this bundle."""
        url = without_fragment(resolve(self._snapshot.metadata.primary_url or "", _NO_ORIGIN) or "")
        path = url[len(_origin_of(url)) :] if url in self._requests else ""
        # A path that begins with // would be another host.
        return path.encode() if _PATH.match(path) else b""

    def _url(self, host: bytes, target: bytes) -> str | None:
        origin = self._origin(host)
        path = _NOT_ASCII.sub(lambda found: b"%%%02X" % found[0][0], target).decode()
        url = parse_url(origin + path) if origin else None
        # Browsers of today encode ^ in a path, older ones do not.
        return url.replace("%5E", "^") if url and url not in self._requests else url

    def _origin(self, host: bytes) -> str | None:
        """Return the origin in the bundle that a Host means."""
        text = host.decode("latin-1").lower()
        name = _name(host)
        known = self._origins.get(text) or self._origins.get(name)
        if known is not None:
            return known
        is_primary = ANY_HOST in self._hosts or name in self._hosts or _is_address(name)
        return self._primary if is_primary else None

    def _make(self, url: str, found: Location | VariantSet, key: str | None) -> Representation:
        location = found if isinstance(found, Location) else found.locations[key or ""]
        status, stored, content = self._snapshot.response(location)
        if fault := unservable(status):
            raise Unservable(fault)
        headers = self._filter(stored, _origin_of(url))
        if isinstance(found, VariantSet):
            add_vary(headers, [axis.name for axis in parse_variants(found.variants) or ()])
        etag = headers.pop("etag", "").encode("latin-1")
        if not ENTITY_TAG.fullmatch(etag):
            etag = self._snapshot.etag(location)
        elif isinstance(found, VariantSet) and not etag.startswith(b"W/"):
            # A strong tag recorded for one representation must not be used for several.
            etag = b"W/" + etag
        headers[NOSNIFF[0].decode()] = NOSNIFF[1].decode()
        modified = parse_http_date(headers.get("last-modified", "").encode("latin-1"))
        fields = [*field_lines(headers), (b"etag", etag)]
        if status in _WITHOUT_CONTENT:
            # 9110 15.3.6: a 205 has length 0; 8.6: a 204 has no Content-Length.
            fields += [(b"content-length", b"0")] if status == 205 else []
            return Representation(status, tuple(fields), Validators(etag, modified), None)
        return Representation(status, tuple(fields), Validators(etag, modified), content)


def _choose(found: VariantSet, fields: Iterable[tuple[bytes, bytes]]) -> str:
    texts = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in fields)
    key = select_key(parse_variants(found.variants) or (), texts)
    if key is None:
        raise NotAcceptable("none of them is acceptable")
    return key


class CurrentSite:
    """The site of the newest snapshot of a bundle."""

    def __init__(self, bundle: ReloadingBundle, header_filter: HeaderFilter, *, hosts: Iterable[str] = ()) -> None:
        self._bundle = bundle
        self._site_of = lru_cache(maxsize=1)(partial(Site, header_filter=header_filter, hosts=tuple(hosts)))
        self.get()

    def get(self) -> Site:
        """Return the site, made anew if the bundle was replaced."""
        return self._site_of(self._bundle.snapshot)


def _placed(metadata: Metadata) -> Mapping[str, Location | VariantSet]:
    """Return the bundle's requests by absolute URL; of several relative URLs that resolve to one, the first."""
    if metadata.version != "b2":
        return metadata.requests
    placed: dict[str, Location | VariantSet] = {}
    for url, found in metadata.requests.items():
        placed.setdefault(resolve(url, _NO_ORIGIN) or url, found)
    return placed


def _origins(primary_url: str | None, urls: Iterable[str]) -> tuple[dict[str, str], str | None]:
    """Return the origins in the bundle by the Hosts that name them, and the origin for addresses and localhost.

    The scheme is ignored: behind a TLS proxy all requests look the same. Of two origins with one host that of the
    primary URL comes first, then https.
    """
    found = dict.fromkeys(map(_origin_of, urls))
    found.pop("", None)
    sites = [origin for origin in found if origin.startswith(("https:", "http:"))]
    stated = _origin_of(resolve(primary_url, _NO_ORIGIN) or "") if primary_url else ""
    primary = stated or (_NO_ORIGIN if _NO_ORIGIN in found else next(iter([*sites, *found]), None))
    by_name: dict[str, str] = {}
    ordered = sorted(sites, key=lambda origin: (origin != primary, not origin.startswith("https:")))
    for origin in ordered:
        scheme, _, authority = origin.partition("://")
        by_name.setdefault(authority, origin)
        if _name(authority.encode()) == authority:
            by_name.setdefault(f"{authority}:{443 if scheme == 'https' else 80}", origin)
    for origin in ordered:
        # Any other port of that host.
        by_name.setdefault(_name(origin.partition("://")[2].encode()), origin)
    return by_name, primary


def _origin_of(url: str) -> str:
    """Return the origin of a URL in normal form; empty for one without, such as a `uuid-in-package:` URL."""
    found = _ORIGIN.match(url)
    return found[0] if found else ""


def _name(host: bytes) -> str:
    """Return a host without its port and trailing dot, in lower case."""
    return _PORT.sub(b"", host).decode("latin-1").lower().rstrip(".")


def _is_address(name: str) -> bool:
    """Return whether a host is an address or localhost."""
    return name in {"", "localhost"} or parse_address(name.removeprefix("[").removesuffix("]")) is not None
