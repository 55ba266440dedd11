"""The bundles of a gate: published at their paths, and taken into the lifeboat for requests that are turned away."""

from collections.abc import Iterable, Mapping

from headgate.errors import HeadgateError
from headgate.http.h1 import RequestHead
from headgate.origin.bundle.publication import Publication
from headgate.origin.bundle.representation import respond
from headgate.origin.bundle.site import Site
from headgate.origin.bundle.stored import for_lifeboat
from headgate.origin.bundle.storefront import publish
from headgate.origin.response import Response
from headgate.origin.routes import plain_path

__all__ = ["Lifeboat", "Shelf"]

_RESCUED = frozenset({b"GET", b"HEAD"})
# Fetched for somebody, not for anybody (9111 3.5); or only in a state that the bundle knows nothing of.
_NOT_RESCUED = frozenset({b"authorization", b"if-match", b"if-unmodified-since"})
_IGNORED = frozenset({b"range", b"if-range"})
_FIRST_ERROR = 400
"""A stored status from here on is not an answer: the agent gets the rejection, which says when to ask again."""


class Lifeboat:
    """The site of one publication, for requests that are turned away; `hosts` as `Site` has them."""

    def __init__(self, publication: Publication, hosts: Iterable[str] = ()) -> None:
        self.publication = publication
        """What is answered from."""
        self._hosts = tuple(hosts)
        self._edition = publication.edition
        self._site = Site(self._edition, for_lifeboat, hosts=self._hosts)

    def rescue(self, request: RequestHead, fields: list[tuple[bytes, bytes]]) -> Response | None:
        """Give the stored response, or None for a request that the bundle has no success or redirect for."""
        if self.publication.edition is not self._edition:
            self._edition = self.publication.edition
            self._site = Site(self._edition, for_lifeboat, hosts=self._hosts)
        try:
            found = self._site.representation(request.host, request.target, fields)
            if found is None or found.status >= _FIRST_ERROR:
                return None
            response = respond(found, request.method, fields)
        except (HeadgateError, OSError):
            return None
        # `Shelf.rescue` drops Range.
        response.fields = [field for field in response.fields if field[0] != b"accept-ranges"]
        return response


class Shelf:
    """See the module: `published` by path, decoded and plain, and `lifeboats` in the order they are tried."""

    def __init__(self, published: Mapping[bytes, Publication], lifeboats: Iterable[Lifeboat]) -> None:
        self.published = dict(published)
        self.lifeboats = tuple(lifeboats)
        self.publications = {*self.published.values(), *(lifeboat.publication for lifeboat in self.lifeboats)}
        """All of them."""

    def look(self) -> None:
        """Look for replaced files, and begin to load them: see `Publication.look`."""
        for publication in self.publications:
            publication.look()

    def publish(self, request: RequestHead) -> Response | None:
        """Answer a request for a bundle that is published; None for a path where none is."""
        publication = self.published.get(plain_path(request.path))
        return publish(publication, request.method, request.fields) if publication is not None else None

    def rescue(self, request: RequestHead) -> Response | None:
        """Answer a request that was turned away; None when it must be."""
        if request.method not in _RESCUED or request.websocket:
            return None
        names = {name for name, _ in request.fields}
        if not names.isdisjoint(_NOT_RESCUED):
            return None
        # What an agent has part of is the origin's, and a part of this would not fit it.
        fields = [field for field in request.fields if field[0] not in _IGNORED]
        for lifeboat in self.lifeboats:
            response = lifeboat.rescue(request, fields)
            if response is not None:
                return response
        return None
