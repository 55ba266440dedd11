"""Serve one bundle: the file at `/` and at its name, or the site inside it.

Independent of ASGI and sockets: from a request's method, host, target and fields to a whole response.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote_to_bytes

from headgate.errors import ResponseError
from headgate.origin.bundle.header_filter import Unservable, site_headers
from headgate.origin.bundle.reloading import ReloadingBundle
from headgate.origin.bundle.representation import refusal, respond
from headgate.origin.bundle.site import ANY_HOST, NotAcceptable, Site
from headgate.origin.response import Response

METHODS = b"GET, HEAD"
"""The methods that are served, for Allow."""

_IS_SERVED = frozenset({b"GET", b"HEAD"})


def method_not_allowed(method: bytes) -> Response | None:
    """Refuse a method other than GET and HEAD; None for these."""
    if method in _IS_SERVED:
        return None
    detail = "Only GET and HEAD are served."
    return refusal(405, "Method not allowed", detail, allow=METHODS)


def publish(bundle: ReloadingBundle, method: bytes, fields: Sequence[tuple[bytes, bytes]]) -> Response:
    """Answer a request for the bundle itself."""
    refused = method_not_allowed(method)
    if refused is not None:
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
        self._snapshot = bundle.snapshot
        self._site = Site(self._snapshot, site_headers, hosts=[ANY_HOST])
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
            return publish(self.bundle, method, fields)
        where = "in the bundle" if self._unpack else f"here but /{self.name}"
        return refusal(404, "Not found", f"Nothing has that URL {where}.")

    def _unpacked(
        self, method: bytes, host: bytes, target: bytes, fields: Sequence[tuple[bytes, bytes]]
    ) -> Response | None:
        if self.bundle.snapshot is not self._snapshot:
            self._snapshot = self.bundle.snapshot
            self._site = Site(self._snapshot, site_headers, hosts=[ANY_HOST])
        try:
            found = self._site.representation(host, target, fields)
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
