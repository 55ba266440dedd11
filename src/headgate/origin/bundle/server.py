"""Answer requests from bundles: `BundleServer` serves one, `GateBundles` are those of a gate, with its lifeboats.

Independent of ASGI and sockets: from a request's method, host, target and fields to a whole response.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote_from_bytes, unquote_to_bytes

from headgate.errors import HeadgateError, ResponseError
from headgate.http.h1 import RequestHead
from headgate.origin.bundle.representation import refusal, respond
from headgate.origin.bundle.site import ANY_HOST, CurrentSite, NotAcceptable, Unservable, lifeboat_headers, site_headers
from headgate.origin.bundle.snapshot import ReloadingBundle
from headgate.origin.request_info import plain_path
from headgate.origin.response import Response

METHODS = b"GET, HEAD"
"""The methods that are served, for Allow."""

_SERVED_METHODS = frozenset({b"GET", b"HEAD"})
# Private responses (9111 3.5), and preconditions on the origin's state.
_ORIGIN_ONLY_FIELDS = frozenset({b"authorization", b"if-match", b"if-unmodified-since"})
_RANGE_FIELDS = frozenset({b"range", b"if-range"})
_MIN_ERROR_STATUS = 400
"""From this status on a stored response is not used: the client gets the rejection, with its Retry-After."""


def method_not_allowed(method: bytes) -> Response | None:
    """Refuse a method other than GET and HEAD; None for these."""
    if method in _SERVED_METHODS:
        return None
    detail = "Only GET and HEAD are served."
    return refusal(405, "Method not allowed", detail, allow=METHODS)


def publish(bundle: ReloadingBundle, method: bytes, fields: Sequence[tuple[bytes, bytes]]) -> Response:
    """Answer a request for the bundle itself."""
    if refused := method_not_allowed(method):
        return refused
    try:
        return respond(bundle.snapshot.representation, method, fields)
    except OSError:
        return _being_replaced()


class BundleServer:
    """Answers all requests for `bundle`; with `unpack`, from the site inside it.

    The site is that of the primary URL's origin, for any Host; one that names another origin in the bundle gets that
    one's. The bundle itself stays at its name, unless the site has that path.
    """

    def __init__(self, bundle: ReloadingBundle, *, unpack: bool = False) -> None:
        self.bundle = bundle
        self.name = Path(bundle.absolute).name
        """The name of the bundle below `/`, not escaped."""
        self._unpack = unpack
        self._site = CurrentSite(bundle, site_headers, hosts=[ANY_HOST])
        self._paths = {b"/" + os.fsencode(self.name)} | (set() if unpack else {b"/"})

    @property
    def home(self) -> str:
        """The path to open: that of the bundle or, of its site, that of the primary URL."""
        if self._unpack:
            return self._site.get().start.decode() or "/"
        return "/" + quote_from_bytes(os.fsencode(self.name))

    def answer(self, method: bytes, host: bytes, target: bytes, fields: Sequence[tuple[bytes, bytes]]) -> Response:
        """Answer one request; `target` is a path and query, percent-encoded as sent."""
        if refused := method_not_allowed(method):
            return refused
        if self._unpack and (found := self._unpacked(method, host, target, fields)):
            return found
        path = target.partition(b"?")[0]
        if self._unpack and path == b"/" and (start := self._site.get().start) not in (b"", path):
            return Response(302, [(b"location", start), (b"content-length", b"0")], b"")
        if unquote_to_bytes(path) in self._paths:
            return publish(self.bundle, method, fields)
        detail = "The bundle has no such URL." if self._unpack else f"The bundle is at /{self.name}."
        return refusal(404, "Not found", detail)

    def _unpacked(
        self, method: bytes, host: bytes, target: bytes, fields: Sequence[tuple[bytes, bytes]]
    ) -> Response | None:
        try:
            found = self._site.get().representation(host, target, fields)
            return respond(found, method, fields) if found is not None else None
        except NotAcceptable as error:
            return refusal(406, "Not acceptable", f"The bundle has variants for that URL: {error}.")
        except (Unservable, ResponseError) as error:
            return refusal(502, "Bad response in the bundle", f"The response for that URL is malformed: {error}.")
        except OSError:
            return _being_replaced()


def _being_replaced() -> Response:
    response = refusal(503, "The bundle is being replaced", "The file has changed; try again in a moment.")
    response.fields.append((b"retry-after", b"1"))
    return response


class Lifeboat:
    """The site of one bundle, for rejected requests; `hosts` as in `Site`."""

    def __init__(self, bundle: ReloadingBundle, hosts: Iterable[str] = ()) -> None:
        self.bundle = bundle
        """The bundle."""
        self._site = CurrentSite(bundle, lifeboat_headers, hosts=hosts)

    def rescue(self, request: RequestHead, fields: list[tuple[bytes, bytes]]) -> Response | None:
        """Return the stored response; None unless it is a success or a redirect."""
        try:
            found = self._site.get().representation(request.host, request.target, fields)
            if found is None or found.status >= _MIN_ERROR_STATUS:
                return None
            response = respond(found, request.method, fields)
        except (HeadgateError, OSError):
            return None
        # `GateBundles.rescue` drops Range.
        response.fields = [field for field in response.fields if field[0] != b"accept-ranges"]
        return response


class GateBundles:
    """The bundles of a gate: `published` by path, decoded and plain, and `lifeboats` in the order they are tried."""

    def __init__(self, published: Mapping[bytes, ReloadingBundle], lifeboats: Iterable[Lifeboat]) -> None:
        self.published = dict(published)
        self.lifeboats = tuple(lifeboats)
        self.bundles = {*self.published.values(), *(lifeboat.bundle for lifeboat in self.lifeboats)}
        """All bundles."""
        self._sites = {path: CurrentSite(bundle, site_headers) for path, bundle in self.published.items()}

    def check(self) -> None:
        """Check for replaced files, and begin to load them: see `ReloadingBundle.check`."""
        for bundle in self.bundles:
            bundle.check()

    def publish(self, request: RequestHead) -> Response | None:
        """Answer a request for a published bundle; None for another path."""
        bundle = self.published.get(plain_path(request.path))
        return publish(bundle, request.method, request.fields) if bundle is not None else None

    def link(self, request: RequestHead) -> bytes:
        """Return the value of Link to the published bundles with the resource of a request; empty without one."""
        if request.method not in _SERVED_METHODS:
            return b""
        # RFC 6573: a collection of which the resource is an item. No registered relation is more specific.
        return b", ".join(
            b'<%b>; rel="collection"; type="application/webbundle"' % quote_from_bytes(path).encode()
            for path, site in self._sites.items()
            if site.get().contains(request.host, request.target)
        )

    def rescue(self, request: RequestHead) -> Response | None:
        """Answer a rejected request from a bundle; None if that is not possible."""
        if request.method not in _SERVED_METHODS or request.websocket:
            return None
        names = {name for name, _ in request.fields}
        if not names.isdisjoint(_ORIGIN_ONLY_FIELDS):
            return None
        # A client has its part from the origin; a part of the stored response may not match it.
        fields = [field for field in request.fields if field[0] not in _RANGE_FIELDS]
        for lifeboat in self.lifeboats:
            if response := lifeboat.rescue(request, fields):
                return response
        return None
