"""A bundle as a server of its own: the file at `/` and at its name, or the site inside it.

This file knows neither ASGI nor sockets: from a request's method, host, target and fields to a whole response.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote_to_bytes

from headgate.errors import ResponseError
from headgate.origin.bundle.publication import Publication
from headgate.origin.bundle.representation import refusal, respond
from headgate.origin.bundle.site import ANY_HOST, NotAcceptable, Site
from headgate.origin.bundle.stored import Unservable, for_site
from headgate.origin.response import Response

__all__ = ["METHODS", "Storefront", "method_not_allowed", "publish"]

METHODS = b"GET, HEAD"
"""What is served here, as Allow has it."""

_IS_SERVED = frozenset({b"GET", b"HEAD"})


def method_not_allowed(method: bytes) -> Response | None:
    """Refuse a method other than GET and HEAD; None for these."""
    if method in _IS_SERVED:
        return None
    detail = "A bundle is there to be read: only GET and HEAD are served."
    return refusal(405, "Method not allowed", detail, allow=METHODS)


def publish(publication: Publication, method: bytes, fields: Sequence[tuple[bytes, bytes]]) -> Response:
    """Answer a request for the bundle itself."""
    refused = method_not_allowed(method)
    if refused is not None:
        return refused
    try:
        return respond(publication.edition.representation, method, fields)
    except OSError:
        return _being_replaced()


class Storefront:
    """Answers every request there is for `publication`; with `unpack`, from the site inside it.

    The site is that of the primary URL's origin, whatever the host is called here; a Host that names another origin
    in the bundle gets that one's. The bundle stays at its name, unless the site has that path itself.
    """

    def __init__(self, publication: Publication, *, unpack: bool = False) -> None:
        self.publication = publication
        self.name = Path(publication.absolute).name
        """What the bundle is called under `/`, not escaped."""
        self._unpack = unpack
        self._edition = publication.edition
        self._site = Site(self._edition, for_site, hosts=[ANY_HOST])
        self._paths = {b"/" + os.fsencode(self.name)} | (set() if unpack else {b"/"})

    def answer(self, method: bytes, host: bytes, target: bytes, fields: Sequence[tuple[bytes, bytes]]) -> Response:
        """Answer one request; `target` is a path and query, percent-encoded as sent."""
        refused = method_not_allowed(method)
        if refused is not None:
            return refused
        found = self._unpacked(method, host, target, fields) if self._unpack else None
        if found is not None:
            return found
        if unquote_to_bytes(target.partition(b"?")[0]) in self._paths:
            return publish(self.publication, method, fields)
        where = "in the bundle" if self._unpack else f"here but /{self.name}"
        return refusal(404, "Not found", f"There is nothing for that URL {where}.")

    def _unpacked(
        self, method: bytes, host: bytes, target: bytes, fields: Sequence[tuple[bytes, bytes]]
    ) -> Response | None:
        if self.publication.edition is not self._edition:
            self._edition = self.publication.edition
            self._site = Site(self._edition, for_site, hosts=[ANY_HOST])
        try:
            found = self._site.representation(host, target, fields)
            return respond(found, method, fields) if found is not None else None
        except NotAcceptable as error:
            return refusal(406, "Not acceptable", f"The bundle has variants for that URL, and {error}.")
        except (Unservable, ResponseError) as error:
            return refusal(502, "Bad response in the bundle", f"What it has for that URL is refused: {error}.")
        except OSError:
            return _being_replaced()


def _being_replaced() -> Response:
    response = refusal(503, "The bundle is being replaced", "Its file has changed just now; ask again in a moment.")
    response.fields.append((b"retry-after", b"1"))
    return response
