"""The bundles of a gate: published at their paths, and lifeboats for rejected requests."""

from collections.abc import Iterable, Mapping

from headgate.errors import HeadgateError
from headgate.http.h1 import RequestHead
from headgate.origin.bundle.header_filter import lifeboat_headers
from headgate.origin.bundle.reloading import ReloadingBundle
from headgate.origin.bundle.representation import respond
from headgate.origin.bundle.server import publish
from headgate.origin.bundle.site import Site
from headgate.origin.response import Response
from headgate.origin.routes import plain_path

_RESCUED = frozenset({b"GET", b"HEAD"})
# Private responses (9111 3.5), and preconditions on the origin's state.
_NOT_RESCUED = frozenset({b"authorization", b"if-match", b"if-unmodified-since"})
_IGNORED = frozenset({b"range", b"if-range"})
_FIRST_ERROR = 400
"""From this status on a stored response is not used: the client gets the rejection, with its Retry-After."""


class Lifeboat:
    """The site of one bundle, for rejected requests; `hosts` as in `Site`."""

    def __init__(self, bundle: ReloadingBundle, hosts: Iterable[str] = ()) -> None:
        self.bundle = bundle
        """The bundle."""
        self._hosts = tuple(hosts)
        self._snapshot = bundle.snapshot
        self._site = Site(self._snapshot, lifeboat_headers, hosts=self._hosts)

    def rescue(self, request: RequestHead, fields: list[tuple[bytes, bytes]]) -> Response | None:
        """Return the stored response; None unless it is a success or a redirect."""
        if self.bundle.snapshot is not self._snapshot:
            self._snapshot = self.bundle.snapshot
            self._site = Site(self._snapshot, lifeboat_headers, hosts=self._hosts)
        try:
            found = self._site.representation(request.host, request.target, fields)
            if found is None or found.status >= _FIRST_ERROR:
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

    def check(self) -> None:
        """Check for replaced files, and begin to load them: see `ReloadingBundle.check`."""
        for bundle in self.bundles:
            bundle.check()

    def publish(self, request: RequestHead) -> Response | None:
        """Answer a request for a published bundle; None for another path."""
        bundle = self.published.get(plain_path(request.path))
        return publish(bundle, request.method, request.fields) if bundle is not None else None

    def rescue(self, request: RequestHead) -> Response | None:
        """Answer a rejected request from a bundle; None if that is not possible."""
        if request.method not in _RESCUED or request.websocket:
            return None
        names = {name for name, _ in request.fields}
        if not names.isdisjoint(_NOT_RESCUED):
            return None
        # A client that has a part has it from the origin; a part of the stored response would not fit.
        fields = [field for field in request.fields if field[0] not in _IGNORED]
        for lifeboat in self.lifeboats:
            response = lifeboat.rescue(request, fields)
            if response is not None:
                return response
        return None
