"""The site inside a bundle: which of its responses answers a request, by host, path, query and what is accepted."""

import ipaddress
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final

from headgate.bundle.model import Location, Metadata, VariantSet
from headgate.bundle.variants import Axis, parse_variants, select_key
from headgate.http.conditional import ENTITY_TAG, Validators
from headgate.http.date import parse_http_date
from headgate.http.url import parse_url, resolve
from headgate.origin.bundle.edition import Edition
from headgate.origin.bundle.representation import NOSNIFF, Representation
from headgate.origin.bundle.stored import Dress, Unservable, check_status, lines, with_vary

__all__ = ["ANY_HOST", "NotAcceptable", "Site"]

ANY_HOST = "*"
"""Among the hosts of a `Site`: all of them."""

_NOWHERE: Final = "https://bundle.invalid"
"""The origin of relative URLs that are relative to nothing: nobody's (RFC 6761, 6.4)."""
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@]+(?![^/?#])")
"""What a URL in normal form begins with that has a host, and no credentials."""
_ACCEPTS = {b"accept": "accept", b"accept-encoding": "accept-encoding", b"accept-language": "accept-language"}
_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_PORT = re.compile(rb":[0-9]*\Z")
_WITHOUT_CONTENT = frozenset({204, 205})
_MOST_KEPT = 1_024
_LONGEST_KEPT = 8_192
"""Bytes of the fields of a response that is kept."""


class NotAcceptable(Unservable):
    """There are variants, and the request accepts none of them."""


class Site:
    """The responses of an `edition` by request, dressed by `dress`.

    A request is for the origin in the bundle that its Host names. Other hosts may be other sites, of which this knows
    nothing: only the `hosts` listed, and those that name no site at all (an address, localhost), stand for the
    primary URL's origin. With `ANY_HOST` among them every host does. That origin may be of any scheme, as that of an
    isolated app is; and without one it is where relative URLs are, or else the first.
    """

    def __init__(self, edition: Edition, dress: Dress, *, hosts: Iterable[str] = ()) -> None:
        self._edition = edition
        self._dress = dress
        self._requests = _placed(edition.metadata)
        self._origins, self._primary = _origins(edition.metadata.primary_url, self._requests)
        self._hosts = frozenset(ANY_HOST if host == ANY_HOST else _name(host.encode()) for host in hosts)
        self._axes: dict[str, tuple[Axis, ...]] = {}
        self._kept: OrderedDict[tuple[str, str | None], Representation] = OrderedDict()

    def representation(
        self, host: bytes, target: bytes, fields: Iterable[tuple[bytes, bytes]]
    ) -> Representation | None:
        """Give what answers a request for `target`, a path and query; None when the bundle has nothing for it.

        Raises `Unservable`, `ResponseError` and `OSError` for a response that is there and cannot be sent.
        """
        origin = self._origin(host)
        url = parse_url(origin + _NOT_ASCII.sub(_escaped, target).decode()) if origin else None
        found = self._requests.get(url) if url else None
        if url is None or found is None:
            return None
        key = self._choose(url, found, fields) if isinstance(found, VariantSet) else None
        kept = self._kept.get((url, key))
        if kept is not None:
            self._kept.move_to_end((url, key))
            return kept
        made = self._make(url, found, key)
        if sum(len(value) for _, value in made.fields) <= _LONGEST_KEPT:
            self._kept[url, key] = made
            if len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return made

    def _origin(self, host: bytes) -> str | None:
        """Say which origin of the bundle a request with this Host is for."""
        text = host.decode("latin-1").lower()
        name = _name(host)
        known = self._origins.get(text) or self._origins.get(name)
        if known is not None:
            return known
        stands_for_it = ANY_HOST in self._hosts or name in self._hosts or _names_no_site(name)
        return self._primary if stands_for_it else None

    def _choose(self, url: str, found: VariantSet, fields: Iterable[tuple[bytes, bytes]]) -> str:
        accepts: dict[str, str] = {}
        for name, value in fields:
            if name in _ACCEPTS:
                known, text = _ACCEPTS[name], value.decode("latin-1")
                accepts[known] = f"{accepts[known]}, {text}" if known in accepts else text
        key = select_key(self._axes_of(url, found), accepts)
        if key is None:
            raise NotAcceptable("none of its variants is acceptable")
        return key

    def _axes_of(self, url: str, found: VariantSet) -> tuple[Axis, ...]:
        axes = self._axes.get(url)
        if axes is None:
            axes = self._axes[url] = parse_variants(found.variants) or ()
        return axes

    def _make(self, url: str, found: Location | VariantSet, key: str | None) -> Representation:
        location = found if isinstance(found, Location) else found.locations[key or ""]
        head = self._edition.head(location)
        check_status(head.status)
        found_content = self._edition.content(location, head)
        if found_content is None:
            raise Unservable("its payload is cut")
        stored, content = found_content
        headers = self._dress(stored, _origin_of(url))
        if isinstance(found, VariantSet):
            with_vary(headers, [axis.name for axis in self._axes_of(url, found)])
        etag = headers.pop("etag", "").encode("latin-1")
        if not ENTITY_TAG.fullmatch(etag):
            etag = self._edition.etag(location)
        elif isinstance(found, VariantSet) and not etag.startswith(b"W/"):
            # What was recorded for one representation now names several, which are not alike byte by byte.
            etag = b"W/" + etag
        headers[NOSNIFF[0].decode()] = NOSNIFF[1].decode()
        modified = parse_http_date(headers.get("last-modified", "").encode("latin-1"))
        fields = [*lines(headers), (b"etag", etag)]
        if head.status in _WITHOUT_CONTENT:
            # 9110 15.3.6: 205 says that there is none; 8.6: 204 may not even say that.
            fields += [(b"content-length", b"0")] if head.status == 205 else []
            return Representation(head.status, tuple(fields), Validators(etag, modified), None)
        return Representation(head.status, tuple(fields), Validators(etag, modified), content)


def _placed(metadata: Metadata) -> Mapping[str, Location | VariantSet]:
    """Give the bundle's requests by absolute URLs; of relative ones that are one here, the first."""
    if metadata.version != "b2":
        return metadata.requests
    placed: dict[str, Location | VariantSet] = {}
    for url, found in metadata.requests.items():
        placed.setdefault(resolve(url, _NOWHERE) or url, found)
    return placed


def _origins(primary_url: str | None, urls: Iterable[str]) -> tuple[dict[str, str], str | None]:
    """Give the bundle's sites by what Host may call them, and the origin that stands for hosts which name no site.

    The scheme is not asked: behind whoever ends TLS all requests look alike. Of two sites on one host the primary
    URL's comes first, then https.
    """
    found = dict.fromkeys(map(_origin_of, urls))
    found.pop("", None)
    sites = [origin for origin in found if origin.startswith(("https:", "http:"))]
    stated = _origin_of(resolve(primary_url, _NOWHERE) or "") if primary_url else ""
    primary = stated or (_NOWHERE if _NOWHERE in found else next(iter([*sites, *found]), None))
    by_name: dict[str, str] = {}
    ordered = sorted(sites, key=lambda origin: (origin != primary, not origin.startswith("https:")))
    for origin in ordered:
        scheme, _, authority = origin.partition("://")
        by_name.setdefault(authority, origin)
        if _name(authority.encode()) == authority:
            by_name.setdefault(f"{authority}:{443 if scheme == 'https' else 80}", origin)
    for origin in ordered:
        # Whatever port it is reached at here, it is that host's.
        by_name.setdefault(_name(origin.partition("://")[2].encode()), origin)
    return by_name, primary


def _origin_of(url: str) -> str:
    """Cut scheme and host off a URL in normal form; empty for one without, such as a `uuid-in-package:` URL."""
    found = _ORIGIN.match(url)
    return found[0] if found else ""


def _name(host: bytes) -> str:
    """Give a host without its port and the root's dot, in lower case."""
    return _PORT.sub(b"", host).decode("latin-1").lower().rstrip(".")


def _names_no_site(name: str) -> bool:
    """Say whether a host is an address of this machine and not the name of any site."""
    if name in {"", "localhost"}:
        return True
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _escaped(match: re.Match[bytes]) -> bytes:
    return b"%%%02X" % match[0][0]
